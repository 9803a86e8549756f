"""A value that takes few values: one below a threshold, one at it, one above; and layers of such values.

Signs, comparisons and quantisers of one bit are such, and so is what is computed from one and constants.
Where it takes two values it is a binary activation, whatever they are. A convolution or product by constants
is binary where both sides have two values, else real-valued. Last come the operators of QONNX, Brevitas and
FINN that have a value of few bits, for ONNX's reference evaluator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun
from torch import Tensor

from bitfactor.common.errors import InputError
from bitfactor.exporter.adoption import TwoValued, two_valued
from bitfactor.exporter.builder import Builder
from bitfactor.exporter.fold import Levels
from bitfactor.exporter.operators import convolutions, shapes
from bitfactor.exporter.operators.functions import above, add, at_least, mul, sign, sub, where
from bitfactor.exporter.view import View


@dataclass(frozen=True)
class Steps:
    """`below` where source < threshold, `at` where they are the same, `above` beyond; all broadcast.

    `pads` has those before and behind each axis, filled with `pad_value`. `note_third` is called where a
    third value between two counts as the lower.
    """

    source: View
    threshold: Tensor
    below: Tensor
    at: Tensor
    above: Tensor
    pads: tuple[tuple[int, int], ...] = ()
    pad_value: float = 0.0
    note_third: Callable[[], object] = field(default=lambda: None, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether nothing depends on the place, so that moving the source moves the value."""
        return all(x.numel() == 1 for x in (self.threshold, self.below, self.at, self.above))

    @property
    def sides(self) -> list[int]:
        """The pads as torch.nn.functional.pad has them, last axis first; none where all are 0."""
        return [n for pair in reversed(self.pads) for n in pair] if any(map(any, self.pads)) else []

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Steps":
        """Return what a function of each number by itself makes of the value."""
        return replace(self, below=function(self.below), at=function(self.at), above=function(self.above))

    def rises_evenly(self) -> bool:
        """Whether the largest of several is the value of the largest source, channel by channel."""
        rises = bool(
            (self.above.float() >= self.at.float()).all() and (self.at.float() >= self.below.float()).all()
        )
        return rises and all(
            all(length == 1 for length in x.shape[2:])
            for x in (self.threshold, self.below, self.at, self.above)
        )


@dataclass(frozen=True)
class Signs(Levels):
    """low + (high - low) (1 + s) / 2, where s is the sign of `signed`, times -1 where it is `flipped`."""

    signed: View
    flipped: bool

    def sign_of(self, value: float) -> int | None:
        """Return the s, 0 included, that stands for a padded value; None where there is none."""
        s = (value - self.middle) / self.half
        return int(s) if s in (-1.0, 0.0, 1.0) else None


def signs_of(b: Builder, steps: Steps) -> Signs | None:
    """Return a value of two values as signs; None where it has more, or others in each place.

    The 0 of ONNX's Sign, between its two values, counts as the lower: the reader says so, or refuses it.
    """
    below, at, high = (np.unique(x.float().numpy()) for x in (steps.below, steps.at, steps.above))
    if (
        max(map(len, (below, at, high))) > 1
        or below[0] == high[0]
        or at[0] not in (below[0], high[0], (below[0] + high[0]) / 2)
    ):
        return None
    strict = at[0] != high[0]
    if at[0] not in (below[0], high[0]):
        steps.note_third()
    source, t = steps.source, steps.threshold.float()
    if strict:
        return Signs(float(below[0]), float(high[0]), _shifted(b, source, 1.0, -t), False)
    return Signs(float(below[0]), float(high[0]), _shifted(b, source, -1.0, t), True)


def _shifted(b: Builder, x: View, factor: float, shift: Tensor) -> View:
    """Return factor x + shift, which a threshold takes in; the difference of two floats has their order."""
    if factor == 1 and not bool(shift.any()):
        return x
    x, shifts = b.constant(b.real(x), shift)
    return b.alike("affine", x, scale=np.full(len(shifts), factor, np.float32), shift=shifts)


def real(b: Builder, value: "View | Tensor | Steps") -> View | Tensor:
    """Return a value as real numbers."""
    if not isinstance(value, Steps):
        return value
    below, at, high = value.below.float(), value.at.float(), value.above.float()
    x, t = value.source, value.threshold.float()
    if torch.equal(at, below):
        return where(b, above(b, x, t), high, below)
    if torch.equal(at, high):
        return where(b, at_least(b, x, t), high, below)
    middle = (high + below) / 2
    s = sign(b, sub(b, x, t))
    if torch.equal(at, middle):
        return add(b, mul(b, s, high - middle), middle)
    return where(b, above(b, x, t), high, where(b, at_least(b, x, t), at, below))


_FEW = 4  # values of a filter: of one bit it has two, of two bits four
_ENOUGH = 9  # weights in a filter, of which real numbers are all different


def binary_weight(weight: Tensor) -> TwoValued | None:
    """Return a weight whose filters each hold -a and +a alone, or None."""
    form = two_valued(weight.float())
    return None if form is None or bool(form.centre.any()) else form


def expect_one_bit_or_real(b: Builder, weight: Tensor, groups: int) -> None:
    """Raise InputError for weights of three or four values, which are neither."""
    filters = weight.float().flatten(1)
    if filters.shape[1] < _ENOUGH or weight.shape[1] == 1 < groups or binary_weight(weight) is not None:
        return
    values = [row.unique() for row in filters]
    counts = [len(one) if torch.equal(one, -one.flip(0)) else 1 for one in values]  # a blur has no negative
    if 2 < max(counts) <= _FEW:
        raise b.refused(
            "weights of 1 bit, or real numbers",
            f"{max(counts)} different weights in a filter: ternary, or of 2 bits",
            "train the network with binary weights",
        )


@dataclass(frozen=True)
class ConvGeometry:
    """Where a convolution looks; `pads` has those before each side, then those behind."""

    stride: list[int]
    pads: list[int]
    dilation: list[int]
    groups: int

    @classmethod
    def of(cls, x: "View | Steps", kernel: Sequence[int], attributes: Mapping[str, Any]) -> Self:
        """Return how a window of this size goes over a value, as the attributes of a node say."""
        count, how = len(kernel), attributes.get("auto_pad", "NOTSET")
        stride, dilation = (list(attributes.get(name) or [1] * count) for name in ("strides", "dilations"))
        pads = list(attributes.get("pads") or [0] * 2 * count) if how == "NOTSET" else [0] * 2 * count
        if how not in ("NOTSET", "VALID"):
            shape = x.source.shape if isinstance(x, Steps) else x.shape
            total = [
                max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
                for n, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True)
            ]
            less, more = [n // 2 for n in total], [n - n // 2 for n in total]
            pads = [*less, *more] if how == "SAME_UPPER" else [*more, *less]
        return cls(stride, pads, dilation, attributes.get("group", 1))

    @property
    def near(self) -> list[int]:
        return self.pads[: len(self.stride)]

    @property
    def far(self) -> list[int]:
        return self.pads[len(self.stride) :]

    @property
    def sides(self) -> list[int]:
        """The padding as torch.nn.functional.pad has it, last dimension first."""
        return [n for pair in reversed([*zip(self.near, self.far, strict=True)]) for n in pair]


def conv(b: Builder, x: View | Steps, weight: Tensor, bias: Tensor | None, window: ConvGeometry) -> View:
    """Lower a convolution by a constant."""
    binary = binary_weight(weight)
    expect_one_bit_or_real(b, weight, window.groups)
    if isinstance(x, Steps) and binary is not None and x.source.shape[0] == b.batch.length:
        found = _binary_conv(b, x, binary, bias, window)
        if found is not None:
            return found
    geometry = window.near, window.far, window.groups, window.stride, window.dilation
    return convolutions.conv_sided(b, padded(b, x), _exact(weight, binary), bias, *geometry)


def _exact(weight: Tensor, binary: TwoValued | None) -> Tensor:
    """Return a weight of two values without what rounding left between them: it is bits in the file."""
    return weight if binary is None else binary.exact()


def _binary_conv(
    b: Builder, x: Steps, weight: TwoValued, bias: Tensor | None, window: ConvGeometry
) -> View | None:
    given, pad_value, sides = signs_of(b, x), 0, window.sides
    if given is None or (x.sides and (any(sides) or any(map(any, x.pads[:2])))):
        return None
    sides = x.sides[: len(sides)] or sides
    if any(sides):
        value = given.sign_of(x.pad_value if x.sides else 0.0)
        if value is None:
            return None
        pad_value = -value if given.flipped else value
    signs = -weight.signs if given.flipped else weight.signs
    volume = weight.signs.dim() == 5
    convolve = convolutions.binary_conv3d if volume else convolutions.binary_conv
    y = convolve(b, given.signed, signs, window.stride, sides, window.dilation, window.groups, pad_value)
    return scaled(b, y, given, weight, bias)


def scaled(b: Builder, y: View, given: Signs, weight: TwoValued, bias: Tensor | None, dim: int = 1) -> View:
    """Return the sums of signs as those of the values that they stand for."""
    factor = given.half * weight.alpha
    shift = given.middle * weight.alpha * weight.signs.flatten(1).sum(1)
    shift = shift if bias is None else shift + bias
    over = [1] * (len(y.dims) - 1 - dim % len(y.dims))
    if bool((factor != 1).any()):
        y = mul(b, y, factor.view(-1, *over))
    return add(b, y, shift.view(-1, *over)) if bool((shift != 0).any()) else y


def padded(b: Builder, x: "View | Steps | Tensor") -> Any:
    """Return a value as real numbers, with its padding."""
    y: Any = real(b, x)
    if isinstance(x, Steps) and x.sides:
        return shapes.pad(b, y, x.sides, value=x.pad_value)
    return y


def linear(b: Builder, x: View | Steps, weight: Tensor, bias: Tensor | None = None) -> View:
    """Lower x (..., F) times weight (O, F)."""
    binary = binary_weight(weight)
    expect_one_bit_or_real(b, weight, 1)
    if isinstance(x, Steps) and binary is not None and not x.sides:
        given = signs_of(b, x)
        if given is not None:
            signs = -binary.signs if given.flipped else binary.signs
            return scaled(b, convolutions.binary_linear(b, given.signed, signs), given, binary, bias, -1)
    return convolutions.linear(b, padded(b, x), _exact(weight, binary), bias)


def expect_constant(b: Builder, value: object, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise b.refused(f"{what} that is a constant", "one that depends on the input", "leave it out")
    return value


def refused_bits(b: Builder, bits: float) -> InputError:
    """Return the error for a quantiser of 2 to 7 bits."""
    return b.refused(
        "values of 1 bit, of 8 or more, or real numbers",
        f"a quantiser of {bits:g} bits",
        "train the network with binary weights and inputs",
    )


Array = NDArray[Any]

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "finn")


def bipolar_quant(x: Array, scale: Array) -> Array:
    """Return scale where x >= 0, else -scale."""
    return np.where(x >= 0, scale, -scale).astype(np.float32)


def quant(
    x: Array, scale: Array, zero: Array, bits: Array, *, signed: int = 1, narrow: int = 0, **_: Any
) -> Array:
    """Return the nearest of 2^bits steps, a half to the even one."""
    count = 2.0 ** float(np.ravel(bits)[0])
    lower, upper = (-count / 2 + narrow, count / 2 - 1) if signed else (0.0, count - 1 - narrow)
    steps = np.round(np.clip(x / scale + zero, lower, upper))
    return np.asarray((steps - zero) * scale, np.float32)


def multi_threshold(
    x: Array,
    thresholds: Array,
    *,
    out_scale: float | None = None,
    out_bias: float | None = None,
    data_layout: str = "NCHW",
    **_: Any,
) -> Array:
    """Return how many thresholds (C, T) a value reaches, times the scale, plus the bias."""
    axis = data_layout.index("C") if x.ndim == len(data_layout) else 1
    reached = [x >= over_axis(thresholds[:, i], x.ndim, axis) for i in range(thresholds.shape[1])]
    scale, bias = 1.0 if out_scale is None else out_scale, 0.0 if out_bias is None else out_bias
    return np.asarray(np.sum(reached, axis=0) * scale + bias, np.float32)


def over_axis(values: Array, dimensions: int, axis: int) -> Array:
    """Return values (C,), or one for all, so that they broadcast over that axis."""
    shape = [1] * dimensions
    shape[axis] = -1
    return values.reshape(shape)


_COMPUTE = {"BipolarQuant": bipolar_quant, "Quant": quant, "MultiThreshold": multi_threshold}


def _operator(domain: str, name: str) -> type[OpRun]:
    compute = _COMPUTE[name]

    def run(self: OpRun, *inputs: Array, **attributes: Any) -> tuple[Array]:
        return (compute(*inputs, **attributes_of(self.onnx_node)),)  # type: ignore[operator]

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


OPERATORS = [_operator(domain, name) for domain in DOMAINS for name in _COMPUTE]
