/** Decodes a file; `pixelsOf` gives what it holds. */
export declare function decode(file: Blob): Promise<ImageBitmap>;

/** The pixels of an ImageBitmap, or of a video's frame with its size, as bitfactor reads them in Python. */
export declare function pixelsOf(
  source: ImageBitmap | HTMLVideoElement,
  width?: number,
  height?: number,
): { data: Uint8ClampedArray; width: number; height: number };
