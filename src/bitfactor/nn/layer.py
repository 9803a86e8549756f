"""What binary convolutions and linear layers have in common."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from bitfactor.decompositions import Latent
from bitfactor.errors import InputError
from bitfactor.nn.activation import SignActivation
from bitfactor.nn.scale import NoScale, Scale, analytic_alpha
from bitfactor.nn.sign import WEIGHT_SIGNS

PaddingValue = Literal[-1, 0, 1]


class BinaryLayer(nn.Module, ABC):
    """I * W = (sign(I) (*) sign(W)) alpha + bias (equation 2): the interface of the binary layers.

    A layer asks its latent for W, signs it, applies it to the sign of the input, scales the result. It does
    not know how W is made. Subclasses define `apply_weight`.

    For training in stages, `binary_activations` and `binary_weights` can be turned off. Real weights are
    used as W / mean abs(W) per filter, so that alpha means the same before and after they turn binary.

    Attributes
    ----------
    name
        The layer's name in its model, for messages.
    made_as
        The choices that a conversion made for it, so that a second one can tell what differs.
    """

    made_as: tuple[object, ...] = ()
    bias: nn.Parameter | None

    def __init__(self, latent: Latent, scale: Scale | None = None, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.latent = latent
        self.scale = NoScale() if scale is None else scale
        self.sign_input = SignActivation()
        self.register_parameter("bias", bias)
        self.weight_estimator = "masked"
        self.binary_activations = True
        self.binary_weights = True
        self.name = type(self).__name__

    def binary_weight(self) -> Tensor:
        """Return sign(W) in {-1, +1}, shaped as W; its gradient is the estimator's."""
        return WEIGHT_SIGNS[self.weight_estimator](self._weight())

    def alpha(self) -> Tensor:
        """Return the scale, (O,): ones without one, the mean over positions of a scale per position."""
        alpha: Tensor = self.scale.alpha_of(self.latent())
        return alpha

    @abstractmethod
    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        """Return the convolution or product of the signed input with the signed weight."""

    def forward(self, x: Tensor) -> Tensor:
        W = self._weight()
        if self.binary_activations:
            self._expect_numbers(x, "input")
            x = self.sign_input(x)
        B = WEIGHT_SIGNS[self.weight_estimator](W) if self.binary_weights else self._unit_weight(W)
        y: Tensor = self.scale(self.apply_weight(x, B.to(x.dtype)), W)
        return y if self.bias is None else y + self._bias(y, W)

    def _weight(self) -> Tensor:
        W: Tensor = self.latent()
        self._expect_numbers(W, "latent weight")
        return W

    def _unit_weight(self, W: Tensor) -> Tensor:
        mean = analytic_alpha(W).clamp_min(torch.finfo(W.dtype).tiny)
        return W / mean.view(-1, *(1,) * (W.dim() - 1))

    def _bias(self, y: Tensor, W: Tensor) -> Tensor:
        assert self.bias is not None
        return self.bias.to(y.dtype).view(-1, *(1,) * (W.dim() - 2))

    def _expect_numbers(self, x: Tensor, what: str) -> None:
        # As costly as the layer itself, so only with torch.autograd.set_detect_anomaly(True).
        if torch.compiler.is_compiling() or not torch.is_anomaly_enabled() or not x.isnan().any():
            return
        raise InputError(
            f"layer {self.name}",
            expected=f"numbers in its {what}",
            found=f"{int(x.isnan().sum())} NaN of {x.numel()}",
            fix="lower the learning rate, or look for the layer before it that made them",
        )
