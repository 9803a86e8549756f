"""PCKh: percentage of correct keypoints by the size of the head, MPII's measure."""

from bitfactor.format import Skeleton
from bitfactor.metrics.pck import KeypointMetric
from bitfactor.pose import MPII
from bitfactor.pose.pck import Convention, pckh
from bitfactor.pose.scale import MapScale


class PCKh(KeypointMetric):
    """PCKh at 0.5 and 0.1 of the head's size, which is 0.6 times the diagonal of the head's box.

    Example
    -------
    >>> metric = PCKh()
    >>> metric.update(model(inputs), target)
    >>> metric.compute()["pckh"], metric.compute()["pckh_weighted@0.5"]
    (tensor(0.8676, dtype=torch.float64), tensor(0.8730, dtype=torch.float64))
    """

    def __init__(self, skeleton: Skeleton = MPII, stride: int = 4, scale: MapScale = "linear") -> None:
        super().__init__(skeleton, stride, scale)

    @property
    def convention(self) -> Convention:
        """What is counted."""
        return pckh(self.skeleton)
