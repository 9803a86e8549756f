/** What a network takes or gives, of one sample: (channels, height, width), or (features). */
export interface Tensor {
  name: string;
  values: "real" | "integers" | "signs";
  shape: number[];
  size: number;
}

/** How an image becomes the input: resized, cropped in the centre, then (x / 255 - mean) / std. */
export interface ImageRule {
  height: number;
  width: number;
  resizeHeight: number;
  resizeWidth: number;
  keepAspect: boolean;
  channels: number;
  mean: number[];
  std: number[];
}

export declare class Network {
  private constructor();
  /**
   * From a URL, a Response, or the bytes of a .bfp file. `relaxed: false` keeps to the plain vectors. `threads` are up
   * to four, by the device, where `hasThreads()` and workers start, else 1.
   */
  static load(
    source: string | URL | Response | ArrayBuffer | ArrayBufferView,
    options?: { relaxed?: boolean; threads?: number },
  ): Promise<Network>;
  readonly input: Tensor;
  readonly outputs: Tensor[];
  /** Classes, or keypoints where there are edges, which are pairs of them. */
  readonly labels: string[];
  readonly edges: [number, number][];
  readonly image: ImageRule | null;
  readonly instructionSet: "wasm" | "wasm-relaxed";
  readonly threads: number;
  /** One sample; an array of outputs where there are several. */
  run(x: Float32Array): Float32Array | Float32Array[];
  /** Pixels of an image of any size, as an ImageData has them, as the network's input: bit for bit as in Python. */
  prepare(pixels: { data: ArrayLike<number>; width: number; height: number }): Float32Array;
  /** Replays the golden input of the file. */
  verify(): { same: boolean; difference: number };
  /** Ends the threads; the network cannot be run any more. */
  close(): void;
}

/** Whether WebAssembly has vectors here, and relaxed ones. */
export declare function hasSimd(): boolean;
export declare function hasRelaxedSimd(): boolean;
/** Whether threads may share memory: in node, and in a page that is cross-origin isolated. */
export declare function hasThreads(): boolean;
