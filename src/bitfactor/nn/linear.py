"""Binary linear layer."""

import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.decompositions import Latent
from bitfactor.nn.layer import BinaryLayer
from bitfactor.nn.scale import Scale


class BinaryLinear(BinaryLayer):
    """(..., F) -> (..., O), weight (O, F).

    Example
    -------
    >>> layer = BinaryLinear(SVD.from_weight(torch.randn(10, 64)), AnalyticScale())
    >>> layer(torch.randn(2, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, latent: Latent, scale: Scale | None = None, *, bias: nn.Parameter | None = None
    ) -> None:
        super().__init__(latent, scale, bias)
        self.out_features, self.in_features = latent.shape

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        return F.linear(x, B)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
