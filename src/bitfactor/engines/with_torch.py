"""The full-precision baseline in torch: float32, and bfloat16 by autocast; channels last is fastest."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.engines import Run, full_precision
from bitfactor.format import Graph, Node
from bitfactor.format.operations.convolution import real_weight
from bitfactor.format.operations.move import axes_of

Call = Callable[..., Tensor]


def engines(graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return the baseline in each dtype."""
    torch.set_num_threads(threads)
    baseline = Baseline(full_precision(graph))
    tensor = torch.from_numpy(x)
    if tensor.ndim == 4:
        tensor = tensor.to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def float32() -> object:
        return baseline(tensor)

    @torch.inference_mode()
    def bfloat16() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return baseline(tensor)

    return {f"torch {torch.__version__} {run.__name__}": run for run in (float32, bfloat16)}


class Baseline:
    """Runs a graph that has no binary layers, on (N, *shape of the input)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls = [(node.name, node.inputs, _OPERATIONS[node.op](node)) for node in graph.nodes]

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        values = {self.graph.input.name: x}
        for name, inputs, call in self.calls:
            values[name] = call(*(values[value] for value in inputs))
        return tuple(values[name] for name in self.graph.outputs)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _padded(node: Node) -> tuple[Callable[[Tensor, float], Tensor], tuple[int, int]]:
    """Return what pads by hand, and the padding left to the layer: it knows no sides that differ."""
    top, left, bottom, right = node.attributes["padding"]
    if (top, left) == (bottom, right):
        return lambda x, value: x, (top, left)
    return lambda x, value: F.pad(x, (left, right, top, bottom), value=value), (0, 0)


def _over_maps(call: Call) -> Call:
    """Return `call` for (N, C, maps, H, W), too: of each map by itself."""

    def of(x: Tensor) -> Tensor:
        if x.ndim < 5:
            return call(x)
        y = call(x.movedim(1, 2).flatten(0, 1))
        return y.reshape(len(x), -1, *y.shape[1:]).movedim(2, 1)

    return of


def _conv2d(node: Node) -> Call:
    weight = _tensor(real_weight(node).transpose(0, 3, 1, 2)).to(memory_format=torch.channels_last)
    bias, (pad, padding) = _tensor(node.tensors["bias"]), _padded(node)
    stride, dilation, groups = (node.attributes[name] for name in ("stride", "dilation", "groups"))
    return _over_maps(lambda x: F.conv2d(pad(x, 0.0), weight, bias, stride, padding, dilation, groups))


def _linear(node: Node) -> Call:
    weight, bias = _tensor(real_weight(node)), _tensor(node.tensors["bias"])
    return lambda x: F.linear(x.movedim(1, -1), weight, bias).movedim(-1, 1)


def _per_channel(node: Node, role: str) -> Callable[[Tensor], Tensor]:
    values = _tensor(node.tensors[role])
    return lambda x: values if values.ndim == x.ndim - 1 else values.reshape(-1, *[1] * (x.ndim - 2))


def _affine(node: Node) -> Call:
    scale, shift = _per_channel(node, "scale"), _per_channel(node, "shift")
    return lambda x: torch.addcmul(shift(x), x, scale(x))


def _scale(node: Node) -> Call:
    alpha = _per_channel(node, "alpha")
    return lambda x: x * alpha(x)


def _prelu(node: Node) -> Call:
    slope = _tensor(node.tensors["slope"])
    return lambda x: F.prelu(x, slope)


def _clip(node: Node) -> Call:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    return lambda x: x.clamp(lower, upper)


def _max_pool2d(node: Node) -> Call:
    kernel, stride, (pad, padding) = node.attributes["kernel"], node.attributes["stride"], _padded(node)
    return _over_maps(lambda x: F.max_pool2d(pad(x, -torch.inf), kernel, stride, padding))


def _avg_pool2d(node: Node) -> Call:
    """Sums are divided by the pixels of the map under the window, which are counted once, or by all."""
    kernel, stride, (pad, padding) = node.attributes["kernel"], node.attributes["stride"], _padded(node)

    def pooled(x: Tensor) -> Tensor:
        return F.avg_pool2d(pad(x, 0.0), kernel, stride, padding)

    def of_the_map(x: Tensor) -> Tensor:
        return pooled(x) / pooled(torch.ones(1, 1, *x.shape[2:]))

    return _over_maps(pooled if node.attributes["count_include_pad"] else of_the_map)


def _upsample_nearest(node: Node) -> Call:
    scale = tuple(map(float, node.attributes["scale"]))
    return _over_maps(lambda x: F.interpolate(x, scale_factor=scale, mode="nearest"))


def _resize_bilinear(node: Node) -> Call:
    corners = bool(node.attributes["align_corners"])
    sides, factors = node.attributes["size"], node.attributes["scale"]

    def resized(x: Tensor) -> Tensor:
        size = [n or int(m * f) for n, m, f in zip(sides, x.shape[-2:], factors, strict=True)]
        return F.interpolate(x, size, mode="bilinear", align_corners=corners)

    return _over_maps(resized)


_REDUCTIONS: dict[str, Call] = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}


def _reduce(node: Node) -> Call:
    reduce, of_channels = _REDUCTIONS[node.attributes["how"]], node.op == "reduce_channels"
    return lambda x: reduce(x, (1,) if of_channels else tuple(range(2, x.ndim)), keepdim=True)


def _layer_norm(node: Node) -> Call:
    return lambda x: F.layer_norm(x.movedim(1, -1), x.shape[1:2], eps=node.attributes["eps"]).movedim(-1, 1)


def _matmul(node: Node) -> Call:
    def product(x: Tensor, y: Tensor) -> Tensor:
        groups = node.attributes["groups"]
        a, b = (v.reshape(len(v), groups, -1, *v.shape[2:]).permute(0, 1, 3, 4, 2) for v in (x, y))
        found = a @ (b.mT if node.attributes["transposed"] else b)
        return found.permute(0, 1, 4, 2, 3).reshape(len(found), -1, *x.shape[2:])

    return product


def _reshape(node: Node) -> Call:
    return lambda x: x.reshape(len(x), *node.attributes["shape"])


def _permute(node: Node) -> Call:
    return lambda x: x.permute(0, *(axis + 1 for axis in node.attributes["order"]))


def _slice(node: Node) -> Call:
    axis, start, stop, step = node.attributes["range"]
    return lambda x: x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)]


def _join(node: Node) -> Call:
    axis = node.attributes["axis"] + 1

    def joined(*xs: Tensor) -> Tensor:
        samples = max(map(len, xs))  # a constant has one
        return torch.cat([x.expand(samples, *x.shape[1:]) for x in xs], axis)

    return joined


def _rearrange(node: Node) -> Call:
    """Axes of memory, (..., C), are cut, repeated, ordered and put together to (..., C) again."""
    repeats, groups = node.attributes["repeats"], node.attributes["groups"]
    order = [0, *(axis + 1 for group in groups for axis in group)]

    def rearranged(x: Tensor) -> Tensor:
        own = axes_of(node, tuple(x.shape[1:]))[: len(order) - 1 - len(repeats)]
        memory = x.movedim(1, -1).reshape(len(x), *own, *[1] * len(repeats))
        lengths = [*own, *repeats]
        moved = memory.expand(len(x), *lengths).permute(order)
        return moved.reshape(len(x), *(prod(lengths[axis] for axis in group) for group in groups)).movedim(
            -1, 1
        )

    return rearranged


def _take(node: Node) -> Call:
    axis, indices = node.attributes["axis"] + 1, torch.tensor(node.attributes["indices"])
    return lambda x: x.index_select(axis, indices)


def _pad(node: Node) -> Call:
    axis, before, after, value = (node.attributes[name] for name in ("axis", "before", "after", "value"))
    return lambda x: F.pad(x, (*[0, 0] * (x.ndim - 2 - axis), before, after), value=value)


def _embedding(node: Node) -> Call:
    table = _tensor(node.tensors["table"])
    return lambda x: table[x.clamp(0, len(table) - 1).long().movedim(1, -1)].movedim(-1, 1)


def _constant(node: Node) -> Call:
    value = _tensor(node.tensors["value"])[None]
    return lambda: value


def _plain(call: Call) -> Callable[[Node], Call]:
    return lambda node: call


_OPERATIONS: dict[str, Callable[[Node], Call]] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "affine": _affine,
    "scale": _scale,
    "relu": _plain(torch.relu),
    "prelu": _prelu,
    "clip": _clip,
    "sigmoid": _plain(torch.sigmoid),
    "exp": _plain(torch.exp),
    "log": _plain(torch.log),
    "sqrt": _plain(torch.sqrt),
    "reciprocal": _plain(torch.reciprocal),
    "gelu": _plain(F.gelu),
    "softmax": _plain(lambda x: x.softmax(1)),
    "add": _plain(torch.add),
    "multiply": _plain(torch.mul),
    "concat": _plain(lambda *xs: torch.cat(xs, 1)),
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "upsample_nearest": _upsample_nearest,
    "resize_bilinear": _resize_bilinear,
    "global_avg_pool": _plain(lambda x: x.flatten(2).mean(2)[..., None, None]),
    "reduce_pixels": _reduce,
    "reduce_channels": _reduce,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "flatten": _plain(lambda x: x.flatten(1)),
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "join": _join,
    "rearrange": _rearrange,
    "take": _take,
    "pad": _pad,
    "embedding": _embedding,
    "constant": _constant,
}
