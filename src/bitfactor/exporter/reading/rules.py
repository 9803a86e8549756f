"""What each operator of ONNX is in a graph.

A rule takes the reader, the values of the node's inputs, and its attributes. A value is a `View`, a constant
(`Tensor`), `Steps`, or None where it is left out. What depends on constants alone never comes here.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.operators import attention, convolutions, functions, pooling, shapes
from bitfactor.exporter.reading.steps import (
    ConvGeometry,
    Steps,
    conv,
    expect_constant,
    linear,
    over_axis,
    padded,
    refused_bits,
)
from bitfactor.exporter.view import View

if TYPE_CHECKING:
    from bitfactor.exporter.reading import Reader

Value = Any
_EIGHT = 8  # bits from which on a quantiser is taken for real numbers


def integers(value: Value) -> list[int] | None:
    """Return integers that older opsets have as an attribute and newer ones as an input."""
    return [int(n) for n in value] if value is not None else None


def _view(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of an operator that is one of torch's, all its inputs real numbers."""
    return lambda r, *values, **given: rule(r.builder, *(padded(r.builder, v) for v in values), **given)


def _conv(r: "Reader", x: Value, weight: Value, bias: Value = None, **attributes: Any) -> View:
    weight = expect_constant(r.builder, weight, "a weight")
    return conv(r.builder, x, weight, bias, ConvGeometry.of(x, weight.shape[2:], attributes))


def _conv_transpose(r: "Reader", x: Value, weight: Value, bias: Value = None, **attributes: Any) -> View:
    weight = expect_constant(r.builder, weight, "a weight")
    window = ConvGeometry.of(x, weight.shape[2:], {**attributes, "auto_pad": "NOTSET"})
    if window.near != window.far or attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise r.builder.refused("padding alike on both sides", str(window.pads), "pad the input by itself")
    extra = attributes.get("output_padding") or [0] * len(window.near)
    return convolutions.conv_transposed(
        r.builder, padded(r.builder, x), weight, bias, window.stride, window.near, extra,
        window.groups, window.dilation,
    )  # fmt: skip


def _gemm(r: "Reader", x: Value, weight: Value, bias: Value = None, **attributes: Any) -> View:
    weight = expect_constant(r.builder, weight, "a weight")
    if attributes.get("transA"):
        raise r.builder.refused("samples in rows", "transA", "leave it out")
    weight = weight if attributes.get("transB") else weight.T
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    bias = None if bias is None else (bias * beta).expand(len(weight))
    return linear(r.builder, x, weight if alpha == 1 else weight * alpha, bias)


def _matmul(r: "Reader", x: Value, y: Value) -> View:
    if isinstance(y, Tensor) and y.dim() == 2:
        return linear(r.builder, x, y.T)
    return attention.matmul(r.builder, padded(r.builder, x), padded(r.builder, y))


def _einsum(r: "Reader", *operands: Value, equation: str) -> View:
    weight, x = operands[0], operands[-1]
    letters = equation.replace(" ", "").partition("->")[0].partition(",")[2][2:]
    if isinstance(weight, Tensor) and equation.replace(" ", "") == f"oi,ni{letters}->no{letters}":
        b, count = r.builder, len(letters)
        last, back = [0, *range(2, count + 2), 1], [0, count + 1, *range(1, count + 1)]
        y = linear(b, r.moved(x, lambda v: shapes.permute(b, v, last), lambda t: t.permute(last)), weight)
        return shapes.permute(b, y, back)
    return attention.einsum(r.builder, equation, [padded(r.builder, v) for v in operands])


def _batch_norm(r: "Reader", x: Value, *parameters: Tensor, epsilon: float = 1e-5, **_: Any) -> View:
    weight, bias, mean, var = parameters
    b = r.builder
    return convolutions.batch_norm(b, padded(b, x), weight, bias, mean, var, False, 0.0, epsilon, False)


def _add(r: "Reader", x: Value, y: Value, sign: float = 1.0) -> View:
    """Lower a sum; one of a product by a constant and a constant is a BatchNorm, in one rounding."""
    b = r.builder
    x, y = padded(b, x), padded(b, y)
    if isinstance(y, Tensor) and isinstance(x, View):
        product = r.products.get(x.name)
        if product is not None:
            return _affine(r, *product, y.float() * sign)
    if isinstance(x, Tensor) and isinstance(y, View) and sign > 0:
        return _add(r, y, x)
    return functions.add(b, x, y, sign)


def _affine(r: "Reader", x: View, scale: Tensor, shift: Tensor) -> View:
    b = r.builder
    x, scales = b.constant(x, scale)
    x, shifts = b.constant(x, shift)
    if scales.shape != shifts.shape or len(scales) != b.shape(x.name)[0]:
        whole = b.shape(x.name)
        rank = max(scales.ndim, shifts.ndim)
        scales, shifts = (
            np.broadcast_to(over_axis(v, rank, 0) if v.ndim == 1 else v, whole[:rank]).copy()
            for v in (scales, shifts)
        )
    return b.alike("affine", x, scale=scales, shift=shifts)


def _mul(r: "Reader", x: Value, y: Value) -> View:
    b = r.builder
    x, y = padded(b, x), padded(b, y)
    view, constant = (y, x) if isinstance(x, Tensor) else (x, y)
    product = functions.mul(b, view, constant)
    if isinstance(constant, Tensor) and b.values[view.name].dtype == "float32":
        r.products[product.name] = (view, constant.float())
    return product


def _div(r: "Reader", x: Value, y: Value) -> View:
    return _mul(r, x, 1 / y.float()) if isinstance(y, Tensor) else _view(functions.div)(r, x, y)


_MIRRORED = {"Greater": "Less", "Less": "Greater", "GreaterOrEqual": "LessOrEqual"}
_MIRRORED |= {"LessOrEqual": "GreaterOrEqual"}
_OUTCOMES = {
    "Greater": (False, False, True),
    "GreaterOrEqual": (False, True, True),
    "Less": (True, False, False),
    "LessOrEqual": (True, True, False),
}


def _comparison(name: str) -> Callable[..., Steps]:
    def rule(r: "Reader", x: Value, y: Value, **_: Any) -> Steps:
        b = r.builder
        if isinstance(x, Tensor):
            return _comparison(_MIRRORED[name])(r, y, x)
        if isinstance(y, Tensor):
            return _compared(r, x, y.float(), torch.tensor(_OUTCOMES[name]))
        difference = functions.sub(b, padded(b, x), padded(b, y))
        return _compared(r, difference, torch.zeros(1), torch.tensor(_OUTCOMES[name]))

    return rule


def _compared(r: "Reader", x: Value, threshold: Tensor, outcomes: Tensor | Sequence[Tensor]) -> Steps:
    """Return what a value is compared with a constant; the difference to a constant has the order of both."""
    below, at, above = outcomes
    view = padded(r.builder, x)
    known = r.differences.get(view.name)
    if known is not None and not bool(threshold.any()):
        view, threshold, reversed_ = known
        if reversed_:
            below, above = above, below
    if view.name in r.not_negative and not bool(threshold.any()):
        below = at
    return Steps(view, threshold, torch.as_tensor(below), torch.as_tensor(at), torch.as_tensor(above))


def _subtract(r: "Reader", x: Value, y: Value) -> View:
    difference = _add(r, x, y, -1.0)
    if isinstance(y, Tensor) and isinstance(x, View):
        r.differences[difference.name] = (x, y.float(), False)
    elif isinstance(x, Tensor) and isinstance(y, View):
        r.differences[difference.name] = (y, x.float(), True)
    return difference


def _sign(r: "Reader", x: Value) -> Steps:
    steps = _compared(r, x, torch.zeros(1), torch.tensor([-1.0, 0.0, 1.0]))
    return replace(steps, note_third=partial(r.zeros.add, r.builder.where))


def _bipolar_quant(r: "Reader", x: Value, scale: Value) -> Steps:
    scale = expect_constant(r.builder, scale, "a scale")
    return _compared(r, x, torch.zeros(1), (-scale, scale, scale))


def _multi_threshold(r: "Reader", x: Value, thresholds: Value, **attributes: Any) -> Steps:
    b, thresholds = r.builder, expect_constant(r.builder, thresholds, "thresholds")
    if thresholds.shape[1] != 1:
        raise refused_bits(b, float(np.log2(thresholds.shape[1] + 1)))
    view = padded(b, x)
    layout = attributes.get("data_layout") or "NCHW"
    axis = layout.index("C") if len(layout) == len(view.dims) else 1
    t = torch.from_numpy(over_axis(thresholds.numpy()[:, 0], len(view.dims), axis))
    scale, bias = attributes.get("out_scale", 1.0), attributes.get("out_bias", 0.0)
    low, high = (torch.tensor([value]) for value in (bias, scale + bias))
    return Steps(view, t, low, high, high)


def _quant(r: "Reader", x: Value, scale: Value, zero: Value, bits: Value, **attributes: Any) -> View:
    b, count = r.builder, float(bits)
    if count < _EIGHT:
        raise refused_bits(b, count)
    narrow, signed = attributes.get("narrow", 0), attributes.get("signed", 1)
    lower, upper = (
        (-(2 ** (count - 1)) + narrow, 2 ** (count - 1) - 1) if signed else (0, 2**count - 1 - narrow)
    )
    y = functions.add(b, functions.mul(b, padded(b, x), 1 / scale), zero)
    steps = functions.rounded(b, functions.clip(b, y, lower, upper))
    return functions.mul(b, functions.sub(b, steps, zero), scale)


def _clip(r: "Reader", x: Value, min: Value = None, max: Value = None) -> View:
    low, high = (None if bound is None else float(bound) for bound in (min, max))
    y = functions.clip(r.builder, padded(r.builder, x), low, high)
    if low is not None and low >= 0:
        r.not_negative.add(y.name)
    return y


def _not_negative(rule: Callable[..., Any]) -> Callable[..., View]:
    def ruled(r: "Reader", x: Value, **attributes: Any) -> View:
        y: View = rule(r.builder, padded(r.builder, x), **attributes)
        r.not_negative.add(y.name)
        return y

    return ruled


def _max_pool(r: "Reader", x: Value, **attributes: Any) -> Value:
    kernel = list(attributes["kernel_shape"])
    if isinstance(x, Steps) and x.rises_evenly() and not x.sides:
        return replace(x, source=_max_pool(r, x.source, **attributes))
    view = padded(r.builder, x)
    window, b = ConvGeometry.of(view, kernel, attributes), r.builder
    near, positive = window.near, view.name in r.not_negative
    if near != window.far:
        view, near = shapes.pad(b, view, window.sides, value=functions.NEVER), [0] * len(kernel)
    ceil = bool(attributes.get("ceil_mode"))
    y = pooling.max_pool(b, view, kernel, window.stride, near, window.dilation, ceil)
    if positive:
        r.not_negative.add(y.name)
    return y


def _average_pool(r: "Reader", x: Value, **attributes: Any) -> View:
    kernel, view = list(attributes["kernel_shape"]), padded(r.builder, x)
    window = ConvGeometry.of(view, kernel, attributes)
    if window.near != window.far:
        found = str(window.pads)
        raise r.builder.refused("an average pool padded alike on both sides", found, "pad by itself")
    ceil, counted = (bool(attributes.get(name)) for name in ("ceil_mode", "count_include_pad"))
    return pooling.avg_pool(r.builder, view, kernel, window.stride, window.near, ceil, counted)


def _global(how: str) -> Callable[..., View]:
    def rule(r: "Reader", x: Value) -> View:
        view = padded(r.builder, x)
        return pooling.reduced(r.builder, how, view, range(2, len(view.dims)), True)

    return rule


def _reduce(how: str) -> Callable[..., View]:
    def rule(r: "Reader", x: Value, axes: Value = None, **attributes: Any) -> View:
        dims = integers(axes)
        view = padded(r.builder, x)
        return pooling.reduced(r.builder, how, view, dims, bool(attributes.get("keepdims", 1)))

    return rule


def _reshape(r: "Reader", x: Value, shape: Value, **_: Any) -> Value:
    own = r.shape_of(x)
    wanted = [n or own[i] for i, n in enumerate(integers(shape) or [])]
    known = int(np.prod([n for n in wanted if n != -1]))
    wanted = [int(np.prod(own)) // known if n == -1 else n for n in wanted]
    return _reshaped(r, x, wanted)


def _reshaped(r: "Reader", x: Value, shape: Sequence[int]) -> Value:
    return r.moved(x, lambda v: r.builder.reshaped(v, shape), lambda t: t.reshape(tuple(shape)))


def _flatten(r: "Reader", x: Value, axis: int = 1) -> Value:
    own = r.shape_of(x)
    return _reshaped(r, x, [int(np.prod(own[:axis])), int(np.prod(own[axis:]))])


def _unsqueeze(r: "Reader", x: Value, axes: Value) -> Value:
    given = integers(axes) or []
    shape = list(r.shape_of(x))
    for axis in sorted(a % (len(shape) + len(given)) for a in given):
        shape.insert(axis, 1)
    return _reshaped(r, x, shape)


def _squeeze(r: "Reader", x: Value, axes: Value = None) -> Value:
    given, own = integers(axes), r.shape_of(x)
    gone = {a % len(own) for a in given} if given else {i for i, n in enumerate(own) if n == 1 and i}
    return _reshaped(r, x, [n for i, n in enumerate(own) if i not in gone])


def _transpose(r: "Reader", x: Value, perm: Sequence[int] | None = None) -> Value:
    order = list(perm or reversed(range(len(r.shape_of(x)))))
    pads = x.pads if isinstance(x, Steps) else ()
    moved = r.moved(
        replace(x, pads=()) if pads else x,
        lambda v: shapes.permute(r.builder, v, order),
        lambda t: t.permute(order),
    )
    return replace(moved, pads=tuple(pads[i] for i in order), pad_value=x.pad_value) if pads else moved


def _pad(r: "Reader", x: Value, pads: Value, value: Value = None, *_: Value, mode: str = "constant") -> Value:
    widths, filled = integers(pads) or [], 0.0 if value is None else float(value)
    count = len(widths) // 2
    if isinstance(x, Steps) and mode == "constant" and not x.sides and min(widths) >= 0:
        return replace(x, pads=tuple(zip(widths[:count], widths[count:], strict=True)), pad_value=filled)
    names = {"edge": "replicate", "wrap": "circular"}
    sides = [n for i in reversed(range(count)) for n in (widths[i], widths[count + i])]
    return shapes.pad(r.builder, padded(r.builder, x), sides, names.get(mode, mode), filled)


def _concat(r: "Reader", *values: Value, axis: int) -> View:
    return shapes.cat(r.builder, [padded(r.builder, v) for v in values], axis)


def _slice(
    r: "Reader", x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> View:
    first, last = integers(starts) or [], integers(ends) or []
    which = integers(axes) or range(len(first))
    each = integers(steps) or [1] * len(first)
    view: View = padded(r.builder, x)
    for start, end, axis, step in zip(first, last, which, each, strict=True):
        if step < 1:
            raise r.builder.refused("slices that go forward", f"a step of {step}", "use Gather")
        view = shapes.slice_(r.builder, view, axis % len(view.dims), start, end, step)
    return view


def _split(r: "Reader", x: Value, sizes: Value = None, axis: int = 0, **attributes: Any) -> list[View]:
    view = padded(r.builder, x)
    length = view.shape[axis]
    count = attributes.get("num_outputs") or r.outputs
    each = attributes.get("split") or (None if sizes is None else sizes.tolist())
    each = each or [min(-(-length // count), length - i * -(-length // count)) for i in range(count)]
    return shapes.split_with_sizes(r.builder, view, each, axis)


def _gather(r: "Reader", x: Value, indices: Value, axis: int = 0) -> View:
    chosen, view = expect_constant(r.builder, indices, "indices"), padded(r.builder, x)
    if chosen.dim() == 0:
        return shapes.select(r.builder, view, axis, int(chosen))
    if chosen.dim() > 1:
        raise r.builder.refused("indices in one dimension", f"{chosen.dim()}", "flatten them")
    length = view.shape[axis]
    return shapes.taken(r.builder, view, axis, [int(i) % length for i in chosen])


def _expand(r: "Reader", x: Value, shape: Value) -> View:
    view = padded(r.builder, x)
    return r.builder.expanded(view, np.broadcast_shapes(view.shape, tuple(shape.tolist())))


def _resize(r: "Reader", x: Value, *given: Value, **attributes: Any) -> View:
    view, b = padded(r.builder, x), r.builder
    scales, sizes = (given[1] if len(given) > 1 else given[0]), (given[2] if len(given) > 2 else None)
    wanted = (
        sizes.tolist()
        if sizes is not None
        else [int(n * s) for n, s in zip(view.shape, scales.tolist(), strict=True)]
    )
    mode, how = (
        attributes.get("mode", "nearest"),
        attributes.get("coordinate_transformation_mode", "half_pixel"),
    )
    whole = all(want % n == 0 for want, n in zip(wanted, view.shape, strict=True))
    if mode == "nearest" and (whole or how == "asymmetric"):
        return pooling.upsample_nearest(b, view, wanted[2:])
    if mode == "linear" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return pooling.upsample_bilinear(b, view, wanted[2:], how == "align_corners")
    raise b.refused("nearest or linear resizing", f"{mode}, {how}", "resize by a whole factor")


def _cast(r: "Reader", x: Value, to: int) -> View:
    view = padded(r.builder, x)
    if to == 9:  # bool
        return functions.differs(r.builder, view, 0.0)
    return view if to in (1, 10, 11, 16) else functions.truncated(r.builder, view)


def _softmax(rule: Callable[..., View]) -> Callable[..., View]:
    def ruled(r: "Reader", x: Value, axis: int | None = None) -> View:
        usual = -1 if r.opset >= 13 else 1
        return rule(r.builder, padded(r.builder, x), usual if axis is None else axis)

    return ruled


def _several(how: str) -> Callable[..., View]:
    return _view(lambda b, *values: reduce(partial(functions.best_of(how), b), values))


def _argument(how: str) -> Callable[..., View]:
    def rule(r: "Reader", x: Value, axis: int = 0, keepdims: int = 1, **_: Any) -> View:
        found: View = pooling.place_of(how)(r.builder, padded(r.builder, x), axis, bool(keepdims))
        return found

    return rule


RULES: dict[str, Callable[..., Any]] = {
    "Abs": _not_negative(functions.absolute),
    "Add": _add,
    "ArgMax": _argument("max"),
    "ArgMin": _argument("min"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "BipolarQuant": _bipolar_quant,
    "Cast": _cast,
    "Ceil": _view(functions.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _div,
    "Dropout": lambda r, x, *_, **__: x,
    "Einsum": _einsum,
    "Elu": _view(functions.elu),
    "Equal": _view(functions.equal),
    "Erf": _view(functions.erf),
    "Exp": _not_negative(lambda b, x: b.alike("exp", x)),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _view(functions.floor),
    "Gather": _gather,
    "Gelu": _view(functions.gelu),
    "Gemm": _gemm,
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "HardSigmoid": lambda r, x, alpha=0.2, beta=0.5: functions.clip(
        r.builder, _affine(r, padded(r.builder, x), torch.tensor([alpha]), torch.tensor([beta])), 0, 1
    ),
    "HardSwish": _view(functions.hardswish),
    "Identity": lambda r, x: x,
    "LeakyRelu": _view(lambda b, x, alpha=0.01: functions.leaky_relu(b, x, alpha)),
    "Log": _view(lambda b, x: b.alike("log", x)),
    "LogSoftmax": _softmax(pooling.log_softmax),
    "MatMul": _matmul,
    "Max": _several("max"),
    "MaxPool": _max_pool,
    "Min": _several("min"),
    "Mul": _mul,
    "MultiThreshold": _multi_threshold,
    "Neg": lambda r, x: _mul(r, x, torch.tensor([-1.0])),
    "Not": _view(functions.negated),
    "PRelu": _view(lambda b, x, slope: functions.prelu(b, x, slope.flatten())),
    "Pad": _pad,
    "Pow": _view(lambda b, x, y: functions.power(b, x, float(y))),
    "Quant": _quant,
    "Reciprocal": _view(lambda b, x: functions.power(b, x, -1)),
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("mean"),
    "ReduceMin": _reduce("min"),
    "ReduceSum": _reduce("sum"),
    "Relu": _not_negative(functions.relu),
    "Reshape": _reshape,
    "Resize": _resize,
    "Round": _view(functions.rounded),
    "Selu": _view(functions.selu),
    "Sigmoid": _not_negative(functions.sigmoid),
    "Sign": _sign,
    "Slice": _slice,
    "Softmax": _softmax(functions.softmax),
    "Softplus": _view(functions.softplus),
    "Split": _split,
    "Sqrt": _not_negative(lambda b, x: functions.power(b, x, 0.5)),
    "Squeeze": _squeeze,
    "Sub": _subtract,
    "Sum": lambda r, *values: reduce(partial(_add, r), values),
    "Tanh": _view(functions.tanh),
    "Tile": _view(lambda b, x, counts: shapes.repeat(b, x, counts.tolist())),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Upsample": lambda r, x, scales: _resize(r, x, None, scales, coordinate_transformation_mode="asymmetric"),
    "Where": _view(functions.where),
}
RULES |= {name: _comparison(name) for name in _OUTCOMES}

# Of each number by itself: of `Steps` and constants they give `Steps`.
POINTWISE = {
    "Abs", "Add", "And", "BipolarQuant", "Cast", "Clip", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Quant", "Relu", "LeakyRelu",
    "Round", "Sign", "Sub", "Sum", "Where", "Xor", "Ceil", "Floor", "Pow",
}  # fmt: skip
