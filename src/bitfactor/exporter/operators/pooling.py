"""Operators that change the size of a map."""

import math
from collections.abc import Sequence
from typing import Any

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.layers import sizes_of
from bitfactor.exporter.operators.pointwise import mul


def _window(b: Builder, x: str, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    n = len(b.torch_shape(x)) - 1
    height, width = sizes_of(padding, n, 0)
    return {
        "kernel": sizes_of(kernel, n, 1),
        "stride": sizes_of(stride or kernel, n, 1),
        "padding": (height, width, height, width),
    }


def max_pool(
    b: Builder,
    x: str,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> str:
    if sizes_of(dilation, 2, 1) != (1, 1) or ceil:
        raise b.refused("max pooling without dilation or ceil_mode", "one of them", "pad instead")
    return b.emit("max_pool2d", [b.real(b.as_map(x))], _window(b, x, kernel, stride, padding))


def avg_pool(
    b: Builder, x: str, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> str:  # fmt: skip
    if ceil or divisor is not None:
        raise b.refused("average pooling without ceil_mode or divisor", "one of them", "pad instead")
    attributes = _window(b, x, kernel, stride, padding) | {"count_include_pad": int(count_include_pad)}
    return b.emit("avg_pool2d", [b.real(b.as_map(x))], attributes)


def adaptive_avg_pool(b: Builder, x: str, size: Any) -> str:
    x = b.real(b.as_map(x))
    wanted = _wanted(b, x, size)
    if wanted == (1, 1):
        return b.emit("global_avg_pool", [x])
    return b.emit("avg_pool2d", [x], _even(b, x, wanted) | {"count_include_pad": 1})


def adaptive_max_pool(b: Builder, x: str, size: Any) -> list[str | None]:
    """Lower to the maxima; their places, which torch gives as well, the file does not hold."""
    x = b.real(b.as_map(x))
    return [b.emit("max_pool2d", [x], _even(b, x, _wanted(b, x, size))), None]


def _wanted(b: Builder, x: str, size: Any) -> tuple[int, ...]:
    """Read the output size of an adaptive pool; None keeps the size."""
    given = list(size) if isinstance(size, Sequence) else [size]
    given = [1, *given] if b.shape(x)[1] == 1 and len(given) == 1 else given * (2 // len(given))
    return tuple(n if want is None else want for want, n in zip(given, b.shape(x)[1:], strict=True))


def _even(b: Builder, x: str, wanted: Sequence[int]) -> dict[str, Any]:
    """Windows that are equal and do not overlap."""
    height, width = b.shape(x)[1:]
    if height % wanted[0] or width % wanted[1]:
        raise b.refused(
            f"an adaptive pool to a size that divides {(height, width)}",
            str(tuple(wanted)),
            "use a fixed pool",
        )
    kernel = (height // wanted[0], width // wanted[1])
    return {"kernel": kernel, "stride": kernel, "padding": (0, 0, 0, 0)}


def mean(b: Builder, x: str, dims: Sequence[int], keepdim: bool = False, dtype: Any = None) -> str:
    axes = sorted(b.axis(x, dim) for dim in dims)
    if axes != list(range(1, len(b.torch_shape(x)))):
        raise b.refused("a mean over all pixels", f"over dimensions {list(dims)}", "use average pooling")
    y = b.emit("global_avg_pool", [b.real(b.as_map(x))])
    return y if keepdim else b.emit("flatten", [y])


def total(b: Builder, x: str, dims: Sequence[int], keepdim: bool = False, dtype: Any = None) -> str:
    return mul(b, mean(b, x, dims, keepdim), float(math.prod(b.torch_shape(x)[1:])))


def upsample_nearest(b: Builder, x: str, size: Any = None, factors: Any = None) -> str:
    shape = b.torch_shape(x)[1:]
    scale = [s / n for s, n in zip(size, shape, strict=True)] if size else list(factors)
    if any(factor != int(factor) for factor in scale):
        raise b.refused("upsampling by whole numbers", str(scale), "use 2 or 3")
    whole = sizes_of([int(factor) for factor in scale], len(shape), 1)
    return b.emit("upsample_nearest", [b.real(b.as_map(x))], {"scale": whole})
