"""Functions of a value that are constant between cuts: signs, comparisons and what is computed from them.

`torch.sign(x)`, `x > t`, `torch.where(x > 0, 1, -1)` and `2 * (x >= 0).float() - 1` have a few values each,
and which one depends on where x lies among a few cuts. Nothing here knows one operator from another: cuts
are found by bisection over all float32 numbers, and torch itself computes with the values between them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from bitfactor.exporter.fold import from_rank, to_rank

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
        """Whether there are two values but for the single number 0, where a sign has its third."""
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
_KEEPING: tuple[str, ...] = (
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "view",
    "reshape",
    "flatten",
    "permute",
    "transpose",
)
_KEEPING += ("dropout", "expand", "slice", "select", "cat", "unsqueeze", "squeeze", "chunk", "getitem")
_KEEPING += ("adaptive_max_pool2d", "max_pool2d_with_indices", "feature_dropout", "clone", "detach")
_MEANS = ("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean")


def bounds_of(node: fx.Node, known: Mapping[fx.Node, Any]) -> Bounds:
    """Return between which numbers a value lies, as far as the operators before it tell."""
    if isinstance(known.get(node), Steps):
        values = known[node].values.float()
        return float(values.min()), float(values.max())
    name = str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")
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
