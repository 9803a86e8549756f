"""What each operation of the model file is in ONNX. The mathematics is in `bitfactor.runtime.reference`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bitfactor.exporter.onnx.builder import OnnxBuilder
from bitfactor.format import Node, unpack_signs

_SMALLEST_NORMAL = np.finfo(np.float32).tiny


def _per_channel(b: OnnxBuilder, node: Node, role: str) -> str:
    """Store a tensor (C,) as (C, 1, ...), so that it broadcasts over the node's value."""
    return b.constant(_spread(node.tensors[role], b.shape(node.name)), f"{node.name}:{role}")


def _spread(tensor: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return tensor if tensor.ndim == len(shape) else tensor.reshape(-1, *[1] * (len(shape) - 1))


def _channels_second(weight: NDArray[Any]) -> NDArray[Any]:
    """(O, kh, kw, C) -> (O, C, kh, kw)."""
    return weight.transpose(0, 3, 1, 2)


def _real(b: OnnxBuilder, node: Node, weight: NDArray[Any]) -> str:
    """Store the weight as small as in the file; what other types than float32 stand for is computed."""
    name = b.constant(weight, f"{node.name}:weight")
    if weight.dtype != np.float32:
        name = b.emit("Cast", [name], attributes={"to": onnx.TensorProto.FLOAT})
    if "step" in node.tensors:
        step = b.constant(_spread(node.tensors["step"], weight.shape), f"{node.name}:step")
        name = b.emit("Mul", [name, step])
    return name


def _window(node: Node, kernel: Sequence[int]) -> dict[str, Any]:
    attributes = {"kernel_shape": kernel, "strides": node.attributes["stride"]}
    return attributes | {"pads": node.attributes["padding"]}


def _convolution(node: Node) -> dict[str, Any]:
    window = _window(node, node.tensors["weight"].shape[1:3])
    return window | {"dilations": node.attributes["dilation"], "group": node.attributes["groups"]}


def _conv2d(b: OnnxBuilder, node: Node, x: str) -> None:
    weight = _real(b, node, _channels_second(node.tensors["weight"]))
    b.emit("Conv", [x, weight, _bias(b, node)], node.name, _convolution(node))


def _bias(b: OnnxBuilder, node: Node) -> str:
    return b.constant(node.tensors["bias"], f"{node.name}:bias")


def _binary_conv2d(b: OnnxBuilder, node: Node, x: str) -> None:
    depth = b.shape(x)[0] // node.attributes["groups"]
    signs = _channels_second(unpack_signs(node.tensors["weight"], depth))
    attributes = _convolution(node)
    if node.attributes["pad_value"]:
        top, left, bottom, right = attributes["pads"]
        pads = b.constant(np.array([0, 0, top, left, 0, 0, bottom, right]), f"{node.name}:pads")
        x = b.emit("Pad", [x, pads, b.number(node.attributes["pad_value"])])
        attributes["pads"] = [0, 0, 0, 0]
    b.emit("Conv", [x, b.signs(signs, f"{node.name}:weight")], node.name, attributes)


def _linear(b: OnnxBuilder, node: Node, x: str) -> None:
    weight = _real(b, node, node.tensors["weight"])
    b.emit("Gemm", [x, weight, _bias(b, node)], node.name, {"transB": 1})


def _binary_linear(b: OnnxBuilder, node: Node, x: str) -> None:
    signs = unpack_signs(node.tensors["weight"], b.shape(x)[0])
    b.emit("MatMul", [x, b.signs(signs.T, f"{node.name}:weight")], node.name)


def _threshold(b: OnnxBuilder, node: Node, x: str) -> None:
    """Compare direction * x with direction * threshold; at a tie the sign is -1.

    QONNX's sign is +1 at 0, so there the first number beyond the threshold is subtracted. Beyond 0 it is the
    smallest normal one: a runtime that takes smaller ones for 0 then still gives sign(0) = -1.
    """
    direction, threshold = node.tensors["direction"].astype(np.float32), node.tensors["threshold"]
    if (direction != direction[0]).any():
        x = b.emit("Mul", [x, b.constant(_spread(direction, b.shape(node.name)), f"{node.name}:direction")])
        direction, threshold = np.ones_like(direction), direction * threshold
    if b.form == "qonnx":
        with np.errstate(over="ignore"):  # beyond the largest number is infinity
            beyond = np.nextafter(threshold, direction * np.float32(np.inf))
        threshold = np.where(threshold == 0, direction * _SMALLEST_NORMAL, beyond)
    border = b.constant(_spread(threshold, b.shape(node.name)), f"{node.name}:threshold")
    rising = direction[0] > 0
    if b.form == "qonnx":
        b.bipolar(b.emit("Sub", [x, border] if rising else [border, x]), node.name)
    else:
        b.where_positive(b.emit("Greater" if rising else "Less", [x, border]), node.name)


def _scale(b: OnnxBuilder, node: Node, x: str) -> None:
    b.emit("Mul", [x, _per_channel(b, node, "alpha")], node.name)


def _affine(b: OnnxBuilder, node: Node, x: str) -> None:
    scaled = b.emit("Mul", [x, _per_channel(b, node, "scale")])
    b.emit("Add", [scaled, _per_channel(b, node, "shift")], node.name)


def _prelu(b: OnnxBuilder, node: Node, x: str) -> None:
    b.emit("PRelu", [x, _per_channel(b, node, "slope")], node.name)


def _clip(b: OnnxBuilder, node: Node, x: str) -> None:
    b.emit("Clip", [x, *(b.number(node.attributes[bound]) for bound in ("lower", "upper"))], node.name)


def _max_pool2d(b: OnnxBuilder, node: Node, x: str) -> None:
    b.emit("MaxPool", [x], node.name, _window(node, node.attributes["kernel"]))


def _avg_pool2d(b: OnnxBuilder, node: Node, x: str) -> None:
    counted = {"count_include_pad": node.attributes["count_include_pad"]}
    b.emit("AveragePool", [x], node.name, _window(node, node.attributes["kernel"]) | counted)


def _upsample_nearest(b: OnnxBuilder, node: Node, x: str) -> None:
    scales = b.constant(np.array([1, 1, *node.attributes["scale"]], np.float32), f"{node.name}:scales")
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    b.emit("Resize", [x, "", scales], node.name, how)


def _reshape(b: OnnxBuilder, node: Node, x: str) -> None:
    shape = b.constant(np.array([0, *node.attributes["shape"]]), f"{node.name}:shape")  # 0: as it is
    b.emit("Reshape", [x, shape], node.name)


def _permute(b: OnnxBuilder, node: Node, x: str) -> None:
    b.emit("Transpose", [x], node.name, {"perm": [0, *(axis + 1 for axis in node.attributes["order"])]})


def _slice(b: OnnxBuilder, node: Node, x: str) -> None:
    axis, start, stop, step = node.attributes["range"]
    bounds = (b.constant(np.array([n]), f"integer:{n}") for n in (start, stop, axis + 1, step))
    b.emit("Slice", [x, *bounds], node.name)


def _plain(op: str, **attributes: int) -> Callable[..., None]:
    """Return the rule for an operation that ONNX has as it is."""

    def rule(b: OnnxBuilder, node: Node, *inputs: str) -> None:
        b.emit(op, inputs, node.name, attributes)

    return rule


OPERATORS: dict[str, Callable[..., None]] = {
    "conv2d": _conv2d,
    "binary_conv2d": _binary_conv2d,
    "linear": _linear,
    "binary_linear": _binary_linear,
    "threshold": _threshold,
    "scale": _scale,
    "affine": _affine,
    "relu": _plain("Relu"),
    "prelu": _prelu,
    "clip": _clip,
    "sigmoid": _plain("Sigmoid"),
    "softmax": _plain("Softmax", axis=1),
    "add": _plain("Add"),
    "multiply": _plain("Mul"),
    "concat": _plain("Concat", axis=1),
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "upsample_nearest": _upsample_nearest,
    "global_avg_pool": _plain("GlobalAveragePool"),
    "flatten": _plain("Flatten", axis=1),
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
}
