"""Binary linear layer."""

from typing import Self

import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions import ALONE, Latent, LatentLike, Rank
from bitfactor.nn.layer import BinaryLayer, Making, float_layer
from bitfactor.nn.product import Masks, binary_conv2d
from bitfactor.nn.scale import Scale, ScaleLike, feature_magnitude
from bitfactor.nn.sign import EstimatorLike
from bitfactor.nn.transform import TransformLike


class BinaryLinear(BinaryLayer):
    """(..., F) -> (..., O), weight (O, F); arguments as of `torch.nn.Linear`, and those of `BinaryConv2d`.

    Example
    -------
    >>> BinaryLinear(64, 10, latent="svd")(torch.randn(2, 64)).shape
    torch.Size([2, 10])
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        latent: LatentLike = ALONE,
        scale: ScaleLike = "learned",
        rank: Rank = None,
        weight_estimator: EstimatorLike = "clipped",
        activation_estimator: EstimatorLike = "clipped",
        weight_transform: TransformLike = "none",
        input_scale: bool = False,
    ) -> None:
        estimators = weight_estimator, activation_estimator
        making = Making(latent, scale, rank, *estimators, weight_transform, input_scale)
        like = float_layer(nn.Linear, in_features, out_features, bias)
        nn.init.kaiming_normal_(like.weight)
        self._make(like.weight, like.bias, making)
        self.out_features, self.in_features = out_features, in_features

    @classmethod
    def of(cls, latent: Latent, scale: Scale | None = None, *, bias: nn.Parameter | None = None) -> Self:
        """Return the layer of a latent (O, F), a scale and a bias that are there already."""
        layer = cls.__new__(cls)
        layer._assemble(latent, scale, bias)
        layer.out_features, layer.in_features = latent.shape
        return layer

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        return F.linear(x, B)

    def multiply(self, x: Tensor, V: Tensor, alpha: Tensor | None, masks: Masks) -> Tensor | None:
        """As a convolution by one tap over a map of all rows, whose channels are the features."""
        if x.shape[-1] != self.in_features:
            return None
        rows = x.reshape(-1, self.in_features)
        maps = rows.t()[None, :, :, None]
        y = binary_conv2d(maps, V[:, :, None, None], alpha, masks)
        return y[0, :, :, 0].t().reshape(*x.shape[:-1], self.out_features)

    def magnitude(self, x: Tensor) -> Tensor:
        return feature_magnitude(x, self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
