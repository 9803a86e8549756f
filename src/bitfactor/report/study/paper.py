"""The paper's own figures, in percent: tables 1 (MPII), 2 (ImageNet), 3 and 4 (the real-valued networks)."""

from bitfactor.report.study.directory import REAL, Row

MPII: dict[Row, float] = {
    ("none", "analytic"): 78.4,
    ("none", "learned"): 79.3,
    ("svd", "analytic"): 78.7,
    ("svd", "learned"): 79.0,
    ("tucker", "analytic"): 79.3,
    ("tucker", "learned"): 79.9,
    ("holistic", "analytic"): 82.0,
    ("holistic", "learned"): 82.5,
    REAL: 85.8,
}
"""PCKh on the validation set of MPII, an hourglass."""

IMAGENET: dict[Row, tuple[float, float]] = {
    ("none", "analytic"): (52.3, 74.1),
    ("none", "learned"): (53.0, 74.7),
    ("svd", "learned"): (52.5, 74.2),
    ("tucker", "analytic"): (54.0, 76.9),
    ("tucker", "learned"): (54.7, 77.4),
    ("holistic", "analytic"): (55.2, 78.2),
    ("holistic", "learned"): (55.6, 78.5),
    REAL: (69.3, 89.2),
}
"""Top-1 and top-5 accuracy on ImageNet, ResNet-18."""


def mpii_difference(ours: Row, theirs: Row) -> float | None:
    """Return how many points of PCKh the paper has between two rows, None where it lacks one."""
    return MPII[ours] - MPII[theirs] if {ours, theirs} <= MPII.keys() else None


def imagenet_difference(ours: Row, theirs: Row) -> float | None:
    """Return how many points of top-1 accuracy the paper has between two rows, None where it lacks one."""
    return IMAGENET[ours][0] - IMAGENET[theirs][0] if {ours, theirs} <= IMAGENET.keys() else None
