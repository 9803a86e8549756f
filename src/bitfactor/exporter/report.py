"""What export did: which layers became bits, what they weigh, how far the file is from torch.

What of a model the file cannot hold: all places at once, each with the way out. Ranges from samples: of the
inputs of real-valued layers, for 8-bit integers, and of all values, for precision `integer`; and what these
then cost. A layer that reads the network's own input has the range of an 8-bit image, channel by channel.
That needs an input specification, and samples within it. Any other range is that of all values seen, widened
to 0, which becomes a level.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bitfactor.common.errors import InputError
from bitfactor.common.result import text_table
from bitfactor.exporter.adoption import MADE_OF_OTHERS, Finding
from bitfactor.format import Graph, InputSpec, ModelFile, Node
from bitfactor.format.bits import stored_bytes
from bitfactor.format.graph import run
from bitfactor.format.integer import in_integers
from bitfactor.format.low_precision import is_real_layer
from bitfactor.format.operations.quantised import LEVELS
from bitfactor.nn import BinaryLayer, binary_layers
from bitfactor.nn.model import Call, dead_layers
from bitfactor.runtime import Precision
from bitfactor.runtime.runner import magnitudes_on, outputs_on

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Calibration:
    """What a precision costs, over `samples`: beside float32, on the samples that gave the ranges.

    `max_difference` is the largest of the first output, as a fraction of that output's largest magnitude.
    `agreement` is the fraction of `decisions` that stay the same: the class of a sample, or where in its map
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
    return _compared(graph, outputs_on(graph, samples, "low"), samples, "low")


def with_integers(model: ModelFile, samples: Floats) -> tuple[ModelFile, Calibration | None]:
    """Return the model with the ranges of precision `integer`, its golden outputs, and what they cost.

    Where the network has an operation without integers, that is the model as it is.
    """
    ranged = replace(model, ranges=magnitudes_on(model.graph, samples))
    try:
        graph = in_integers(ranged).graph
    except InputError:
        return model, None
    cost = _compared(model.graph, outputs_on(graph, samples), samples, "integer")
    return replace(ranged, integer_outputs=run(graph, *model.golden_inputs)), cost


def _compared(
    graph: Graph, outputs: Iterator[tuple[NDArray[Any], ...]], samples: Floats, precision: Precision
) -> Calibration:
    difference, largest, same, decisions = 0.0, float(np.finfo(np.float32).tiny), 0, 0
    exact = outputs_on(graph, samples)
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


def _bounds(graph: Graph, names: tuple[str, ...], samples: Floats) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest number of each value; one network gives all values in one run."""
    inner = tuple(name for name in names if name != graph.input.name)
    bounds = {name: [(samples.min(), samples.max())] for name in names if name not in inner}
    if inner:
        for values in outputs_on(replace(graph, outputs=inner), samples):
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


if TYPE_CHECKING:
    from bitfactor.exporter.lower import Lowered


@dataclass(frozen=True)
class Obstacle:
    """A place in a model: `layer` is the path of its module, `line` the file and line of code, if known.

    What is expected and found there, and what to do, are those of `InputError`.
    """

    layer: str
    line: str
    expected: str
    found: str
    fix: str

    @property
    def where(self) -> str:
        if self.line:
            return f"{self.layer}, {self.line}" if self.layer else self.line
        return f"layer {self.layer}" if self.layer else "the model"

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}; {self.fix}"


class UnsupportedError(InputError):
    """A model that the file cannot hold; `obstacles` are all places that prevent it."""

    def __init__(self, model: str, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        first, *others = obstacles
        where, expected, found, fix = first.where, first.expected, first.found, first.fix
        if others:
            where, expected = model, "what the file can hold"
            found = f"{len(obstacles)} places that it cannot"
            fix = "\n".join(["change these, or pass on_unsupported='split':", *grouped(obstacles)])
        super().__init__(where, expected=expected, found=found, fix=fix)


def grouped(obstacles: Sequence[Obstacle]) -> list[str]:
    """Return a line for each kind of obstacle, with all of its places."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for one in obstacles:
        places.setdefault((one.expected, one.found, one.fix), []).append(one.where)
    return [
        f"  {'; '.join(dict.fromkeys(where))}: expected {expected}, found {found}; {fix}"
        for (expected, found, fix), where in places.items()
    ]


_LAYERS = {"conv2d": "real", "linear": "real", "binary_conv2d": "binary", "binary_linear": "binary"}
_SMALL_FAN_IN = 64


@dataclass(frozen=True)
class LayerReport:
    """One layer: its kind and why, multiply-accumulates, bytes in float32 and in the file.

    The kind is binary or real; or binary weights, where the inputs are real, or binary inputs, where the
    weights are.
    """

    name: str
    kind: str
    why: str
    shape: tuple[int, ...]
    macs: int
    float_bytes: int
    file_bytes: int

    @property
    def ratio(self) -> float:
        """How many times smaller the weight is in the file."""
        return self.float_bytes / self.file_bytes


@dataclass(frozen=True)
class ExportReport:
    """The outcome of `bitfactor.export`.

    `float_bytes` are the parameters of the model as a float network; `file_bytes` the size of the file.
    `folded` counts, by operation, those that the model has and the file does without. `real_error` is the
    largest difference that a real-valued layer makes, as a fraction of its largest output. It is rounding in
    float32, and more where weights are stored in less.

    From the first input to the last output, torch and the runtime differ by `max_difference` of the largest
    output. They give the same class (the largest entry of the first output) for `same_class` of
    `checked_inputs`. That they differ at all is rounding, which may turn a value next to zero: each operation
    by itself was checked, see `bitfactor.exporter.parity`. The file itself holds the report as well.
    `calibration` says what precision `low` costs, where there were samples for it, and `integers` what
    precision `integer` does, where the network can be computed so.
    """

    layers: tuple[LayerReport, ...]
    folded: Mapping[str, int]
    warnings: tuple[str, ...]
    real: str
    real_error: float
    float_bytes: int
    checked_inputs: int
    same_class: int
    max_difference: float
    calibration: Calibration | None = None
    integers: Calibration | None = None
    path: str = ""
    file_bytes: int = 0

    def macs(self, kind: str) -> int:
        """Return the multiply-accumulates per sample of the layers of a kind, such as binary or real."""
        return _macs(self.layers, kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain types; path and size of the file only where it has been written."""
        optional = ("calibration", "integers", "path", "file_bytes")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}

    def __str__(self) -> str:
        folded = ", ".join(f"{count} {op}" for op, count in sorted(self.folded.items())) or "nothing"
        return "\n".join(
            [
                layers_table(self.layers),
                "",
                f"{self.path}: {self.file_bytes:,} bytes; as a float network {self.float_bytes:,}"
                f" ({self.float_bytes / self.file_bytes:.1f} times as many)",
                macs_line(self.layers),
                f"folded away: {folded}",
                "each operation gives what torch gives, signs and sums exactly, real-valued layers"
                f" ({self.real}) within {self.real_error:.1e} of the largest output",
                f"end to end: the same class for {self.same_class} of {self.checked_inputs} inputs, half of"
                " them examples and half noise,"
                f" largest difference {self.max_difference:.1e} of the largest output",
                *(str(cost) for cost in (self.calibration, self.integers) if cost),
                *(f"warning: {warning}" for warning in self.warnings),
            ]
        )


def layers_table(layers: Sequence[LayerReport]) -> str:
    """Return the text that shows layers, a line for each."""
    head = ["layer", "kind", "weight (O, kh, kw, C)", "MACs", "float bytes", "file bytes", "ratio", "why"]
    return text_table(head, [_cells(layer) for layer in layers], right=frozenset({3, 4, 5, 6}))


def macs_line(layers: Sequence[LayerReport]) -> str:
    """Return the text that says how many multiply-accumulates are of 1 bit."""
    binary, total = _macs(layers, "binary"), sum(layer.macs for layer in layers)
    share = binary / max(total, 1)
    return f"multiply-accumulates: {binary:,} of 1 bit, {total - binary:,} real ({share:.1%} of 1 bit)"


def _macs(layers: Sequence[LayerReport], kind: str) -> int:
    return sum(layer.macs for layer in layers if layer.kind == kind)


def _cells(layer: LayerReport) -> list[str]:
    return [
        layer.name,
        layer.kind,
        "x".join(map(str, layer.shape)),
        *(f"{count:,}" for count in (layer.macs, layer.float_bytes, layer.file_bytes)),
        f"{layer.ratio:.1f}",
        layer.why,
    ]


def layer_reports(graph: Graph, lowered: "Lowered", model: nn.Module) -> tuple[LayerReport, ...]:
    """Describe the layers of a graph that hold weights, and why they are what they are."""
    modules = dict(model.named_modules())
    return tuple(
        _layer_report(node, graph, _finding(node, lowered, modules))
        for node in graph.nodes
        if node.op in _LAYERS
    )


def _finding(node: Node, lowered: "Lowered", modules: Mapping[str, nn.Module]) -> Finding:
    """Return what is known of a layer: of others' code by its trace, of ours by its module."""
    if lowered.adoption is not None:
        origin, _ = lowered.origins.get(node.name, ("", None))
        return lowered.adoption.findings.get(origin, MADE_OF_OTHERS)
    path = lowered.modules[node.name]
    kind, module = _LAYERS[node.op], modules.get(path)
    if kind == "real" and isinstance(module, BinaryLayer) and not _is_magnitude(node, module):
        if module.binary_weights:
            return Finding("binary weights", "its inputs are still real", path)
        if module.binary_activations:
            return Finding("binary inputs", "its weights are still real", path)
        return Finding("real", "its inputs and weights are still real", path)
    return Finding(kind, _why(module, kind), path)


def _is_magnitude(node: Node, layer: BinaryLayer) -> bool:
    """Whether a real layer is the mean of a binary layer's K, with one weight for all."""
    weight = node.tensors["weight"]
    return layer.input_scale and layer.binary_activations and bool((weight == weight.flat[0]).all())


def _layer_report(node: Node, graph: Graph, finding: Finding) -> LayerReport:
    weight, kind = node.tensors["weight"], finding.kind
    shape = weight.shape
    if kind == "binary":
        channels = graph.values[node.inputs[0]].shape[0] // node.attributes.get("groups", 1)
        shape = (*shape[:-1], channels)
    return LayerReport(
        name=node.name,
        kind=kind,
        why=finding.why,
        shape=shape,
        macs=prod(shape) * prod(graph.values[node.name].shape[1:]),
        float_bytes=4 * prod(shape),
        file_bytes=stored_bytes("weight", weight),
    )


def _why(module: nn.Module | None, kind: str) -> str:
    if kind == "binary":
        return "turned binary"
    if isinstance(module, BinaryLayer):
        return "the magnitude of a binary layer's input"
    return getattr(module, "kept_real", "never went through binarize_")


def warnings_about(layers: tuple[LayerReport, ...], model: nn.Module, example: Call) -> tuple[str, ...]:
    """Return what a user should know of a model that exports, but may not do what was hoped."""
    signs = [name for name, layer in binary_layers(model).items() if name and layer.binary_activations]
    dead = dead_layers(model, signs, example, training=False)
    return (*_small_layers(layers), *_never_binarized(layers), *_unused_latents(model), *dead)


def _small_layers(layers: tuple[LayerReport, ...]) -> list[str]:
    few = [
        f"{layer.name} ({prod(layer.shape[1:])})"
        for layer in layers
        if layer.kind == "binary" and prod(layer.shape[1:]) < _SMALL_FAN_IN
    ]
    if not few:
        return []
    return [
        f"too few signs per output to be faster or smaller than a real-valued layer by much: {', '.join(few)}"
    ]


def _never_binarized(layers: tuple[LayerReport, ...]) -> list[str]:
    names = [layer.name for layer in layers if layer.why == _why(None, "real")]
    return [f"real-valued, and never went through binarize_: {', '.join(names)}"] if names else []


def _unused_latents(model: nn.Module) -> list[str]:
    """Weights that the sign's estimator gives no gradient: training no longer moves them."""
    frozen = [
        f"{name} ({outside:.0%})"
        for name, layer in binary_layers(model).items()
        if layer.binary_weights
        and layer.weight_estimator == "clipped"
        and (outside := float((layer.real_filters().detach().abs() > 1).float().mean())) > 0.5
    ]
    if not frozen:
        return []
    return [
        "most real-valued weights before the sign are beyond -1 ... 1, where they get no gradient: "
        + ", ".join(frozen)
    ]


def folded_away(before: Graph, after: Graph) -> dict[str, int]:
    """Count, by operation, the nodes that folding removed."""
    counts = Counter(node.op for node in before.nodes)
    counts.subtract(node.op for node in after.nodes)
    return {op: count for op, count in counts.items() if count > 0}


def float_bytes(model: nn.Module) -> int:
    """Return the bytes of `model`'s parameters were it a float network: a weight for each decomposition."""
    binary = binary_layers(model).values()
    own = {id(parameter) for layer in binary for parameter in layer.parameters()}
    numbers = sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in own)
    for layer in binary:
        numbers += prod(layer.latent.shape) + (0 if layer.bias is None else layer.bias.numel())
    return 4 * numbers
