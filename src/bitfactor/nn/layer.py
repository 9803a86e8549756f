"""What binary convolutions and linear layers have in common."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from bitfactor.common.checks import expect, expect_one_of
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE, Dense, Latent, Rank
from bitfactor.decompositions.bank import Bank, BankSlice
from bitfactor.decompositions.shared import Shared
from bitfactor.nn.model import watch_optimizers
from bitfactor.nn.product import Masks, takes
from bitfactor.nn.scale import (
    PER_CHANNEL,
    AnalyticScale,
    LearnedScale,
    NoScale,
    Scale,
    analytic_alpha,
)
from bitfactor.nn.sign import WEIGHT_FORMS, WEIGHT_SIGNS, SignActivation

PaddingValue = Literal[-1, 0, 1]

_IN_THE_PRODUCT = (NoScale, AnalyticScale, LearnedScale)
_CALLED = ("forward", "sloped", "alpha_of")


def _is_as_written(module: nn.Module, kinds: Sequence[type[nn.Module]]) -> bool:
    """Return whether a module is of one of these very classes, and nobody hooked it or changed its methods.

    Only then does the compiled core compute what a call of it does.
    """
    return (
        type(module) in kinds
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        and not _has_any_global_hook()  # type: ignore[no-untyped-call]
        and not any(name in vars(module) for name in _CALLED)
    )


@dataclass(frozen=True)
class Making:
    """How a layer that is made by hand comes to its weight: as `Binarization`, for this layer alone."""

    latent: str = "tucker"
    scale: str = "learned"
    rank: Rank = None
    weight_estimator: str = "clipped"
    activation_estimator: str = "clipped"
    input_scale: bool = False

    def __post_init__(self) -> None:
        if self.latent in JOINT:
            raise InputError(
                f"latent {self.latent!r}",
                expected="a decomposition of one layer",
                found="one of several together",
                fix="call bitfactor.binarize_ on the model",
            )
        expect_one_of("latent", self.latent, LAYERWISE)
        expect_one_of("scale", self.scale, PER_CHANNEL)
        expect_one_of("weight_estimator", self.weight_estimator, WEIGHT_SIGNS)


def float_layer(kind: Callable[..., nn.Module], *sizes: Any) -> Any:
    """Return torch's own layer of these sizes; what it says of others is an InputError."""
    try:
        return kind(*sizes)
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        found = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"Binary{getattr(kind, '__name__', 'layer')}",
            expected="sizes of 1 or more that fit",
            found=found,
            fix="change them",
        ) from error


class BinaryLayer(nn.Module, ABC):
    """I * W = (sign(I) (*) sign(W)) alpha + bias (equation 2): the interface of the binary layers.

    With `input_scale` the product is also multiplied by K, the magnitude of the input, as in XNOR-Net.

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
    groups: int = 1
    bias: nn.Parameter | None
    _multiplies: bool = False

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        own: Mapping[str, Any] = next(
            (vars(kind) for kind in cls.__mro__ if "apply_weight" in vars(kind)), {}
        )
        cls._multiplies = "multiply" in own or "multiply" in vars(cls)

    def _assemble(self, latent: Latent, scale: Scale | None, bias: nn.Parameter | None) -> None:
        super().__init__()
        expect(f"{type(self).__name__}(latent)", latent, Latent)
        self.latent = latent
        self.scale = NoScale() if scale is None else scale
        self.sign_input = SignActivation()
        self.register_parameter("bias", bias)
        self.weight_estimator = "clipped"
        self.input_scale = False
        self.binary_activations = True
        self.binary_weights = True
        self.name = type(self).__name__

    @property
    def weight(self) -> Tensor:
        """The real-valued W, shaped as a float layer's weight, to read: a fresh tensor at each call.

        Code that asks a layer for its weight's shape, type or device works. What changes it in place, as
        initialisers do, or learns through it gets torch's error on inference tensors: the parameters are
        those of `latent`.
        """
        if torch.compiler.is_compiling():
            return self.latent().detach()  # type: ignore[no-any-return]
        with torch.inference_mode():
            return self.latent().clone()  # type: ignore[no-any-return]

    def binary_weight(self) -> Tensor:
        """Return sign(W) in {-1, +1}, shaped as W; its gradient is the estimator's."""
        return self.of_filters(WEIGHT_SIGNS[self.weight_estimator](self._filters()), self.groups)

    def unit_weight(self) -> Tensor:
        """Return W / mean abs(W) per filter, which a layer of real weights computes with, shaped as W."""
        return self.of_filters(self._unit_weight(self._filters()), self.groups)

    def alpha(self) -> Tensor:
        """Return the scale, (O,): ones without one, the mean over positions of a scale per position."""
        alpha: Tensor = self.scale.alpha_of(self.filters(self.latent(), self.groups))
        return alpha

    @staticmethod
    def filters(W: Tensor, groups: int = 1) -> Tensor:
        """Return a weight as filters, one for each output channel: (O, ...). Most weights are that."""
        return W

    @staticmethod
    def of_filters(V: Tensor, groups: int = 1) -> Tensor:
        """Return filters as the weight that they are of."""
        return V

    @abstractmethod
    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        """Return the convolution or product of the signed input with the signed filters."""

    def multiply(self, x: Tensor, V: Tensor, alpha: Tensor | None, masks: Masks) -> Tensor | None:
        """Return alpha times `apply_weight` of the signs of x and V, in one (see `bitfactor.nn.product`).

        None where the layer is none that the compiled core computes.
        """
        return None

    @abstractmethod
    def magnitude(self, x: Tensor) -> Tensor:
        """Return XNOR-Net's K of an input, shaped as the output."""

    def _make(
        self, weight: Tensor, bias: nn.Parameter | None, making: Making, filters: Tensor | None = None
    ) -> None:
        """Assemble a layer around a first weight, as `making` says; its filters, where they are no others."""
        latent = LAYERWISE[making.latent](weight, making.rank, "factorised")
        self._assemble(latent, PER_CHANNEL[making.scale](weight if filters is None else filters), bias)
        self.weight_estimator = making.weight_estimator
        self.sign_input = SignActivation(making.activation_estimator)
        self.input_scale = making.input_scale

    def forward(self, x: Tensor) -> Tensor:
        W, K = self._filters(), None
        if self.binary_activations:
            self._expect_no_nan(x, "input")
            K = self.magnitude(x) if self.input_scale else None
        y = self._compiled(x, W)
        if y is None:
            x = self.sign_input(x) if self.binary_activations else x
            B = WEIGHT_SIGNS[self.weight_estimator](W) if self.binary_weights else self._unit_weight(W)
            y = self.scale(self.apply_weight(x, B.to(x.dtype)), W)
        y = y if K is None else y * K
        return y if self.bias is None else y + self._bias(y, W)

    def _compiled(self, x: Tensor, W: Tensor) -> Tensor | None:
        """Return alpha times the product as the compiled core gives it, None where it does not take them."""
        form = WEIGHT_FORMS.get(self.weight_estimator)
        if form is None or not (self.binary_activations and self.binary_weights) or not takes(x, W):
            return None
        sign, scale = self.sign_input, self.scale
        own = self._multiplies and "apply_weight" not in vars(self)
        if not own or not _is_as_written(sign, (SignActivation,)):
            return None
        scales = _is_as_written(scale, _IN_THE_PRODUCT)
        alpha = scale.alpha_of(W) if scales else None
        masks = Masks(sign.estimator == "clipped", self.weight_estimator == "clipped")
        y = self.multiply(x if masks.input else sign.sloped(x), form(W), alpha, masks)
        return y if scales or y is None else scale(y, W)

    def _filters(self) -> Tensor:
        W: Tensor = self.latent()
        self._expect_no_nan(W, "latent weight")
        return self.filters(W, self.groups)

    def _unit_weight(self, W: Tensor) -> Tensor:
        mean = analytic_alpha(W).clamp_min(torch.finfo(W.dtype).tiny)
        return W / mean.view(-1, *(1,) * (W.dim() - 1))

    def _bias(self, y: Tensor, W: Tensor) -> Tensor:
        assert self.bias is not None
        return self.bias.to(y.dtype).view(-1, *(1,) * (W.dim() - 2))

    def _expect_no_nan(self, x: Tensor, what: str) -> None:
        # The sign of NaN is NaN, which the loss shows; which layer it is, only anomaly detection tells.
        if torch.compiler.is_compiling() or not torch.is_anomaly_enabled() or not x.isnan().any():
            return
        raise InputError(
            f"layer {self.name}",
            expected=f"no NaN in its {what}",
            found=f"{int(x.isnan().sum())} of {x.numel()} values",
            fix="lower the learning rate, or look for the layer before it that made them",
        )


@torch.no_grad()
def merge_(model: nn.Module) -> nn.Module:
    """Replace the latent of every binary layer by the free weight that it gives, and return the model.

    The network computes what it did: sign(core x_1 U_1 x_2 ...) = sign(W). Its steps are other ones from then
    on, of W itself, and cost what those of latent "none" cost. Alphas stay. Make the optimizer afterwards:
    one that was made before raises InputError when it steps.

    Example
    -------
    >>> merge_(model)
    >>> optimizer = torch.optim.Adam(bitfactor.parameter_groups(model))
    """
    expect("merge_", model, nn.Module)
    layers = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    gone = _of_these_alone([layer.latent for layer in layers])
    for layer in layers:
        learns = any(parameter.requires_grad for parameter in layer.latent.parameters())
        layer.latent = Dense.from_weight(layer.latent()).requires_grad_(learns)
        layer.made_as = (None, *layer.made_as[1:])
    watch_optimizers(gone)
    return model


def _of_these_alone(latents: Sequence[Latent]) -> list[nn.Parameter]:
    """Return the parameters that no other latent has: those of a bank if all of its layers are here."""
    modules = {id(module): module for latent in latents for module in latent.modules()}.values()
    places = Counter(id(latent.bank) for latent in latents if isinstance(latent, BankSlice))
    held = [
        module
        for module in modules
        if isinstance(module, Shared)
        and not (isinstance(module, Bank) and places[id(module)] == prod(module.grid))
    ]
    shared = {id(parameter) for module in held for parameter in module.parameters()}
    own = {id(p): p for latent in latents if not isinstance(latent, Dense) for p in latent.parameters()}
    return [parameter for key, parameter in own.items() if key not in shared]
