"""The full-precision baseline in ONNX Runtime: float32, and 8 bits by quantisation (QDQ, per channel).

The full-precision baseline as ONNX, in float32 and quantised to 8 bits.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from bitfactor.engines import Run, full_precision
from bitfactor.format import Graph, ModelFile
from bitfactor.targets.onnx import to_onnx

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


def engines(graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return the baseline in each dtype."""
    proto = onnx_baseline(graph, len(x))
    models = {"float32": proto, "int8": quantised(proto, x)}
    version = onnxruntime.__version__
    return {f"ONNX Runtime {version} {kind}": _run(model, x, threads) for kind, model in models.items()}


def _run(proto: onnx.ModelProto, x: NDArray[np.float32], threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {proto.graph.input[0].name: x}
    return lambda: session.run(None, inputs)
