"""What the integers of precision `integer` are made of: ranges of a network's values on samples."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.machine import chosen_isa
from bitfactor.format.graph import Graph
from bitfactor.runtime.session import runner

_BATCH = 16


def magnitudes_on(graph: Graph, samples: NDArray[np.float32]) -> Mapping[str, float]:
    """Return the largest magnitude of each real value of `graph` on samples (N, *input shape)."""
    names = tuple(node.name for node in graph.nodes if graph.values[node.name].dtype == "float32")
    run = runner(replace(graph, outputs=names), chosen_isa(None))
    found = dict.fromkeys(names, 0.0)
    for i in range(0, len(samples), _BATCH):
        for name, value in zip(names, run(samples[i : i + _BATCH]), strict=True):
            found[name] = max(found[name], float(np.abs(value).max()))
    return {graph.input.name: float(np.abs(samples).max()), **found}
