"""The full-precision baseline in torch: float32, and bfloat16 by autocast; channels last is fastest."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.common.errors import InputError
from bitfactor.engines import Run, full_precision
from bitfactor.format import Graph, Node
from bitfactor.format.operations.convolution import real_weight


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
        self.calls = [(node.name, node.inputs, _call(node)) for node in graph.nodes]

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        values = {self.graph.input.name: x}
        for name, inputs, call in self.calls:
            values[name] = call(*(values[value] for value in inputs))
        return tuple(values[name] for name in self.graph.outputs)


def _call(node: Node) -> Callable[..., Tensor]:
    if node.op not in _OPERATIONS:
        raise InputError(
            f"node {node.name!r}",
            expected=f"operations that the engine torch has: {', '.join(_OPERATIONS)}",
            found=node.op,
            fix="leave torch out, or time the model itself",
        )
    return _OPERATIONS[node.op](node)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _padded(node: Node) -> tuple[Callable[[Tensor, float], Tensor], tuple[int, int]]:
    """Return what pads by hand, and the padding left to the layer: it knows no sides that differ."""
    top, left, bottom, right = node.attributes["padding"]
    if (top, left) == (bottom, right):
        return lambda x, value: x, (top, left)
    return lambda x, value: F.pad(x, (left, right, top, bottom), value=value), (0, 0)


def _conv2d(node: Node) -> Callable[..., Tensor]:
    weight = _tensor(real_weight(node).transpose(0, 3, 1, 2)).to(memory_format=torch.channels_last)
    bias, (pad, padding) = _tensor(node.tensors["bias"]), _padded(node)
    stride, dilation, groups = (node.attributes[name] for name in ("stride", "dilation", "groups"))
    return lambda x: F.conv2d(pad(x, 0.0), weight, bias, stride, padding, dilation, groups)


def _linear(node: Node) -> Callable[..., Tensor]:
    weight, bias = _tensor(real_weight(node)), _tensor(node.tensors["bias"])
    return lambda x: F.linear(x.movedim(1, -1), weight, bias).movedim(-1, 1)


def _per_channel(node: Node, role: str) -> Callable[[Tensor], Tensor]:
    values = _tensor(node.tensors[role])
    return lambda x: values if values.ndim == x.ndim - 1 else values.reshape(-1, *[1] * (x.ndim - 2))


def _affine(node: Node) -> Callable[..., Tensor]:
    scale, shift = _per_channel(node, "scale"), _per_channel(node, "shift")
    return lambda x: torch.addcmul(shift(x), x, scale(x))


def _scale(node: Node) -> Callable[..., Tensor]:
    alpha = _per_channel(node, "alpha")
    return lambda x: x * alpha(x)


def _prelu(node: Node) -> Callable[..., Tensor]:
    slope = _tensor(node.tensors["slope"])
    return lambda x: F.prelu(x, slope)


def _clip(node: Node) -> Callable[..., Tensor]:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    return lambda x: x.clamp(lower, upper)


def _max_pool2d(node: Node) -> Callable[..., Tensor]:
    kernel, stride, (pad, padding) = node.attributes["kernel"], node.attributes["stride"], _padded(node)
    return lambda x: F.max_pool2d(pad(x, -torch.inf), kernel, stride, padding)


def _avg_pool2d(node: Node) -> Callable[..., Tensor]:
    kernel, stride, (pad, padding) = node.attributes["kernel"], node.attributes["stride"], _padded(node)
    counted = bool(node.attributes["count_include_pad"])
    return lambda x: F.avg_pool2d(pad(x, 0.0), kernel, stride, padding, count_include_pad=counted)


def _upsample_nearest(node: Node) -> Callable[..., Tensor]:
    scale = tuple(map(float, node.attributes["scale"]))
    return lambda x: F.interpolate(x, scale_factor=scale, mode="nearest")


def _reshape(node: Node) -> Callable[..., Tensor]:
    return lambda x: x.reshape(len(x), *node.attributes["shape"])


def _permute(node: Node) -> Callable[..., Tensor]:
    return lambda x: x.permute(0, *(axis + 1 for axis in node.attributes["order"]))


def _slice(node: Node) -> Callable[..., Tensor]:
    axis, start, stop, step = node.attributes["range"]
    return lambda x: x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)]


def _plain(call: Callable[..., Tensor]) -> Callable[[Node], Callable[..., Tensor]]:
    return lambda node: call


_OPERATIONS: dict[str, Callable[[Node], Callable[..., Tensor]]] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "affine": _affine,
    "scale": _scale,
    "relu": _plain(torch.relu),
    "prelu": _prelu,
    "clip": _clip,
    "sigmoid": _plain(torch.sigmoid),
    "softmax": _plain(lambda x: x.softmax(1)),
    "add": _plain(torch.add),
    "multiply": _plain(torch.mul),
    "concat": _plain(lambda *xs: torch.cat(xs, 1)),
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "upsample_nearest": _upsample_nearest,
    "global_avg_pool": _plain(lambda x: x.mean((2, 3), keepdim=True)),
    "flatten": _plain(lambda x: x.flatten(1)),
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
}
