"""What binary convolutions and linear layers have in common."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bitfactor.common.checks import checked, expect
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE, Dense, Latent, Rank, latent_name
from bitfactor.decompositions.compiled import is_followed
from bitfactor.decompositions.shared import Bank, BankSlice, Shared
from bitfactor.nn.model import is_watched, watch_optimizers
from bitfactor.nn.product import Masks, takes
from bitfactor.nn.scale import PER_CHANNEL, NoScale, Scale, analytic_alpha, scale_name
from bitfactor.nn.sign import EstimatorLike, SignActivation, SignWeight
from bitfactor.nn.transform import WEIGHT_TRANSFORMS, Transform, transform_name

PaddingValue = Literal[-1, 0, 1]
_BY_ALPHA = (Scale.forward, NoScale.forward)


@dataclass(frozen=True)
class Making:
    """How a layer that is made by hand comes to its weight: as `Binarization`, for this layer alone."""

    latent: Any
    scale: Any
    rank: Rank
    weight_estimator: EstimatorLike
    activation_estimator: EstimatorLike
    weight_transform: Any
    input_scale: bool

    def __post_init__(self) -> None:
        if isinstance(self.latent, str) and self.latent in JOINT:
            raise InputError(
                f"latent {self.latent!r}",
                expected="a decomposition of one layer",
                found="one of several together",
                fix="call bitfactor.binarize_ on the model",
            )
        object.__setattr__(self, "latent", latent_name(self.latent, LAYERWISE))
        object.__setattr__(self, "scale", scale_name(self.scale, PER_CHANNEL))
        object.__setattr__(self, "weight_transform", transform_name(self.weight_transform))


_ASSIGNS = ("__set__", "__setitem__", "__delete__")


class MadeWeight(Tensor):
    """A weight that a latent has made: a tensor like any other, that must not be changed in place."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", ""), kwargs or {}
        augments = name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")  # such as +=
        in_place = name in _ASSIGNS or (name.endswith("_") and not name.startswith("__")) or augments
        target = args[:1] or given.get("tensor")  # as functions of torch.nn.init pass it on
        changed = tree_leaves([given.get("out"), target if in_place else ()])
        if any(isinstance(one, cls) for one in changed):
            raise _no_weight(name)
        result = super().__torch_function__(func, types, args, given)  # type: ignore[no-untyped-call]
        return _still(result, args[0] if args else None)


def _still(result: Any, source: object) -> Any:
    """Return a result as a weight that was made if it is a view of one, else as a plain tensor."""
    if type(result) is not MadeWeight:
        return result
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(source, MadeWeight) and result.data_ptr() == source.data_ptr():
            return result
        return result.as_subclass(Tensor)


def _no_weight(change: str) -> InputError:
    return InputError(
        "layer.weight",
        expected="to be read: layer.latent() makes it from the latent's parameters",
        found=f"a change ({change}), which the next call would not see",
        fix="change layer.latent.parameters(), or take latent='none'",
    )


def _no_graph(by: str) -> InputError:
    return InputError(
        by,
        expected="no binary layer, as it reads code and not what is computed",
        found="one",
        fix="take torch.export.export, torch.jit.trace or torch.compile, or make the layer a leaf",
    )


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

    def _assemble(self, latent: Latent, scale: Scale | None, bias: nn.Parameter | None) -> None:
        super().__init__()
        expect(f"{type(self).__name__}(latent)", latent, Latent)
        self.latent = latent
        self.scale = NoScale() if scale is None else scale
        self.sign_input = SignActivation()
        self.sign_weight = SignWeight()
        self.weight_transform: Transform | None = None
        self.register_parameter("bias", bias)
        self.input_scale = False
        self.binary_activations = True
        self.binary_weights = True
        self.name = type(self).__name__

    @classmethod
    def of(
        cls, latent: Latent, scale: Scale | None = None, *, bias: nn.Parameter | None = None, **geometry: Any
    ) -> Self:
        """Return the layer of a latent, a scale and a bias that are there already.

        Parameters
        ----------
        geometry
            Of a convolution: stride, padding, dilation, groups and what else the class takes.

        Example
        -------
        >>> BinaryConv2d.of(Tucker.from_weight(torch.randn(16, 8, 3, 3)), AnalyticScale(), padding=1)
        """
        layer = cls.__new__(cls)
        layer._assemble(latent, scale, bias)
        layer._set_geometry(**geometry)
        return layer

    def _set_geometry(self, *args: Any, **geometry: Any) -> None:
        """Note the sizes that the latent's shape tells, and how the weight is applied."""

    @property
    def weight(self) -> Tensor:
        """The real-valued W, shaped as a float layer's weight. Gradients pass through it to the latent.

        Of a free weight (latent "none") it is the parameter itself. Of a decomposition it is a fresh tensor
        at each call: to change it in place would change nothing, so that raises InputError.
        """
        if torch.compiler.is_compiling():
            return self.latent()  # type: ignore[no-any-return]
        if isinstance(self.latent, Dense) and self.latent.weight.dtype in (torch.float32, torch.float64):
            return self.latent.weight
        return self.latent().as_subclass(MadeWeight)  # type: ignore[no-any-return]

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As of `torch.nn.Module`; a new `weight` is that of the latent, where this is a free weight."""
        if name == "weight":
            if not isinstance(self.latent, Dense) or param is None or param.shape != self.latent.weight.shape:
                raise _no_weight("a new parameter")
            self.latent.weight = param
            return
        super().register_parameter(name, param)

    def binary_weight(self) -> Tensor:
        """Return sign(W) in {-1, +1}, shaped as W; its gradient is the estimator's."""
        return self.of_filters(self.sign_weight(self.real_filters()), self.groups)

    def unit_weight(self) -> Tensor:
        """Return W / mean abs(W) per filter, which a layer of real weights computes with, shaped as W."""
        return self.of_filters(self._unit_weight(self.real_filters()), self.groups)

    def alpha(self) -> Tensor:
        """Return the scale, (O,): ones without one, the mean over positions of a scale per position."""
        return self.scale.alpha_of(self.real_filters())

    @staticmethod
    def filters(W: Tensor, groups: int = 1) -> Tensor:
        """Return a weight as filters, one for each output channel: (O, ...). Most weights are that."""
        return W

    @staticmethod
    def of_filters(V: Tensor, groups: int = 1) -> Tensor:
        """Return filters as the weight that they are of."""
        return V

    @property
    def weight_estimator(self) -> str:
        """The name of the gradient in place of the weight sign's own."""
        return self.sign_weight.estimator

    @weight_estimator.setter
    def weight_estimator(self, estimator: EstimatorLike) -> None:
        self.sign_weight = SignWeight(estimator).train(self.training)

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

    def set_transform(self, build: Callable[[Tensor], Transform] | None) -> None:
        """Set what is done to the filters before their sign, as `WEIGHT_TRANSFORMS` has it."""
        if build is None:
            self.weight_transform = None
            return
        with torch.no_grad():
            transform = build(self.first_filters())
        self.weight_transform = (
            transform.train(self.training) if isinstance(transform, nn.Module) else transform
        )

    def _make(self, weight: Tensor, bias: nn.Parameter | None, making: Making, groups: int = 1) -> None:
        """Assemble a layer around a first weight, as `making` says."""
        self._assemble(LAYERWISE[making.latent](weight, making.rank, "factorised"), None, bias)
        self.groups = groups
        self.set_transform(WEIGHT_TRANSFORMS[making.weight_transform])
        self.scale = PER_CHANNEL[making.scale](self.first_filters().detach())
        self.sign_weight = SignWeight(making.weight_estimator)
        self.sign_input = SignActivation(making.activation_estimator)
        self.input_scale = making.input_scale

    def __prepare_scriptable__(self) -> Any:
        raise _no_graph("torch.jit.script")

    def forward(self, input: Tensor) -> Tensor:
        x = input  # torch's name, for models that call by it
        if isinstance(x, torch.fx.Proxy):  # type: ignore[unreachable]
            raise _no_graph("torch.fx.symbolic_trace")
        W, K = self.real_filters(), None
        if self.binary_activations:
            self._expect_no_nan(x, "input")
            K = self.magnitude(x) if self.input_scale else None
        y = self._compiled(x, W)
        if y is None:
            x = self.sign_input(x) if self.binary_activations else x
            B = self.sign_weight(W) if self.binary_weights else self._unit_weight(W)
            y = self.scale(self.apply_weight(x, B.to(x.dtype)), W)
        y = y if K is None else y * K
        return y if self.bias is None else y + self._bias(y, W)

    def _compiled(self, x: Tensor, W: Tensor) -> Tensor | None:
        """Return alpha times the product as the compiled core gives it, None where it does not take them."""
        if not (self.binary_activations and self.binary_weights and takes(x, W) and self._is_as_known()):
            return None
        masks = Masks(self.sign_input.clips, self.sign_weight.clips)
        x = x if masks.input else self.sign_input.sloped(x)
        V = W if masks.weight else self.sign_weight.sloped(W)
        scales = type(self.scale).forward in _BY_ALPHA and not is_watched(self.scale)
        y = self.multiply(x, V, self.scale.alpha_of(W) if scales else None, masks)
        return y if scales or y is None else self.scale(y, W)

    def _is_as_known(self) -> bool:
        """Whether what the layer is made of computes what the compiled core takes it to: no hook sees it."""
        if type(self.sign_input) is not SignActivation or type(self.sign_weight) is not SignWeight:
            return False
        if is_watched(self.sign_input) or is_watched(self.sign_weight) or "apply_weight" in vars(self):
            return False
        multiplies: Any = next(kind for kind in type(self).__mro__ if "multiply" in vars(kind))
        return type(self).apply_weight is multiplies.apply_weight

    def real_filters(self) -> Tensor:
        """Return the filters whose sign is taken."""
        W = self.first_filters()
        return W if self.weight_transform is None else self.weight_transform(W)

    def first_filters(self) -> Tensor:
        """Return the filters before they are transformed; the scale that is learned starts from these."""
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
        if is_followed() or not torch.is_anomaly_enabled() or not x.isnan().any():
            return
        raise InputError(
            f"layer {self.name}",
            expected=f"no NaN in its {what}",
            found=f"{int(x.isnan().sum())} of {x.numel()} values",
            fix="lower the learning rate, or look for the layer before it that made them",
        )


@checked
def binary_layers(model: nn.Module) -> dict[str, BinaryLayer]:
    """Return the binary layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BinaryLayer)}


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
    layers = binary_layers(model).values()
    gone = _of_these_alone([layer.latent for layer in layers])
    for layer in layers:
        layer.made_as = (None, *layer.made_as[1:])
        if isinstance(layer.latent, Dense):
            continue
        learns = any(parameter.requires_grad for parameter in layer.latent.parameters())
        layer.latent = Dense.from_weight(layer.latent()).requires_grad_(learns)
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
