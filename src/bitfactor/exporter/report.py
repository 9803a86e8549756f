"""What export did: which layers became bits, what they weigh, how far the file is from torch."""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from torch import nn

from bitfactor.format import Graph, Node
from bitfactor.nn import BinaryLayer
from bitfactor.table import text_table

_LAYERS = {"conv2d": "real", "linear": "real", "binary_conv2d": "binary", "binary_linear": "binary"}


@dataclass(frozen=True)
class LayerReport:
    """One layer: its kind (binary or real) and its weight's bytes in float32 and in the file."""

    name: str
    kind: str
    shape: tuple[int, ...]
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
    From the first input to the last output, torch and the runtime give the same class (the largest entry of
    the first output) for `same_class` of `checked_inputs`, and differ by `max_difference` of the largest
    output. That they differ at all is rounding, which may turn a value next to zero: each operation by
    itself was checked, see `bitfactor.exporter.parity`.
    """

    path: str
    layers: tuple[LayerReport, ...]
    float_bytes: int
    file_bytes: int
    checked_inputs: int
    same_class: int
    max_difference: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain types."""
        return asdict(self)

    def __str__(self) -> str:
        head = ["layer", "kind", "weight (O, kh, kw, C)", "float bytes", "file bytes", "ratio"]
        rows = [
            [
                x.name,
                x.kind,
                "x".join(map(str, x.shape)),
                f"{x.float_bytes:,}",
                f"{x.file_bytes:,}",
                f"{x.ratio:.1f}",
            ]
            for x in self.layers
        ]
        return "\n".join(
            [
                text_table(head, rows, right=frozenset({3, 4, 5})),
                "",
                f"{self.path}: {self.file_bytes:,} bytes; as a float network {self.float_bytes:,}"
                f" ({self.float_bytes / self.file_bytes:.1f} times as many)",
                "each operation gives what torch gives; end to end, the same class for"
                f" {self.same_class} of {self.checked_inputs} inputs,"
                f" largest difference {self.max_difference:.1e} of the largest output",
            ]
        )


def layer_reports(graph: Graph) -> tuple[LayerReport, ...]:
    """Describe the layers that hold weights."""
    return tuple(_layer_report(node, graph) for node in graph.nodes if node.op in _LAYERS)


def _layer_report(node: Node, graph: Graph) -> LayerReport:
    weight = node.tensors["weight"]
    shape = weight.shape
    if _LAYERS[node.op] == "binary":
        channels = graph.values[node.inputs[0]].shape[0] // node.attributes.get("groups", 1)
        shape = (*shape[:-1], channels)
    return LayerReport(node.name, _LAYERS[node.op], shape, 4 * prod(shape), weight.nbytes)


def float_bytes(model: nn.Module) -> int:
    """Return the bytes of `model`'s parameters were it a float network: a weight for each decomposition."""
    binary = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    own = {id(parameter) for layer in binary for parameter in layer.parameters()}
    numbers = sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in own)
    for layer in binary:
        numbers += prod(layer.latent.shape) + (0 if layer.bias is None else layer.bias.numel())
    return 4 * numbers
