"""Which nodes of an integer graph run together: what makes rows, and stages that change them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph
from bitfactor.format.operations.move import stays

_STAGES = ("weigh", "prelu", "threshold")


@dataclass
class Layer:
    """What makes rows, a node or the loading of a value, and the stages behind it."""

    first: Node | None
    value: str
    stages: list[Node] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [*([self.first.name] if self.first else []), *(stage.name for stage in self.stages)]


def layers_of(graph: IntegerGraph) -> tuple[list[Layer], dict[str, str]]:
    """Return the layers, and for each value that is another one in another shape, that one."""
    layers: list[Layer] = []
    roots: dict[str, str] = {}
    running: dict[str, int] = {}  # values that are in the row at the end of a layer so far
    made = {graph.input: -1}

    def attached(node: Node) -> int | None:
        """The layer whose row a stage can change: what else it reads is made before that."""
        for name in node.inputs:
            at = running.get(name)
            others = [other for other in node.inputs if other != name]
            alike = graph.values[name].shape == graph.values[node.name].shape
            once = node.inputs.count(name) == 1
            if at is not None and once and alike and all(made[roots.get(o, o)] < at for o in others):
                return at
        return None

    for node in _late(graph.nodes):
        inputs = [graph.values[name].shape for name in node.inputs]
        if len(node.inputs) == 1 and stays(node, inputs[0], graph.values[node.name].shape):
            roots[node.name] = roots.get(node.inputs[0], node.inputs[0])
            continue
        at = attached(node) if node.op in _STAGES else None
        if at is None:
            loads = node.op in _STAGES
            primary = max(node.inputs, key=lambda name: prod(graph.values[name].shape))
            layers.append(
                Layer(None if loads else node, primary if loads else node.name, [node] if loads else [])
            )
            at = len(layers) - 1
        else:
            layers[at].stages.append(node)
        made[node.name] = at
        if node.op != "threshold":
            running = {name: i for name, i in running.items() if i != at} | {node.name: at}
    return layers, roots


def _late(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield binary layers where their sums are read: what is added to them is then made before."""
    waiting: dict[str, Node] = {}
    for node in nodes:
        yield from (waiting.pop(name) for name in dict.fromkeys(node.inputs) if name in waiting)
        if node.op == "binary_conv":
            waiting[node.name] = node
        else:
            yield node
    yield from waiting.values()
