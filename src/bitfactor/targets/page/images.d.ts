/** Decodes a file; `pixelsOf` gives what it holds. */
export declare function decode(file: Blob): Promise<ImageBitmap>;

/** The pixels of an ImageBitmap, or of a video's frame with its size, as bitfactor reads them in Python. */
export declare function pixelsOf(
  source: ImageBitmap | HTMLVideoElement,
  width?: number,
  height?: number,
): { data: Uint8ClampedArray; width: number; height: number };

/** An image with black beside it, in the proportions of a network's `image`; `part` is what the network sees. */
export declare function padded(
  pixels: { data: Uint8Array | Uint8ClampedArray; width: number; height: number },
  image: { width: number; height: number },
): {
  pixels: { data: Uint8ClampedArray; width: number; height: number };
  part: { left: number; top: number; width: number; height: number };
};
