"""Ranges from samples: of the inputs of real-valued layers, for 8-bit integers, and of all values, for
precision `integer`; and what these then cost.

A layer that reads the network's own input has the range of an 8-bit image, channel by channel, where the
input specification says what that is and the samples are within: each level is then a value of the image.
Any other range is that of all values seen, widened to 0, which becomes a level.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.format import Graph, InputSpec, ModelFile, Node
from bitfactor.format.graph import run
from bitfactor.format.integer import in_integers
from bitfactor.format.low_precision import is_real_layer
from bitfactor.format.operations.quantised import LEVELS
from bitfactor.runtime import Precision, instruction_sets
from bitfactor.runtime.integers import magnitudes_on
from bitfactor.runtime.session import runner

_BATCH = 16
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Calibration:
    """What a precision costs, over `samples`: beside float32, on the samples that gave the ranges.

    `max_difference` is the largest of the first output, as a fraction of that output's largest magnitude;
    `agreement` the fraction of `decisions` that stay the same: the class of a sample, or where in its map
    each joint is.
    """

    samples: int
    max_difference: float
    agreement: float
    decisions: Literal["classes", "joints"]
    precision: Precision = "low"

    def __str__(self) -> str:
        same = "the same" if self.decisions == "classes" else "in the same place"
        return (
            f"precision {self.precision}, over {self.samples} samples: {self.agreement:.2%} of"
            f" {self.decisions} {same} as in float32,"
            f" largest difference {self.max_difference:.1e} of the largest output"
        )


def with_ranges(graph: Graph, samples: Floats, spec: InputSpec | None) -> Graph:
    """Return the graph with the range of each real-valued layer's input on `samples` (N, *input shape)."""
    read = dict.fromkeys(node.inputs[0] for node in graph.nodes if is_real_layer(node))
    ranges = {
        name: _range(graph, name, *bounds) for name, bounds in _bounds(graph, tuple(read), samples).items()
    }
    image = _image_range(samples, spec)
    if image is not None:
        ranges |= {graph.input.name: image}

    def ranged(node: Node) -> Node:
        if not is_real_layer(node):
            return node
        found = ranges[node.inputs[0]]
        if found.ndim == 2 and node.attributes.get("groups", 1) > 1:
            found = np.array([found[0].min(), found[1].max()], np.float32)
        return replace(node, tensors={**node.tensors, "range": found})

    return replace(graph, nodes=tuple(ranged(node) for node in graph.nodes))


def calibration_of(graph: Graph, samples: Floats) -> Calibration:
    """Compare the graph, with ranges, at low precision with itself in float32."""
    return _compared(graph, _outputs(graph, samples, "low"), samples, "low")


def with_integers(model: ModelFile, samples: Floats) -> tuple[ModelFile, Calibration | None]:
    """Return the model with the ranges of precision `integer`, its golden outputs, and what they cost.

    Where the network has an operation without integers, that is the model as it is.
    """
    ranged = replace(model, ranges=magnitudes_on(model.graph, samples))
    try:
        graph = in_integers(ranged).graph
    except InputError:
        return model, None
    cost = _compared(model.graph, _outputs(graph, samples, "highest"), samples, "integer")
    return replace(ranged, integer_outputs=run(graph, *model.golden_inputs)), cost


def _compared(
    graph: Graph, outputs: Iterator[tuple[NDArray[Any], ...]], samples: Floats, precision: Precision
) -> Calibration:
    difference, largest, same, decisions = 0.0, float(np.finfo(np.float32).tiny), 0, 0
    exact = _outputs(graph, samples, "highest")
    for (expected, *_), (found, *_) in zip(exact, outputs, strict=True):
        difference = max(difference, float(np.abs(found - expected).max()))
        largest = max(largest, float(np.abs(expected).max()))
        before, after = (_decisions(scores) for scores in (expected, found))
        same, decisions = same + int((before == after).sum()), decisions + before.size
    maps = len(graph.values[graph.outputs[0]].shape) == 3
    where: Literal["classes", "joints"] = "joints" if maps else "classes"
    return Calibration(len(samples), difference / largest, same / decisions, where, precision)


def _decisions(scores: NDArray[Any]) -> NDArray[np.intp]:
    """(N, K, H, W) -> (N, K), the peak of each map; (N, K) -> (N,), the class."""
    kept = scores.shape[: 2 if scores.ndim == 4 else 1]
    found: NDArray[np.intp] = scores.reshape(*kept, -1).argmax(-1)
    return found


def _outputs(graph: Graph, samples: Floats, precision: Precision) -> Iterator[tuple[NDArray[Any], ...]]:
    compute = runner(graph, instruction_sets()[0], precision=precision)
    return (compute(samples[i : i + _BATCH]) for i in range(0, len(samples), _BATCH))


def _bounds(graph: Graph, names: tuple[str, ...], samples: Floats) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest number of each value; one network gives all values in one run."""
    inner = tuple(name for name in names if name != graph.input.name)
    bounds = {name: [(samples.min(), samples.max())] for name in names if name not in inner}
    if inner:
        for values in _outputs(replace(graph, outputs=inner), samples, "highest"):
            for name, value in zip(inner, values, strict=True):
                bounds.setdefault(name, []).append((value.min(), value.max()))
    return {
        name: (float(min(low for low, _ in found)), float(max(high for _, high in found)))
        for name, found in bounds.items()
    }


def _range(graph: Graph, name: str, lowest: float, highest: float) -> Floats:
    if not lowest < highest:
        reader = next(node for node in graph.nodes if is_real_layer(node) and node.inputs[0] == name)
        raise InputError(
            f"calibration, node {reader.name!r} ({reader.op})",
            expected="an input that is not the same number everywhere",
            found=f"{lowest:g} in all samples",
            fix="pass real samples, or look at the layer before it",
        )
    lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    step = (highest - lowest) / LEVELS
    below = round(-lowest / step)
    return np.array([-below * step, (LEVELS - below) * step], np.float32)


def _image_range(samples: Floats, spec: InputSpec | None) -> Floats | None:
    """(2, C): black and white of each channel, where the samples are such images."""
    if spec is None or samples.ndim != 4:
        return None
    mean, std = np.array(spec.mean), np.array(spec.std)
    image = np.stack([-mean / std, (1 - mean) / std]).astype(np.float32)
    slack = 1e-4 / std.min()
    seen = samples.min((0, 2, 3)), samples.max((0, 2, 3))
    inside = (seen[0] >= image[0] - slack).all() and (seen[1] <= image[1] + slack).all()
    return image if inside else None
