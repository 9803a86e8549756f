"""Which operations run together.

A step gives the rows of a feature map and takes them through stages before anything is written. It begins
with an operation that looks at more than one number at a time (a convolution, a pool), or reads a value from
memory. Operations that follow and look at one number (those with a stage) become its stages. A value that is
needed again, by a shortcut say, is stored on the way. The same pass gives the signs for the next layer.

Each stage is the operation of the graph, in the graph's order: results are the same bits as without fusion.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bitfactor.common.errors import InputError
from bitfactor.format.graph import Graph
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.convolution import terms_of
from bitfactor.format.operations.move import NUMBERED_BYTES, Flatten, Move, stays
from bitfactor.format.operations.operation import Pixelwise

POINTWISE = tuple(name for name, op in OPERATIONS.items() if isinstance(op, Pixelwise) and op.dtype != "bit")
PAIRED = tuple(name for name in POINTWISE if len(OPERATIONS[name].inputs) == 2)
_EXACT_SUMS = 1 << 24  # beyond, float32 does not hold every integer


@dataclass(frozen=True)
class Stage:
    """`op` is a pointwise operation or threshold, of `node`; or store.

    `value` is what add and multiply read, and what store and threshold write.
    """

    op: str
    node: Node | None = None
    value: str = ""


@dataclass(frozen=True)
class Step:
    """`node` gives the rows, from the values `sources`; where it is None, the only source has them.

    `passed` are the values that the step before makes, with a shortcut made within it, if they are read here
    alone. They are taken in bands, and never stand in memory as a whole. `within_next` is whether all that
    this step makes is read by the next one alone, which adds it. That is a shortcut, made a strip at a time
    just before. Where `stays` is true nothing runs: the node's value is its source's memory in another shape.
    """

    node: Node | None
    sources: tuple[str, ...]
    stages: tuple[Stage, ...]
    passed: tuple[str, ...] = ()
    within_next: bool = False
    stays: bool = False

    @property
    def of_last(self) -> bool:
        """Whether this step takes what the one before makes in bands."""
        return bool(self.passed)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the graph that run in this step."""
        every = (self.node, *(stage.node for stage in self.stages))
        return tuple(node for node in every if node is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.sources, *(stage.value for stage in self.stages if stage.op in PAIRED))

    @property
    def writes(self) -> tuple[str, ...]:
        if self.stays and self.node:
            return (self.node.name,)
        return tuple(stage.value for stage in self.stages if stage.op in ("store", "threshold"))


def bytes_to_plan(graph: Graph) -> int:
    """Return what `plan` takes at most for the largest map that is moved: it numbers the elements."""
    moved = (node for node in graph.nodes if isinstance(OPERATIONS[node.op], Flatten | Move))
    names = (name for node in moved for name in (*node.inputs, node.name))
    return NUMBERED_BYTES * max((math.prod(graph.values[name].shape) for name in names), default=0)


def plan(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of `graph`, in an order in which they can run."""
    planner = _Planner(graph)
    return tuple(planner.bands(planner.shortcuts([*planner.steps()])))


def steps_apart(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of `graph` as `plan` does, but each as one that ends before the next begins."""
    return tuple(_Planner(graph).steps())


class _Planner:
    """Goes over the nodes in order; `done` are the nodes in a step so far, `stored` the values in memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.consumers: dict[str, list[Node]] = {name: [] for name in graph.values}
        for node in graph.nodes:
            for name in dict.fromkeys(node.inputs):
                self.consumers[name].append(node)
        self.done: set[str] = set()
        self.stored = {graph.input.name}

    def steps(self) -> Iterator[Step]:
        for node in self.graph.nodes:
            if node.name in self.done:
                continue
            _expect_exact_sums(node, self.graph)
            step = self._begin(node)
            self.stored.update(step.writes)
            yield step

    def shortcuts(self, steps: list[Step]) -> list[Step]:
        """Return the steps with each shortcut that is a convolution of single pixels where it is added."""
        adds: dict[str, Step] = {}
        for step in steps:
            for value in _added(step):
                adds.setdefault(value, step)
        for shortcut in [step for step in steps if step.writes and self._is_of_single_pixels(step)]:
            value = shortcut.writes[-1]
            adding = adds.get(value)
            if adding and self._makes_only(shortcut, value):
                steps.remove(shortcut)
                steps.insert(steps.index(adding), replace(shortcut, within_next=True))
        return steps

    def bands(self, steps: list[Step]) -> Iterator[Step]:
        """Yield the steps; a pool that reads all that the one before makes takes it in bands."""
        for i, step in enumerate(steps):
            node = step.node
            if i and node and node.op == "max_pool2d" and len(self.graph.values[node.name].shape) == 3:
                within = steps[i - 2].writes if i > 1 and steps[i - 2].within_next else ()
                if self._makes_only(steps[i - 1], step.sources[0], *within):
                    step = replace(step, passed=(*step.sources, *within))
            yield step

    def _makes_only(self, step: Step, value: str, *within: str) -> bool:
        """Whether the step is a convolution that makes `value` for one reader, and reads nothing but sources.

        What is made within it does not count.
        """
        values = [stage.value for stage in step.stages if stage.value and stage.value not in within]
        return (
            _is_convolution(step)
            and values == [value]
            and len(self.consumers[value]) == 1
            and value not in self.graph.outputs
        )

    def _is_of_single_pixels(self, step: Step) -> bool:
        node = step.node
        return (
            node is not None
            and node.op in ("conv2d", "quantised_conv2d")
            and node.tensors["weight"].shape[1:3] == (1, 1)
            and not any(node.attributes["padding"])
        )

    def _begin(self, node: Node) -> Step:
        if node.op == "threshold":
            return Step(None, node.inputs, tuple(self._thresholds(node.inputs[0])))
        self.done.add(node.name)
        if self._stays(node):
            return Step(node, node.inputs, (), stays=True)
        if node.op in POINTWISE:
            source = node.inputs[0]
            own = Stage(node.op, node, node.inputs[1] if node.op in PAIRED else "")
            return Step(None, (source,), (own, *self._follow(node.name)))
        return Step(node, node.inputs, tuple(self._follow(node.name)))

    def _stays(self, node: Node) -> bool:
        if len(node.inputs) != 1 or self.graph.values[node.inputs[0]].dtype != "float32":
            return False
        return stays(node, self.graph.values[node.inputs[0]].shape, self.graph.values[node.name].shape)

    def _follow(self, value: str) -> Iterator[Stage]:
        """Yield the stages that `value`, in registers, goes through."""
        while True:
            yield from self._thresholds(value)
            waiting = [node for node in self.consumers[value] if node.name not in self.done]
            following = next((node for node in waiting if self._can_follow(node, value)), None)
            if value in self.graph.outputs or len(waiting) > (following is not None):
                yield Stage("store", value=value)
                self.stored.add(value)
            if following is None:
                return
            self.done.add(following.name)
            others = [name for name in following.inputs if name != value]
            yield Stage(following.op, following, others[0] if others else "")
            value = following.name

    def _can_follow(self, node: Node, value: str) -> bool:
        others = [name for name in node.inputs if name != value]
        if node.op in PAIRED:
            same_shape = self.graph.values[value].shape == self.graph.values[node.name].shape
            first = node.inputs[0] == value or OPERATIONS[node.op].commutes
            return len(others) == 1 and others[0] in self.stored and same_shape and first
        return node.op in POINTWISE

    def _thresholds(self, value: str) -> Iterator[Stage]:
        for node in self.consumers[value]:
            if node.op == "threshold" and node.name not in self.done:
                self.done.add(node.name)
                yield Stage("threshold", node, node.name)


def _is_convolution(step: Step) -> bool:
    return step.node is not None and step.node.op in ("conv2d", "quantised_conv2d", "binary_conv2d")


def _added(step: Step) -> list[str]:
    """Return the values that a convolution adds to what it makes."""
    added = [stage.value for stage in step.stages if stage.op == "add"]
    return [value for value in added if value not in step.sources] if _is_convolution(step) else []


def _expect_exact_sums(node: Node, graph: Graph) -> None:
    if node.op not in ("binary_conv2d", "binary_linear"):
        return
    signs = terms_of(node, graph.values[node.inputs[0]].shape)
    if signs >= _EXACT_SUMS:
        raise InputError(
            f"node {node.name!r}",
            expected=f"sums of fewer than {_EXACT_SUMS} signs",
            found=str(signs),
            fix="use a smaller kernel or fewer channels",
        )
