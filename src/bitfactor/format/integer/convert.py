"""From a graph of real numbers to one of integers.

A scale, PReLU or affine map of a binary layer's sums is a *term*: one multiplication of the sums, one
rounding, and an offset. A sum of values takes its terms as they are; whatever else reads one takes it as a
value of the stream. Values between which nothing is rescaled, such as those of a concatenation, have one
scale. A clip that alone reads a weighted sum is its bounds. A layer that it alone reads has its scale,
because what is beyond is cut.

A real x is S * X. Every real factor is a multiplier M of 16 bits behind a shift, M / 2^k; one k a node.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.format.bits import unpack_signs
from bitfactor.format.graph import Graph, needed
from bitfactor.format.integer.bounds import magnitudes
from bitfactor.format.integer.graph import MOVES, IntegerGraph, IntegerValue, Type
from bitfactor.format.operations import Node
from bitfactor.format.operations.convolution import by_pixels, real_weight, terms_of
from bitfactor.format.operations.integer import (
    LARGEST,
    MOST_OFFSET,
    MOST_POOLED,
    MOST_SHIFT,
    PIXEL,
    SUM_LIMIT,
    reach_of,
)
from bitfactor.format.operations.move import stays
from bitfactor.format.operations.operation import bad, spread
from bitfactor.format.operations.pool import counted_taps

Reals = NDArray[np.float64]

_LEAST_EXPONENT = -126  # of a normal float32, as which every scale is stored
_CALIBRATE = "export the run with --calibration N, or in Python with calibration=samples"
_OF_SIGN = 2.0**100  # a factor that makes a sign of what is clipped behind it
_SMALLER = f"train it with smaller weights, or take ranges from more samples: {_CALIBRATE}"
_KEEP_SCALE = ("relu", "prelu", "max_pool2d", "avg_pool2d", "global_avg_pool", *MOVES)


def integer_graph(
    graph: Graph, spec: InputSpec | None = None, ranges: Mapping[str, float] | None = None
) -> IntegerGraph:
    """Return `graph` in integers.

    Parameters
    ----------
    graph
        The network of a model file.
    spec
        How images become its inputs, if it takes images.
    ranges
        The largest magnitude of each real value on samples; what the weights allow if left out.

    Raises
    ------
    InputError
        If an operation is not defined in integers, or a value does not fit; the message names the node.

    Example
    -------
    >>> model = bitfactor.format.load("net.safetensors")
    >>> integer_graph(model.graph, model.input_spec).outputs
    ('fc.flatten',)
    """
    graph = needed(graph)
    _expect_defined(graph)
    if ranges is None and spec is None:
        raise InputError(
            f"input {graph.input.name!r}",
            expected="an image, or ranges from samples, for precision 'integer'",
            found="an input of any size, and no samples",
            fix=_CALIBRATE,
        )
    return _Converter(
        graph, spec, magnitudes(graph, spec) if ranges is None and spec else ranges or {}
    ).converted()


@dataclass(frozen=True)
class _Term:
    """Real factors of a binary layer's sums: where they are above 0, and where not; what is added to both."""

    sums: str
    positive: Reals
    negative: Reals
    offset: Reals | None = None


class _Converter:
    def __init__(self, graph: Graph, spec: InputSpec | None, ranges: Mapping[str, float]) -> None:
        self.graph, self.spec, self.ranges = graph, spec, ranges
        self.nodes: list[Node] = []
        self.values: dict[str, IntegerValue] = {}
        self.terms: dict[str, _Term] = {}
        self.readers: dict[str, list[Node]] = {name: [] for name in graph.values}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers[name].append(node)
        for node in graph.nodes:
            self._find_term(node)
        self.clipped = dict(self._clipped())
        self.scales = self._scales()

    def converted(self) -> IntegerGraph:
        name = self.graph.input.name
        self._value(name, "pixel" if self.spec else "stream", 1.0 if self.spec else self.scales[name])
        if self.spec:
            for node in self.readers[name]:
                if node.op not in ("conv2d", "linear"):
                    raise _undefined(node, "of an image")
        for node in self.graph.nodes:
            if node.name not in self.terms and node.name not in self.clipped:
                _CONVERTED[node.op](self, node)
        for output in self.graph.outputs:
            self.stream(output)
        return IntegerGraph(name, tuple(self.nodes), self.graph.outputs, self.values, self.spec)

    def _find_term(self, node: Node) -> None:
        """A scale of sums, and a PReLU or ReLU of that, is one multiplication."""
        if node.op == "scale" and self.graph.values[node.inputs[0]].dtype == "int32":
            alpha = node.tensors["alpha"].astype(np.float64)
            self.terms[node.name] = _Term(node.inputs[0], alpha, alpha)
        before = self.terms.get(node.inputs[0]) if node.inputs else None
        if before is None or before.offset is not None:
            return
        if node.op == "affine":
            scale, shift = (node.tensors[role].astype(np.float64) for role in ("scale", "shift"))
            positive, negative = before.positive * scale, before.negative * scale
            self.terms[node.name] = _Term(before.sums, positive, negative, shift)
        if node.op in ("prelu", "relu") and before.positive is before.negative:
            alpha = before.positive
            slope = (
                spread(node.tensors["slope"].astype(np.float64), alpha.ndim) if node.op == "prelu" else 0.0
            )
            bent = alpha * slope
            rises = alpha > 0
            term = _Term(before.sums, np.where(rises, alpha, bent), np.where(rises, bent, alpha))
            self.terms[node.name] = term

    def _clipped(self) -> Iterator[tuple[str, Node]]:
        """Yield the weighted sums that a clip alone reads: they are computed there, within its bounds."""
        for node in self.graph.nodes:
            readers = self.readers[node.name]
            clipped = len(readers) == 1 and readers[0].op == "clip" and node.name not in self.graph.outputs
            if clipped and (node.op in ("add", "affine", "scale") or node.name in self.terms):
                yield node.name, node

    def _scales(self) -> dict[str, float]:
        """Return the scale of each real value: that of all values that must have the same one."""
        group = {name: name for name in self.graph.values}
        for node in self.graph.nodes:
            if node.op in _KEEP_SCALE and node.name not in self.terms:
                for name in node.inputs:
                    old, new = group[name], group[node.name]
                    group = {value: new if own == old else own for value, own in group.items()}
        largest: dict[str, float] = {}
        for name, own in group.items():
            if self.graph.values[name].dtype == "float32" and not (
                self.spec and name == self.graph.input.name
            ):
                largest[own] = max(largest.get(own, 0.0), self._range(name))
        scales = {name: scale_for(largest[own]) for name, own in group.items() if own in largest}
        clips = [node for node in self.graph.nodes if node.op == "clip"]
        layers = {node.name for node in self.graph.nodes if node.op in ("conv2d", "linear")}
        for clip in clips:
            (name,) = clip.inputs
            if name in layers and self.readers[name] == [clip] and name not in self.graph.outputs:
                scales[name] = scales[clip.name]
        return scales

    def _range(self, name: str) -> float:
        r = self.ranges.get(name, math.inf)
        if not math.isfinite(r):
            node = next(node for node in self.graph.nodes if node.name == name)
            raise bad(node, "a value within bounds", f"magnitudes up to {r}", _SMALLER)
        return r

    def _value(self, name: str, type: Type, scale: float = 1.0) -> None:
        self.values[name] = IntegerValue(name, self.graph.values[name].shape, type, scale)

    def add(self, node: Node, type: Type, scale: float = 1.0) -> None:
        self.nodes.append(node)
        self._value(node.name, type, scale)

    def stream(self, name: str) -> str:
        """Make a term a value of the stream, if something reads it as one."""
        if name in self.terms and name not in self.values:
            node = next(node for node in self.graph.nodes if node.name == name)
            self.weigh(node, (name,), terms=True)
        return name

    def weigh(
        self,
        node: Node,
        inputs: tuple[str, ...],
        factors: NDArray[np.float64] | None = None,
        *,
        terms: bool = False,
        offset: Reals | None = None,
        bounds: tuple[int, int] = (-LARGEST, LARGEST),
    ) -> None:
        """Add a weighted sum of inputs, whose multipliers are what their scales ask for."""
        scale = self.scales[node.name]
        names, shifts = [], []
        tensors: dict[str, NDArray[Any]] = {}
        offsets = [] if offset is None else [offset]
        for i, name in enumerate(inputs):
            if terms and name in self.terms:
                term = self.terms[name]
                source, signed = term.sums, (term.positive / scale, term.negative / scale)
                offsets += [] if term.offset is None else [term.offset]
            else:
                source = self.stream(name)
                ratio = self.values[source].scale / scale * (np.ones(1) if factors is None else factors)
                signed = (ratio, ratio)
            found = (np.ones((2, 1), np.int16), 0)
            if source in self.values and not all(part.size == 1 and part.item() == 1 for part in signed):
                found = self._multipliers(node, np.stack(signed))
            names.append(source)
            shifts.append(found[1])
            tensors |= {f"positive{i}": found[0][0], f"negative{i}": found[0][1]}
        attributes = {"shifts": tuple(shifts), "lower": bounds[0], "upper": bounds[1]}
        made = Node(node.name, "weigh", tuple(names), attributes, tensors)
        if offsets:
            reach = sum(reach_of(made, i) for i in range(len(names)))
            most = min(MOST_OFFSET, SUM_LIMIT - 1 - reach)  # no sum leaves 32 bits
            tensors["offset"] = np.clip(np.rint(sum(offsets) / scale), -most, most).astype(np.int32)
        self.add(made, "stream", scale)

    def _multipliers(self, node: Node, factors: Reals, fix: str = _SMALLER) -> tuple[NDArray[np.int16], int]:
        found = multipliers(factors)
        if found is None:
            largest = float(np.abs(factors).max())
            if largest > _OF_SIGN:
                wanted, seen = "a sign before a layer of signs", "one before a real-valued layer"
                raise bad(node, wanted, seen, "make that layer's weights binary, or take float precision")
            raise bad(node, f"factors up to {LARGEST} of its scales", f"{largest:g}", fix)
        return found

    def gives_output(self, node: Node) -> bool:
        """Whether a value is an output alone, in another shape at most."""
        readers = self.readers[node.name]
        if node.name in self.graph.outputs:
            return not readers
        shapes = {name: value.shape for name, value in self.graph.values.items()}
        alike = all(stays(reader, shapes[node.name], shapes[reader.name]) for reader in readers)
        return bool(readers) and alike and all(map(self.gives_output, readers))

    def layer(self, node: Node) -> None:
        """Add a real-valued layer; weights in the scale of their input."""
        source = self.stream(node.inputs[0])
        reads_image = self.values[source].type == "pixel"
        layer, channels = _as_convolution(node), self.graph.values[source].shape[0]
        weight = real_weight(layer).astype(np.float64)
        if not (np.isfinite(weight).all() and np.isfinite(node.tensors["bias"]).all()):
            raise bad(node, "weights that are numbers", "NaN or infinity", "export the model again")
        depth = weight.shape[-1]
        zero = [Fraction(0)] * channels
        of_input = np.full(channels, self.values[source].scale)
        if reads_image and self.spec:
            zero = [Fraction(255) * Fraction(mean) - PIXEL for mean in self.spec.mean]
            if any(layer.attributes["padding"]) and not all(-PIXEL <= z < PIXEL for z in zero):
                found, fix = f"a mean of {self.spec.mean}", "train with means from 0 to 1, or without padding"
                raise bad(node, "padding of 0 that a pixel can have: a mean from 0 to 1", found, fix)
            of_input = 1 / (255 * np.array(self.spec.std))
        groups = int(layer.attributes["groups"])
        own = of_input.reshape(groups, depth)[np.arange(len(weight)) // (len(weight) // groups)]
        made = _Weights(weight * own[:, None, None], node.tensors["bias"], zero, groups)
        final = self.gives_output(node)
        scale = self.scales[node.name]
        steps = made.steps(PIXEL if reads_image else LARGEST, one=final, empty=scale)
        levels, bias = made.levels(steps), made.bias(steps)
        outside = np.array([round(z) for z in zero], np.int16)
        tensors: dict[str, NDArray[Any]] = {"weight": levels.astype(np.int8), "bias": bias.astype(np.int32)}
        tensors |= {"outside": outside}
        attributes = _window_of(layer)
        if final:
            step = float(np.float32(steps[0]))  # as it is stored
            self.add(Node(node.name, "conv", (source,), attributes, tensors), "output", step)
            return
        factor, shift = self._multipliers(node, steps / scale)
        tensors |= {"multiplier": factor}
        self.add(Node(node.name, "conv", (source,), {**attributes, "shift": shift}, tensors), "stream", scale)

    def binary_layer(self, node: Node) -> None:
        shape = self.graph.values[node.inputs[0]].shape
        count = terms_of(node, shape)
        if count > LARGEST:
            raise bad(node, f"sums of at most {LARGEST} signs", str(count), "use fewer channels, or groups")
        layer = _as_convolution(node)
        weight = unpack_signs(layer.tensors["weight"], shape[0] // int(layer.attributes["groups"]))
        attributes = {**_window_of(layer), "pad_value": int(layer.attributes["pad_value"])}
        self.add(Node(node.name, "binary_conv", node.inputs, attributes, {"weight": weight}), "sum")

    def threshold(self, node: Node) -> None:
        source, direction = self.stream(node.inputs[0]), node.tensors["direction"]
        limits = thresholds(node.tensors["threshold"], direction, self.values[source].scale)
        tensors = {"threshold": limits, "direction": direction}
        self.add(Node(node.name, "threshold", (source,), {}, tensors), "bit")

    def sum(self, node: Node) -> None:
        self._weighed(node, node)

    def _weighed(self, node: Node, of: Node, bounds: tuple[int, int] = (-LARGEST, LARGEST)) -> None:
        """Add, under the name of `node`, what `of` weighs its inputs by."""
        roles = {"scale": ("alpha",), "affine": ("scale", "shift")}.get(of.op, ())
        factors, shift, *_ = [*(of.tensors[role].astype(np.float64) for role in roles), None, None]
        self.weigh(node, of.inputs, factors, terms=not roles, offset=shift, bounds=bounds)

    def clip(self, node: Node) -> None:
        ends = [np.rint(node.attributes[end] / self.scales[node.name]) for end in ("lower", "upper")]
        lower, upper = (int(np.clip(end, -LARGEST, LARGEST)) for end in ends)
        of = self.clipped.get(node.inputs[0])
        self._weighed(node, node if of is None or of.name in self.terms else of, (lower, upper))

    def relu(self, node: Node) -> None:
        self.weigh(node, node.inputs, bounds=(0, LARGEST))

    def prelu(self, node: Node) -> None:
        fix = "train it with smaller slopes, or use another precision"
        slope, shift = self._multipliers(node, node.tensors["slope"].astype(np.float64), fix)
        made = Node(node.name, "prelu", (self.stream(node.inputs[0]),), {"shift": shift}, {"slope": slope})
        self.add(made, "stream", self.scales[node.name])

    def pool(self, node: Node) -> None:
        shape = self.graph.values[node.inputs[0]].shape
        if node.op == "global_avg_pool":
            whole = {"kernel": shape[1:], "stride": (1, 1), "padding": (0, 0, 0, 0), "count_include_pad": 0}
            node = replace(node, op="avg_pool2d", attributes=whole)
        if node.op == "avg_pool2d" and counted_taps(node, shape).max() > MOST_POOLED:
            found = str(counted_taps(node, shape).max())
            raise bad(node, f"a mean of at most {MOST_POOLED} values", found, "pool in two steps")
        self.move(node)

    def move(self, node: Node) -> None:
        sources = tuple(map(self.stream, node.inputs))
        first = self.values[sources[0]]
        if node.op == "pad":
            value = np.clip(np.rint(node.attributes["value"] / first.scale), -LARGEST, LARGEST)
            node = replace(node, attributes={**node.attributes, "value": float(value)})
        self.add(replace(node, inputs=sources), first.type, first.scale)


class _Weights:
    """A real-valued layer: weight (O, kh, kw, C) in the scale of its input, bias, zero of each channel."""

    def __init__(self, weight: Reals, bias: NDArray[np.float32], zero: list[Fraction], groups: int) -> None:
        self.weight, self.real_bias, self.zero, self.groups = weight, bias.astype(np.float64), zero, groups

    def steps(self, largest: int, *, one: bool, empty: float) -> Reals:
        """Return the step of each output: 1/127 of its largest weight, or larger until sums fit 32 bits.

        An output without weights has the step `empty`; with `one`, all have the same.
        """
        steps = np.abs(self.weight).reshape(len(self.weight), -1).max(1) / 127
        if one:
            steps = np.full_like(steps, steps.max())
        steps = np.where(steps > 0, steps, empty)
        while True:
            sums = np.abs(self.levels(steps)).reshape(len(steps), -1).sum(1) * largest
            beyond = np.array(
                [abs(b) + int(s) >= SUM_LIMIT for b, s in zip(self.bias(steps), sums, strict=True)]
            )
            if not beyond.any():
                return steps
            steps = np.where(beyond | (one and beyond.any()), 2 * steps, steps)

    def levels(self, steps: Reals) -> NDArray[np.int64]:
        return np.rint(self.weight / steps[:, None, None, None]).astype(np.int64)

    def bias(self, steps: Reals) -> NDArray[Any]:
        """Return rint(bias / step - sum(W Z)), exactly."""
        by_channel = self.levels(steps).sum((1, 2))
        made = [
            Fraction(b) / Fraction(s) for b, s in zip(self.real_bias.tolist(), steps.tolist(), strict=True)
        ]
        if any(self.zero):
            depth, size = by_channel.shape[1], len(by_channel) // self.groups
            for i, row in enumerate(by_channel.tolist()):
                first = i // size * depth
                made[i] -= sum(n * z for n, z in zip(row, self.zero[first : first + depth], strict=True))
        return np.array([round(b) for b in made], object)


def _as_convolution(node: Node) -> Node:
    return by_pixels(node) if node.op in ("linear", "binary_linear") else node


def _window_of(layer: Node) -> dict[str, Any]:
    window = {name: tuple(layer.attributes[name]) for name in ("stride", "padding", "dilation")}
    return {**window, "groups": int(layer.attributes["groups"]), "pixels": layer.op.endswith("linear")}


_CONVERTED: dict[str, Callable[[_Converter, Node], None]] = {
    "conv2d": _Converter.layer,
    "linear": _Converter.layer,
    "binary_conv2d": _Converter.binary_layer,
    "binary_linear": _Converter.binary_layer,
    "threshold": _Converter.threshold,
    "add": _Converter.sum,
    "scale": _Converter.sum,
    "affine": _Converter.sum,
    "clip": _Converter.clip,
    "relu": _Converter.relu,
    "prelu": _Converter.prelu,
    "max_pool2d": _Converter.pool,
    "avg_pool2d": _Converter.pool,
    "global_avg_pool": _Converter.pool,
    **dict.fromkeys(MOVES, _Converter.move),
}


def _expect_defined(graph: Graph) -> None:
    """Raise InputError for an operation without a definition in integers, by name."""
    if graph.others:
        raise InputError(
            "graph",
            expected="one input, for precision 'integer'",
            found=str(len(graph.inputs)),
            fix="split the model",
        )
    if graph.input.name in graph.outputs:
        expected, found = "a value that is computed, for precision 'integer'", "the input"
        where = f"output {graph.input.name!r}"
        raise InputError(where, expected=expected, found=found, fix="leave it out of the outputs")
    for node in graph.nodes:
        if node.op not in _CONVERTED:
            raise _undefined(node)
        if len(graph.values[node.name].shape) > 3:
            raise _undefined(node, "over several maps")
        for role in ("alpha", "scale", "shift", "slope"):
            if role in node.tensors and node.tensors[role].ndim > 1:
                raise _undefined(node, "of single pixels")


def _undefined(node: Node, how: str = "") -> InputError:
    found = f"{node.op} {how}".strip()
    return bad(
        node,
        "an operation that precision 'integer' defines",
        found,
        "use another precision, or replace it",
    )


def multipliers(factors: Reals) -> tuple[NDArray[np.int16], int] | None:
    """Return M and the largest k of 0 to 30 with M = rint(factors 2^k) in 16 bits; None if there is none."""
    largest = float(np.abs(factors).max(initial=0.0))
    for k in range(MOST_SHIFT, -1, -1):
        if np.rint(np.ldexp(largest, k)) <= LARGEST:
            return np.rint(np.ldexp(factors, k)).astype(np.int16), k
    return None


def scale_for(largest: float) -> float:
    """Return the least power of two S with largest <= 32767 S; 1 for a value that is 0 alone."""
    if largest == 0:
        return 1.0
    exponent = max(math.frexp(largest)[1] - 16, _LEAST_EXPONENT)
    while largest > math.ldexp(LARGEST, exponent):
        exponent += 1
    return math.ldexp(1.0, exponent)


def thresholds(threshold: NDArray[Any], direction: NDArray[np.int8], scale: float) -> NDArray[np.int16]:
    """Return T with direction * X > T exactly where direction * S X > direction * threshold.

    That holds for every integer X within 16 bits, since S is a power of two. 32767 is never, -32768 always.
    """
    quotient = np.floor(direction.astype(np.float64) * threshold.astype(np.float64) / scale)
    return np.clip(quotient, -LARGEST - 1, LARGEST).astype(np.int16)
