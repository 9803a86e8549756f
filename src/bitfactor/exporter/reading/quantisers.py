"""The operators of QONNX, Brevitas and FINN that have a value of few bits, for ONNX's reference evaluator."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

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
        own = {a.name: _value(a) for a in self.onnx_node.attribute}
        return (compute(*inputs, **own),)  # type: ignore[operator]

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


def _value(attribute: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


OPERATORS = [_operator(domain, name) for domain in DOMAINS for name in _COMPUTE]
