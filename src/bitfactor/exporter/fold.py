"""Passes over a lowered Graph: fewer operations, the same function.

- `merge_equal`: what is computed twice, such as the sign that two layers take of one value, is computed once;
- `fold_affine`: a conv2d or linear layer and the affine behind it (its BatchNorm) become one layer;
- `fold_signs`: a sign and the per-channel operations before it become one threshold;
- `remove_dead`: what no output needs goes.

Where does a sign flip? Found by running the float pipeline itself, never by solving for it.

Between a value and the next sign stand per-channel operations (scale, ReLU, PReLU, clip, affine), each
rounded to float32. Their composition is monotone per channel, so the sign is a comparison with one number:
+1 where direction * x > direction * threshold. For the sums of a binary layer, every possible sum is tried;
for a float, the threshold is found by bisection over all float32 numbers. Rounding, ties, negative alpha and
zero or negative gamma therefore need no case of their own.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx
from torch.nn import functional as F

from bitfactor.exporter.follow import name_of
from bitfactor.format import Graph, Node
from bitfactor.format.operations.convolution import terms_of

Thresholds = tuple[NDArray[np.float32], NDArray[np.int8]]


def apply(chain: Sequence[Node], x: Tensor) -> Tensor:
    """Run per-channel operations on x (1, C, M, 1) with torch's own kernels."""
    for node in chain:
        parameters = {role: torch.from_numpy(array) for role, array in node.tensors.items()}
        x = _KERNELS[node.op](x, parameters | dict(node.attributes))
    return x


def of_sums(chain: Sequence[Node], channels: int, largest: int) -> Thresholds | None:
    """Return the thresholds, on sums in -largest..largest, of `chain` followed by a sign.

    None if the chain is not monotone.

    Returns
    -------
    threshold (C,), direction (C,)
    """
    sums = torch.arange(-largest, largest + 1, dtype=torch.float32)
    positive = apply(chain, sums.view(1, 1, -1, 1).expand(1, channels, -1, 1))[0, :, :, 0] > 0
    if bool(((positive[:, 1:] != positive[:, :-1]).sum(1) > 1).any()):
        return None
    rising, falling = positive[:, -1] & ~positive[:, 0], positive[:, 0] & ~positive[:, -1]
    threshold = torch.where(positive[:, 0], -torch.inf, torch.inf)
    threshold[rising] = sums[(~positive).sum(1) - 1][rising]
    threshold[falling] = sums[positive.sum(1).clamp(max=len(sums) - 1)][falling]
    return threshold.numpy(), torch.where(falling, -1, 1).to(torch.int8).numpy()


def of_floats(chain: Sequence[Node], channels: int) -> Thresholds:
    """Return the thresholds on float32 numbers of a monotone `chain` followed by a sign.

    Returns
    -------
    threshold (C,), direction (C,)
    """
    low = torch.full(
        (channels,), to_rank(torch.tensor(-torch.finfo(torch.float32).max)).item(), dtype=torch.int64
    )
    high = -low - 1
    at_low, at_high = _positive(chain, low), _positive(chain, high)
    falling = at_low & ~at_high
    for _ in range(33):
        middle = (low + high).div(2, rounding_mode="floor")
        like_low = _positive(chain, middle) == at_low
        low, high = torch.where(like_low, middle, low), torch.where(like_low, high, middle)
    threshold = torch.where(falling, from_rank(high), from_rank(low))
    threshold = torch.where(at_low == at_high, torch.where(at_low, -torch.inf, torch.inf), threshold)
    return threshold.numpy(), torch.where(falling, -1, 1).to(torch.int8).numpy()


def _positive(chain: Sequence[Node], ranks: Tensor) -> Tensor:
    return apply(chain, from_rank(ranks).view(1, -1, 1, 1)).flatten() > 0


def to_rank(x: Tensor) -> Tensor:
    """Number the float32 values in their order: -0.0 is -1, 0.0 is 0."""
    bits = x.view(torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def from_rank(rank: Tensor) -> Tensor:
    """Return the float32 values that have these numbers."""
    bits = torch.where(rank < 0, (-rank - 1) | -0x80000000, rank)
    return bits.to(torch.int32).view(torch.float32)


def _affine(x: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    channels = x.shape[1]
    zeros, ones = torch.zeros(channels), torch.ones(channels)
    # Not the function of torch.nn.functional, which in some versions of torch refuses an eps of 0.
    return torch.batch_norm(x, tensors["scale"], tensors["shift"], zeros, ones, False, 0.0, 0.0, False)


_KERNELS = {
    "scale": lambda x, tensors: x * tensors["alpha"].view(-1, 1, 1),
    "relu": lambda x, tensors: torch.relu(x),
    "prelu": lambda x, tensors: F.prelu(x, tensors["slope"]),
    "clip": lambda x, bounds: torch.clamp(x, bounds["lower"], bounds["upper"]),
    "affine": _affine,
}


_PER_CHANNEL = ("scale", "relu", "prelu", "clip", "affine")


def fold(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Run all passes.

    Returns
    -------
    The folded graph, and name in it -> name in `graph` of the same value, where the two differ.
    """
    graph, stands_for = fold_affine(fold_pads(merge_equal(graph)))
    return remove_dead(fold_signs(graph)), stands_for


def merge_equal(graph: Graph) -> Graph:
    """Keep the first of nodes that do the same to the same values."""
    first: dict[object, str] = {}
    instead: dict[str, str] = {}
    nodes: list[Node] = []
    for original in graph.nodes:
        node = replace(original, inputs=tuple(instead.get(name, name) for name in original.inputs))
        kept = first.setdefault(_fingerprint(node), node.name)
        if kept == node.name:
            nodes.append(node)
        else:
            instead[node.name] = kept
    return replace(
        graph, nodes=tuple(nodes), outputs=tuple(instead.get(name, name) for name in graph.outputs)
    )


def _fingerprint(node: Node) -> object:
    tensors = [
        (role, str(array.dtype), array.shape, array.tobytes()) for role, array in sorted(node.tensors.items())
    ]
    return node.op, node.inputs, tuple(sorted(node.attributes.items())), tuple(tensors)


def fold_pads(graph: Graph) -> Graph:
    """Let a convolution add the zeros itself that were put around its map, as Keras' `same` puts them."""
    nodes: dict[str, Node] = {}
    for node in graph.nodes:
        while node.op == "conv2d" and (pad := nodes.get(node.inputs[0])) and pad.op == "pad":
            side = pad.attributes["axis"] - 1  # of height or width, behind the channels
            if side not in (0, 1) or pad.attributes["value"] or len(graph.values[pad.name].shape) != 3:
                break
            padding = list(node.attributes["padding"])
            padding[side] += pad.attributes["before"]
            padding[2 + side] += pad.attributes["after"]
            reach = node.attributes["dilation"][side] * (node.tensors["weight"].shape[1 + side] - 1)
            if max(padding[side], padding[2 + side]) > reach:
                break
            attributes = {**node.attributes, "padding": tuple(padding)}
            node = replace(node, inputs=pad.inputs, attributes=attributes)
        nodes[node.name] = node
    return replace(graph, nodes=tuple(nodes.values()))


def fold_affine(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Multiply the affine behind a real layer into its weight and bias, computed in float64.

    Returns what `fold` returns: the layer keeps its name and gives the affine's value.
    """
    used = Counter([*graph.outputs, *(name for node in graph.nodes for name in node.inputs)])
    nodes: dict[str, Node] = {}
    folded: dict[str, str] = {}
    for original in graph.nodes:
        node = replace(original, inputs=tuple(folded.get(name, name) for name in original.inputs))
        layer = nodes.get(node.inputs[0]) if node.op == "affine" and _is_per_channel(node) else None
        if layer and layer.op in ("conv2d", "linear") and used[original.inputs[0]] == 1:
            nodes[layer.name] = _scaled(layer, node)
            folded[node.name] = layer.name
        else:
            nodes[node.name] = node
    outputs = tuple(folded.get(name, name) for name in graph.outputs)
    stands_for = {layer: affine for affine, layer in folded.items()}
    return replace(graph, nodes=tuple(nodes.values()), outputs=outputs), stands_for


def _scaled(layer: Node, affine: Node) -> Node:
    scale = affine.tensors["scale"].astype(np.float64)
    weight = layer.tensors["weight"] * scale.reshape(-1, *[1] * (layer.tensors["weight"].ndim - 1))
    bias = layer.tensors["bias"] * scale + affine.tensors["shift"]
    tensors = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    return replace(layer, tensors=tensors)


def fold_signs(graph: Graph) -> Graph:
    """Replace per-channel operations and a sign by one comparison with thresholds.

    From the sums of a binary layer the whole chain is folded; from a float value, the affine alone, which is
    monotone by construction.
    """
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op == "threshold":
            nodes[node.name] = _folded(node, nodes, graph)
    return replace(graph, nodes=tuple(nodes.values()))


def _folded(sign: Node, nodes: dict[str, Node], graph: Graph) -> Node:
    chain: list[Node] = []
    name = sign.inputs[0]
    while name in nodes and nodes[name].op in _PER_CHANNEL and _is_per_channel(nodes[name]):
        chain.insert(0, nodes[name])
        name = nodes[name].inputs[0]
    channels = graph.values[sign.name].shape[0]
    if chain and graph.values[name].dtype == "int32":
        largest = terms_of(nodes[name], graph.values[nodes[name].inputs[0]].shape)
        found = of_sums(chain, channels, largest)
        if found is not None:
            return _comparison(sign, name, found)
    if chain and chain[-1].op == "affine":
        return _comparison(sign, chain[-1].inputs[0], of_floats(chain[-1:], channels))
    return sign


def _comparison(sign: Node, source: str, found: Thresholds) -> Node:
    return replace(sign, inputs=(source,), tensors={"threshold": found[0], "direction": found[1]})


def _is_per_channel(node: Node) -> bool:
    return all(tensor.ndim == 1 for tensor in node.tensors.values())


def remove_dead(graph: Graph) -> Graph:
    """Drop the nodes that no output depends on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name in needed))


_MOST = 8  # cuts of a function: one of more is no sign
_FLOAT = torch.finfo(torch.float32)


@dataclass(frozen=True)
class Steps:
    """values[0] where `source` is below cuts[0], values[1] from there on up to before cuts[1], and so on."""

    source: fx.Node
    cuts: tuple[float, ...]
    values: Tensor

    def thresholds(self) -> list[float]:
        """Return for each cut the number that a value above it has passed the cut."""
        return [_before(cut) for cut in self.cuts]

    def apart_at_zero(self) -> bool:
        """Whether there are two values everywhere except at 0, where a sign has a third."""
        return len(self.values) == 3 and self.cuts[0] == 0 and _before(self.cuts[1]) == 0


@dataclass(frozen=True)
class Levels:
    """The two values of a sign: middle - half and middle + half."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def _before(cut: float) -> float:
    return from_rank(to_rank(torch.tensor(cut, dtype=torch.float32)) - 1).item()


def stepped(
    source: fx.Node,
    function: Callable[[Tensor], Tensor],
    bounds: "Bounds",
    monotone: Sequence[Callable[[Tensor], Tensor]] = (),
) -> Steps | None:
    """Return a function of `source`, which lies within bounds, as Steps; None if it has many values.

    It is monotone, or has its cuts where the functions `monotone` have theirs.
    """
    low, high = (int(to_rank(torch.tensor(bound, dtype=torch.float32))) for bound in bounds)
    cuts = sorted({cut for each in monotone or (function,) for cut in _cuts(each, low, high)})
    if len(cuts) > _MOST:
        return None
    values = torch.stack([_at(function, rank) for rank in (low, *cuts)])
    return _without_equal(
        Steps(source, tuple(from_rank(torch.tensor(cuts, dtype=torch.int64)).tolist()), values)
    )


def _at(function: Callable[[Tensor], Tensor], rank: int) -> Tensor:
    values: Tensor = function(from_rank(torch.tensor([rank])))
    return values[0]


def _cuts(function: Callable[[Tensor], Tensor], low: int, high: int) -> list[int]:
    """Return where a monotone function has another value than for the number before, a few at most."""
    cuts = list[int]()

    def search(low: int, high: int, below: Tensor, above: Tensor) -> None:
        if below == above or len(cuts) > _MOST:
            return
        if high - low == 1:
            cuts.append(high)
            return
        middle = (low + high) // 2
        between = _at(function, middle)
        search(low, middle, below, between)
        search(middle, high, between, above)

    search(low, high, _at(function, low), _at(function, high))
    return cuts


def _without_equal(steps: Steps) -> Steps:
    """Return steps without the cuts at which the value stays."""
    values = steps.values
    kept = [i for i in range(len(steps.cuts)) if values[i] != values[i + 1]]
    return Steps(steps.source, tuple(steps.cuts[i] for i in kept), values[[0, *(i + 1 for i in kept)]])


def combined(node: fx.Node, known: Mapping[fx.Node, Any]) -> Steps | None:
    """Return what a pointwise operator gives for operands that are Steps of one source, or single numbers."""
    steps = [known[operand] for operand in node.all_input_nodes if isinstance(known.get(operand), Steps)]
    source, cuts = steps[0].source, sorted({cut for one in steps for cut in one.cuts}, key=_rank)
    if any(one.source is not source for one in steps):
        return None

    def spread(operand: fx.Node) -> Tensor:
        value = known[operand]
        if isinstance(value, Steps):
            places = [sum(_rank(cut) <= _rank(at) for cut in value.cuts) for at in (None, *cuts)]
            return value.values[places].clone()
        number: Tensor = value.reshape(())
        return number

    args, kwargs = fx.map_arg((node.args, node.kwargs), spread)
    values = node.target(*args, **kwargs)  # type: ignore[operator]
    if values.shape != (len(cuts) + 1,):
        return None
    return _without_equal(Steps(source, tuple(cuts), values))


def _rank(cut: float | None) -> float:
    return -torch.inf if cut is None else int(to_rank(torch.tensor(cut, dtype=torch.float32)))


Bounds = tuple[float, float]
ANY: Bounds = (_FLOAT.min, _FLOAT.max)
_WITHIN: dict[str, Bounds] = {"relu": (0.0, _FLOAT.max), "abs": (0.0, _FLOAT.max), "sigmoid": (0.0, 1.0)}
_WITHIN |= {"relu6": (0.0, 6.0), "hardsigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0)}
_KEEPING = (
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "max_pool2d_with_indices", "view",
    "reshape", "flatten", "permute", "transpose", "expand", "slice", "select", "cat", "unsqueeze",
    "squeeze", "chunk", "getitem", "dropout", "feature_dropout", "clone", "detach",
)  # fmt: skip
_MEANS = ("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean")


def bounds_of(node: fx.Node, known: Mapping[fx.Node, Any]) -> Bounds:
    """Return between which numbers a value lies, as far as the operators before it tell."""
    if isinstance(known.get(node), Steps):
        values = known[node].values.float()
        return float(values.min()), float(values.max())
    name = name_of(node)
    if name in _WITHIN:
        return _WITHIN[name]
    if name in ("clamp", "hardtanh", "clip"):
        return _clamped(node, name, known)
    if name not in (*_KEEPING, *_MEANS, "add") and "getitem" not in str(node.target):
        return ANY
    each = [bounds_of(operand, known) for operand in node.all_input_nodes]
    if name == "add":
        return _added(node, each)
    each += [(0.0, 0.0)] if name in _MEANS else []  # of a pad
    return min(low for low, _ in each), max(high for _, high in each)


def _added(node: fx.Node, each: list[Bounds]) -> Bounds:
    if len(node.args) < 2 or node.kwargs or not all(isinstance(operand, fx.Node) for operand in node.args):
        return ANY
    low, high = sum(low for low, _ in each), sum(high for _, high in each)
    return max(low, ANY[0]), min(high, ANY[1])


def _clamped(node: fx.Node, name: str, known: Mapping[fx.Node, Any]) -> Bounds:
    default = (-1.0, 1.0) if name == "hardtanh" else (None, None)
    given = (*node.args[1:3], *default[len(node.args[1:3]) :])
    inner = bounds_of(node.args[0], known)  # type: ignore[arg-type]
    numbers = [value if isinstance(value, int | float) else None for value in given]
    low = inner[0] if numbers[0] is None else max(inner[0], float(numbers[0]))
    high = inner[1] if numbers[1] is None else min(inner[1], float(numbers[1]))
    return min(low, high), max(low, high)
