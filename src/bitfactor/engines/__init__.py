"""The networks that a user would run instead, in other engines. One is imported when asked for."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import imported
from bitfactor.format import Graph

Engine = Literal["torch", "onnxruntime", "openvino"]
Run = Callable[[], object]

ENGINES: dict[Engine, str] = {
    "torch": "with_torch",
    "onnxruntime": "with_onnxruntime",
    "openvino": "with_openvino",
}


def engines_of(engine: Engine, graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return name -> a call that runs the full-precision baseline of `graph`, or the like, for each dtype.

    x (N, *input shape) is one sample, or several that are run in whatever way is fastest.
    """
    module = imported(f"bitfactor.engines.{ENGINES[engine]}", f"--against {engine}", "bench")
    engines: Mapping[str, Run] = module.engines(graph, x, threads)
    return engines
