"""The paper's own figures, in percent: tables 1 (MPII), 2 (ImageNet), 3 and 4 (the real-valued networks)."""

from bitfactor.study.grid import REAL, Row

MPII: dict[Row, float] = {
    Row("none", "analytic"): 78.4,
    Row("none", "learned"): 79.3,
    Row("svd", "analytic"): 78.7,
    Row("svd", "learned"): 79.0,
    Row("tucker", "analytic"): 79.3,
    Row("tucker", "learned"): 79.9,
    Row("holistic", "analytic"): 82.0,
    Row("holistic", "learned"): 82.5,
    REAL: 85.8,
}
"""PCKh on the validation set of MPII, an hourglass."""

IMAGENET: dict[Row, tuple[float, float]] = {
    Row("none", "analytic"): (52.3, 74.1),
    Row("none", "learned"): (53.0, 74.7),
    Row("svd", "learned"): (52.5, 74.2),
    Row("tucker", "analytic"): (54.0, 76.9),
    Row("tucker", "learned"): (54.7, 77.4),
    Row("holistic", "analytic"): (55.2, 78.2),
    Row("holistic", "learned"): (55.6, 78.5),
    REAL: (69.3, 89.2),
}
"""Top-1 and top-5 accuracy on ImageNet, ResNet-18."""


def mpii_difference(ours: Row, theirs: Row) -> float | None:
    """Return how many points of PCKh the paper has between two rows, None where it lacks one."""
    return MPII[ours] - MPII[theirs] if {ours, theirs} <= MPII.keys() else None


def imagenet_difference(ours: Row, theirs: Row) -> float | None:
    """Return how many points of top-1 accuracy the paper has between two rows, None where it lacks one."""
    return IMAGENET[ours][0] - IMAGENET[theirs][0] if {ours, theirs} <= IMAGENET.keys() else None
