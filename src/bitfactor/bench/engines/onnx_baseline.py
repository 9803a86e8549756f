"""The full-precision baseline as ONNX, in float32 and quantised to 8 bits."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from bitfactor.bench.engines.baseline import full_precision
from bitfactor.exporter.onnx import to_onnx
from bitfactor.format import Graph, ModelFile

_CALIBRATION = 4  # noise: the ranges are not those of real images, the time is the same


def onnx_baseline(graph: Graph, samples: int = 1) -> onnx.ModelProto:
    """Return the full-precision baseline of `graph` for so many samples at once."""
    proto = to_onnx(ModelFile(full_precision(graph), ()))
    for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = samples
    return proto


def quantised(proto: onnx.ModelProto, x: NDArray[np.float32]) -> onnx.ModelProto:
    """Return `proto` with QuantizeLinear and DequantizeLinear around its operators (static, per channel)."""
    with TemporaryDirectory() as folder:
        plain, prepared, path = (str(Path(folder) / name) for name in ("plain", "prepared", "quantised"))
        onnx.save(proto, plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            path,
            _Noise(proto.graph.input[0].name, x.shape),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        return onnx.load(path)


class _Noise(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.samples: Iterator[dict[str, NDArray[np.float32]]] = iter(
            [{name: np.random.default_rng(i).standard_normal(shape, np.float32)} for i in range(_CALIBRATION)]
        )

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self.samples, None)
