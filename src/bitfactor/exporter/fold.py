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
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.format import Graph, Node

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
    graph, stands_for = fold_affine(merge_equal(graph))
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


def fold_affine(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Multiply the affine behind a real layer into its weight and bias, computed in float64.

    Returns what `fold` returns: the layer keeps its name and gives the affine's value.
    """
    used = _uses(graph)
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
        found = of_sums(chain, channels, _largest_sum(nodes[name], graph))
        if found is not None:
            return _comparison(sign, name, found)
    if chain and chain[-1].op == "affine":
        return _comparison(sign, chain[-1].inputs[0], of_floats(chain[-1:], channels))
    return sign


def _comparison(sign: Node, source: str, found: Thresholds) -> Node:
    return replace(sign, inputs=(source,), tensors={"threshold": found[0], "direction": found[1]})


def _is_per_channel(node: Node) -> bool:
    return all(tensor.ndim == 1 for tensor in node.tensors.values())


def _largest_sum(layer: Node, graph: Graph) -> int:
    channels = graph.values[layer.inputs[0]].shape[0]
    if layer.op == "binary_linear":
        return channels
    _, height, width, _ = layer.tensors["weight"].shape
    return int(height * width * channels // layer.attributes["groups"])


def remove_dead(graph: Graph) -> Graph:
    """Drop the nodes that no output depends on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name in needed))


def _uses(graph: Graph) -> Counter[str]:
    return Counter([name for node in graph.nodes for name in node.inputs]) + Counter(graph.outputs)
