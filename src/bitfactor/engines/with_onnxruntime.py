"""The full-precision baseline in ONNX Runtime: float32, and 8 bits by quantisation (QDQ, per channel)."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from bitfactor.common.errors import InputError
from bitfactor.engines import Network, Run, full_precision
from bitfactor.format import Graph, ModelFile
from bitfactor.targets.onnx import to_onnx

_CALIBRATION = 4


def onnx_baseline(graph: Graph, samples: int = 1) -> onnx.ModelProto:
    """Return the full-precision baseline of `graph` for so many samples at once."""
    return with_batch(to_onnx(ModelFile(full_precision(graph), ())), samples)


def with_batch(proto: onnx.ModelProto, samples: int) -> onnx.ModelProto:
    """Return `proto`, changed to take so many samples at once, which engines need to know beforehand."""
    for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = samples
    return proto


def of_one_sample(file: Path) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return a file's network for one sample, and the shape of that."""
    try:
        proto = onnx.load(file)
    except Exception as error:  # protobuf's, or the system's
        found = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(file, expected="an ONNX file", found=found, fix="name another") from error
    stored = {one.name for one in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in stored]
    taken = [value.type.tensor_type for value in inputs]
    shapes = [tuple(dim.dim_value for dim in one.shape.dim)[1:] for one in taken]
    if [one.elem_type for one in taken] != [onnx.TensorProto.FLOAT] or not (shapes[0] and all(shapes[0])):
        raise InputError(
            file,
            expected="one input of float32, with every side but the batch's known",
            found=", ".join(f"{value.name} {shape}" for value, shape in zip(inputs, shapes, strict=True)),
            fix="export it with fixed sides",
        )
    del proto.graph.value_info[:]  # of another batch
    for value in (*inputs, *(one for one in proto.graph.output if one.type.tensor_type.shape.dim)):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    return proto, shapes[0]


def noise(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Return inputs of noise: the ranges are not those of real images, the time is the same."""
    return [np.random.default_rng(i).standard_normal(shape, np.float32) for i in range(_CALIBRATION)]


def quantised(proto: onnx.ModelProto, inputs: Iterable[NDArray[np.float32]]) -> onnx.ModelProto:
    """Return `proto` with QuantizeLinear and DequantizeLinear around its operators (static, per channel).

    The ranges are those of `inputs`, each as the network takes it.
    """
    with TemporaryDirectory() as folder:
        plain, prepared, path = (str(Path(folder) / name) for name in ("plain", "prepared", "quantised"))
        onnx.save(proto, plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            path,
            _Inputs(proto.graph.input[0].name, inputs),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        made = onnx.load(path)
    made.producer_name = "bitfactor"  # so that a file of it may be replaced
    return made


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, inputs: Iterable[NDArray[np.float32]]) -> None:
        self.samples: Iterator[dict[str, NDArray[np.float32]]] = ({name: x} for x in inputs)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self.samples, None)


def engines(graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return the baseline in each dtype."""
    proto = onnx_baseline(graph, len(x))
    models = {"float32": proto, "int8": quantised(proto, noise(x.shape))}
    return {
        f"ONNX Runtime {onnxruntime.__version__} {kind}": partial(network(model, threads), x)
        for kind, model in models.items()
    }


def network(proto: onnx.ModelProto, threads: int) -> Network:
    """Return a call that runs a network on its one input."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    name = proto.graph.input[0].name
    return lambda x: np.asarray(session.run(None, {name: x})[0])
