"""Images and keypoints in numpy and OpenCV: decode, crop, heatmaps, skeletons, scores, drawing."""

from bitfactor.pose.crop import adjusted_mpii_box, crop_matrix, invert, mpii_box, transform, warp
from bitfactor.pose.heatmap import decode, encode, flip_maps
from bitfactor.pose.skeletons import COCO, LSP, MPII, SKELETONS, read_skeleton

__all__ = [
    "COCO",
    "LSP",
    "MPII",
    "SKELETONS",
    "adjusted_mpii_box",
    "crop_matrix",
    "decode",
    "encode",
    "flip_maps",
    "invert",
    "mpii_box",
    "read_skeleton",
    "transform",
    "warp",
]
