"""Other engines, with the network that a user would run in them instead. One is imported when asked for."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.errors import imported
from bitfactor.format import Graph

Rival = Literal["torch", "onnxruntime", "openvino"]
Run = Callable[[], object]

_MODULES: dict[Rival, str] = {
    "torch": "with_torch",
    "onnxruntime": "with_onnxruntime",
    "openvino": "with_openvino",
}


def engines_of(rival: Rival, graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return name -> a call that runs the float twin of `graph`, or the like, on x, for each number type.

    Raises
    ------
    InputError
        If a package that the engine needs is not installed.
    """
    module = imported(f"bitfactor.cli.rivals.{_MODULES[rival]}", f"--against {rival}", "bench")
    engines: Mapping[str, Run] = module.engines(graph, x, threads)
    return engines
