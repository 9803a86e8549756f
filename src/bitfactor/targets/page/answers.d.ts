/** The probabilities that scores stand for. */
export declare function softmax(scores: Float32Array): number[];

/** The softmax of scores, unless they are probabilities already. */
export declare function probabilities(scores: Float32Array): number[];

/** x and y are fractions of what the network saw. */
export interface Keypoint {
  x: number;
  y: number;
  confidence: number;
}

/** The keypoints of maps (keypoints, height, width), as `bitfactor.pose.decode` finds them. */
export declare function keypoints(
  maps: Float32Array,
  width: number,
  height: number,
  scale?: "linear" | "logits" | "softmax",
): Keypoint[];
