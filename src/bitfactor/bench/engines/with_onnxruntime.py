"""The full-precision baseline in ONNX Runtime: float32, and 8 bits by quantisation (QDQ, per channel)."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from bitfactor.bench.engines import Run
from bitfactor.bench.engines.onnx_baseline import onnx_baseline, quantised
from bitfactor.format import Graph


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
