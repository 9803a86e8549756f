"""Pools: over windows, over all pixels, and the softmax over all channels."""

from typing import Any

import numpy as np

from bitfactor.format.operations.arithmetic import exponential
from bitfactor.format.operations.operation import (
    FLOAT,
    Float,
    Node,
    Onnx,
    Operation,
    Place,
    Shape,
    bad,
    expect_map,
    integers,
    onnx_window,
    pad,
    plain,
    same,
    window_size,
    windows,
)
from bitfactor.format.program import Instruction

_WINDOW = ("kernel", "stride", "padding")


def _infer_pool(node: Node, x: Shape) -> Shape:
    kernel = integers(node, "kernel", 2, 1)
    padding = integers(node, "padding", 4, 0)
    if any(padding[i] >= kernel[i % 2] for i in range(4)):
        raise bad(node, f"padding smaller than the kernel {kernel}", str(padding))
    return (x[0], *window_size(node, x, (kernel[0], kernel[1]), (1, 1)))


def _instruction(kind: str, node: Node, place: Place, **more: object) -> Instruction:
    return Instruction.of(
        kind,
        source=place.sources[0],
        window=place.window(node, node.attributes["kernel"]),
        channels=place.shape[0],
        **more,
    )


def _max_pool2d(node: Node, x: Float) -> Float:
    taps = windows(pad(x, node, -np.inf), node.attributes["kernel"], node.attributes["stride"])
    return np.asarray(np.max(np.stack(taps), axis=0))


def _onnx_max_pool2d(b: Onnx, node: Node, x: str) -> None:
    b.emit("MaxPool", [x], node.name, onnx_window(node, node.attributes["kernel"]))


def _max_pool2d_rows(node: Node, place: Place) -> Instruction:
    return _instruction("max_pool", node, place)


MAX_POOL2D = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=_WINDOW,
    infer=_infer_pool,
    reference=_max_pool2d,
    onnx=_onnx_max_pool2d,
    rows=_max_pool2d_rows,
)


def _infer_avg_pool2d(node: Node, x: Shape) -> Shape:
    if node.attributes["count_include_pad"] not in (0, 1):
        raise bad(node, "count_include_pad 0 or 1", repr(node.attributes["count_include_pad"]))
    return _infer_pool(node, x)


def _avg_pool2d(node: Node, x: Float) -> Float:
    kernel: Any = node.attributes["kernel"]
    stride: Any = node.attributes["stride"]
    counted = np.ones_like(x[:1, :1])
    if node.attributes["count_include_pad"]:
        counted = np.ones_like(pad(counted, node, 0))
    else:
        counted = pad(counted, node, 0)
    total = sum(windows(pad(x, node, 0), kernel, stride), np.float32(0))
    return np.asarray(total / sum(windows(counted, kernel, stride), np.float32(0)))


def _onnx_avg_pool2d(b: Onnx, node: Node, x: str) -> None:
    counted = {"count_include_pad": node.attributes["count_include_pad"]}
    b.emit("AveragePool", [x], node.name, onnx_window(node, node.attributes["kernel"]) | counted)


def _avg_pool2d_rows(node: Node, place: Place) -> Instruction:
    return _instruction(
        "avg_pool",
        node,
        place,
        far_padding=node.attributes["padding"][2:],
        count_include_pad=node.attributes["count_include_pad"],
    )


AVG_POOL2D = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=(*_WINDOW, "count_include_pad"),
    infer=_infer_avg_pool2d,
    reference=_avg_pool2d,
    onnx=_onnx_avg_pool2d,
    rows=_avg_pool2d_rows,
)


def _infer_global_avg_pool(node: Node, x: Shape) -> Shape:
    expect_map(node, x)
    return (x[0], 1, 1)


def _global_avg_pool(node: Node, x: Float) -> Float:
    pixels = x.reshape(*x.shape[:2], -1)
    total = np.zeros(x.shape[:2], np.float32)
    for i in range(pixels.shape[2]):
        total = total + pixels[:, :, i]
    return (total / np.float32(pixels.shape[2]))[:, :, None, None]


def _global_avg_pool_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of("global_avg_pool", source=place.sources[0])


GLOBAL_AVG_POOL = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    infer=_infer_global_avg_pool,
    reference=_global_avg_pool,
    onnx=plain("GlobalAveragePool"),
    rows=_global_avg_pool_rows,
)


def _softmax(node: Node, x: Float) -> Float:
    exponentials = exponential(x - x.max(1, keepdims=True))
    total = np.zeros_like(exponentials[:, 0])
    for c in range(x.shape[1]):
        total = total + exponentials[:, c]
    return np.asarray(exponentials / total[:, None])


def _softmax_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of("softmax", source=place.sources[0])


SOFTMAX = Operation((FLOAT,), "float32", same, _softmax, plain("Softmax", axis=1), rows=_softmax_rows)
