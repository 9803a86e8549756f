"""Every operation in plain numpy: the specification that the compiled kernels are tested against.

Values are shaped as in torch, (N, C, H, W) or (N, F); signs are int8 of -1 and +1, sums int32. All float32
arithmetic is stated to the last bit, so that results are the same on every machine:

- `fma(a, b, c)` is a * b + c with a single rounding; any other operation rounds once by itself;
- a convolution's sum starts at the bias and takes one fma a tap, in the order (kh, kw, c); a linear layer's
  in the order of the features. A tap outside the map counts as x = 0;
- `exponential` is a polynomial in fma, see there;
- a mean is the sum in the order (kh, kw), or of the pixels in row-major order, divided by their count.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.bits import unpack_signs
from bitfactor.format.graph import Graph, Node, real_weight

Array = NDArray[Any]
Float = NDArray[np.float32]


def run(graph: Graph, x: Float) -> tuple[Array, ...]:
    """Return the outputs of `graph` for x (N, *shape of the input): float32, int32 or, for signs, int8."""
    values: dict[str, Array] = {graph.input.name: x}
    for node in graph.nodes:
        values[node.name] = REFERENCE[node.op](node, *(values[name] for name in node.inputs))
    return tuple(values[name] for name in graph.outputs)


def fma(a: Array, b: Array, c: Array) -> Float:
    """Return a * b + c rounded once to float32, for float32 a, b and c.

    The product is exact in float64, and so is the error of the sum. Rounding twice, to float64 and then to
    float32, can differ from rounding once where the float64 sum looks half-way between two float32, or lies
    below the normal ones; there the sum is first rounded to odd.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    total = np.asarray(product + c)
    half_way = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    doubtful = (half_way | (np.abs(total) < np.finfo(np.float32).tiny)) & (total != 0)
    if doubtful.any():
        product, addend = (np.broadcast_to(v, total.shape)[doubtful] for v in (product, c))
        total[doubtful] = _round_to_odd(product, addend.astype(np.float64), total[doubtful])
    return total.astype(np.float32)


def _round_to_odd(a: Array, b: Array, total: Array) -> Array:
    """Return a + b, where inexact, as that neighbour whose last bit is 1; `total` is the rounded sum."""
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(even & (error != 0), neighbour, total)


def _per_channel(parameter: Array, x: Array) -> Array:
    """(C,) -> (C, 1, ...), to broadcast against x (N, C, ...)."""
    return parameter.reshape(-1, *[1] * (x.ndim - 2))


def _pad(x: Array, node: Node, value: float) -> Array:
    padding: Any = node.attributes["padding"]
    top, left, bottom, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def _windows(x: Array, kernel: tuple[int, int], stride: Any, dilation: Any = (1, 1)) -> Iterator[Array]:
    """Yield for each tap (kh, kw) what it reads of the padded map x (N, C, H, W): (N, C, H', W')."""
    size = [(x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            top, left = kh * dilation[0], kw * dilation[1]
            rows = slice(top, top + (size[0] - 1) * stride[0] + 1, stride[0])
            yield x[:, :, rows, left : left + (size[1] - 1) * stride[1] + 1 : stride[1]]


def _taps(x: Array, node: Node, weight: Array) -> Iterator[tuple[Array, Array]]:
    """Yield x (N, G, C/G, H', W') and weight (G, O/G, C/G) of each tap, for x padded and G groups."""
    groups: Any = node.attributes["groups"]
    outputs, height, width, depth = weight.shape
    windows = _windows(x, (height, width), node.attributes["stride"], node.attributes["dilation"])
    for i, window in enumerate(windows):
        taps = weight[:, i // width, i % width].reshape(groups, outputs // groups, depth)
        yield window.reshape(len(x), groups, depth, *window.shape[2:]), taps


def conv2d(node: Node, x: Float) -> Float:
    total: Array = node.tensors["bias"][:, None, None]
    for window, weight in _taps(_pad(x, node, 0), node, real_weight(node)):
        n, groups, depth, *size = window.shape
        total = np.broadcast_to(total, (n, len(node.tensors["bias"]), *size)).reshape(n, groups, -1, *size)
        for c in range(depth):
            total = fma(window[:, :, None, c], weight[..., c, None, None], total)
        total = total.reshape(n, -1, *size)
    return total


def binary_conv2d(node: Node, x: NDArray[np.int8]) -> NDArray[np.int32]:
    pad_value: Any = node.attributes["pad_value"]
    groups: Any = node.attributes["groups"]
    weights = unpack_signs(node.tensors["weight"], x.shape[1] // groups)
    total: Any = 0
    for window, weight in _taps(_pad(x, node, pad_value), node, weights):
        n, groups, depth, *size = window.shape
        # Sums of fewer than 2^24 signs are exact in float32, whose product is the fast one.
        signs = window.reshape(n, groups, depth, -1).astype(np.float32)
        total = total + (weight.astype(np.float32) @ signs).reshape(n, -1, *size)
    return np.asarray(total).astype(np.int32)


def linear(node: Node, x: Float) -> Float:
    weight = real_weight(node)
    total = np.broadcast_to(node.tensors["bias"], (len(x), len(weight)))
    for f in range(x.shape[1]):
        total = fma(x[:, f, None], weight[:, f], total)
    return total


def binary_linear(node: Node, x: NDArray[np.int8]) -> NDArray[np.int32]:
    weight = unpack_signs(node.tensors["weight"], x.shape[1]).astype(np.int32)
    return x.astype(np.int32) @ weight.T


def threshold(node: Node, x: Array) -> NDArray[np.int8]:
    """+1 where x > threshold, or x < threshold for direction -1; else -1."""
    direction = _per_channel(node.tensors["direction"], x).astype(np.float32)
    passed = direction * x.astype(np.float32) > direction * _per_channel(node.tensors["threshold"], x)
    return np.where(passed, np.int8(1), np.int8(-1))


def scale(node: Node, x: Array) -> Float:
    alpha = node.tensors["alpha"]
    per_element = alpha.ndim == x.ndim - 1
    return np.asarray(x.astype(np.float32) * (alpha if per_element else _per_channel(alpha, x)))


def affine(node: Node, x: Float) -> Float:
    return fma(x, _per_channel(node.tensors["scale"], x), _per_channel(node.tensors["shift"], x))


def relu(node: Node, x: Float) -> Float:
    return np.where(x > 0, x, np.float32(0))


def prelu(node: Node, x: Float) -> Float:
    return np.where(x > 0, x, _per_channel(node.tensors["slope"], x) * x)


def add(node: Node, x: Float, y: Float) -> Float:
    return np.asarray(x + y)


def clip(node: Node, x: Float) -> Float:
    return _cut(x, node.attributes["lower"], node.attributes["upper"])


def _cut(x: Float, lower: float, upper: float) -> Float:
    x = np.where(x > np.float32(lower), x, np.float32(lower))
    return np.where(x < np.float32(upper), x, np.float32(upper))


def exponential(x: Float) -> Float:
    """Return exp(x), x cut to -87 ... 88, within two units in the last place.

    x = n ln 2 + r; a polynomial of degree 5 gives (exp(r) - 1 - r) / r^2 (coefficients: Cephes, expf).
    """
    magic = _f32(1.5 * 2**23)  # adding it rounds to an integer
    x = _cut(x, -87, 88)
    n = fma(x, _f32(1.44269504), magic) - magic
    r = fma(n, _f32(2.12194440e-4), fma(n, _f32(-0.693359375), x))
    p = _f32(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, _f32(c))
    exponential: Float = np.ldexp(fma(p, r * r, r) + _f32(1), n.astype(np.int32))
    return exponential


def _f32(value: float) -> Float:
    return np.asarray(value, np.float32)


def sigmoid(node: Node, x: Float) -> Float:
    return np.float32(1) / (np.float32(1) + exponential(-x))


def softmax(node: Node, x: Float) -> Float:
    exponentials = exponential(x - x.max(1, keepdims=True))
    total = np.zeros_like(exponentials[:, 0])
    for c in range(x.shape[1]):
        total = total + exponentials[:, c]
    return np.asarray(exponentials / total[:, None])


def multiply(node: Node, x: Float, y: Float) -> Float:
    return np.asarray(x * y)


def concat(node: Node, *xs: Float) -> Float:
    return np.concatenate(xs, axis=1)


def reshape(node: Node, x: Float) -> Float:
    return x.reshape(len(x), *node.attributes["shape"])


def permute(node: Node, x: Float) -> Float:
    return x.transpose(0, *(axis + 1 for axis in node.attributes["order"]))


def slice_(node: Node, x: Float) -> Float:
    axis, start, stop, step = node.attributes["range"]
    return np.asarray(x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)])


def max_pool2d(node: Node, x: Float) -> Float:
    kernel: Any = node.attributes["kernel"]
    windows = _windows(_pad(x, node, -np.inf), kernel, node.attributes["stride"])
    return np.asarray(np.max(np.stack(list(windows)), axis=0))


def avg_pool2d(node: Node, x: Float) -> Float:
    kernel: Any = node.attributes["kernel"]
    counted = np.ones_like(x[:1, :1])
    if node.attributes["count_include_pad"]:
        counted = np.ones_like(_pad(counted, node, 0))
    else:
        counted = _pad(counted, node, 0)
    stride = node.attributes["stride"]
    total = sum(_windows(_pad(x, node, 0), kernel, stride), np.float32(0))
    return np.asarray(total / sum(_windows(counted, kernel, stride), np.float32(0)))


def upsample_nearest(node: Node, x: Float) -> Float:
    height, width = node.attributes["scale"]
    return x.repeat(height, axis=2).repeat(width, axis=3)


def global_avg_pool(node: Node, x: Float) -> Float:
    pixels = x.reshape(*x.shape[:2], -1)
    total = np.zeros(x.shape[:2], np.float32)
    for i in range(pixels.shape[2]):
        total = total + pixels[:, :, i]
    return (total / np.float32(pixels.shape[2]))[:, :, None, None]


def flatten(node: Node, x: Float) -> Float:
    return x.reshape(len(x), -1)


REFERENCE: dict[str, Callable[..., Array]] = {
    "conv2d": conv2d,
    "binary_conv2d": binary_conv2d,
    "linear": linear,
    "binary_linear": binary_linear,
    "threshold": threshold,
    "scale": scale,
    "affine": affine,
    "relu": relu,
    "prelu": prelu,
    "clip": clip,
    "sigmoid": sigmoid,
    "softmax": softmax,
    "add": add,
    "multiply": multiply,
    "concat": concat,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "upsample_nearest": upsample_nearest,
    "global_avg_pool": global_avg_pool,
    "flatten": flatten,
    "reshape": reshape,
    "permute": permute,
    "slice": slice_,
}
