"""Where the time of a network goes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.result import text_table
from bitfactor.format.graph import Cost, Graph, cost
from bitfactor.runtime.program import Layer


@dataclass(frozen=True)
class LayerTime:
    """What one pass over a feature map took.

    Attributes
    ----------
    names : the nodes of the graph that run in it, in their order
    operations : what is done, `store` being a value written to memory on the way
    kernel : instruction set and algorithm
    reasons : why this algorithm and none of the others, where there was a choice
    binary_macs, real_macs : multiply-accumulates of one sample
    minimum, median : seconds
    fraction : of the whole, by the median; all fractions together are 1
    """

    names: tuple[str, ...]
    operations: tuple[str, ...]
    kernel: str
    reasons: tuple[str, ...]
    binary_macs: int
    real_macs: int
    minimum: float
    median: float
    fraction: float

    @property
    def rate(self) -> float:
        """Multiply-accumulates a second, by the minimum."""
        return (self.binary_macs + self.real_macs) / self.minimum if self.minimum else 0.0


@dataclass(frozen=True)
class Profile:
    """The times of each layer over `runs` runs of one sample; prints as a table.

    The first layer lays out the input for the kernels, the last one the outputs as in torch.
    """

    layers: tuple[LayerTime, ...]
    runs: int
    threads: int

    @property
    def seconds(self) -> float:
        """Time of a run: the sum of the medians."""
        return sum(layer.median for layer in self.layers)

    def __str__(self) -> str:
        head = ["layer", "operations", "kernel", "min us", "median us", "MMAC", "GMAC/s", "fraction"]
        rows = [_row(layer) for layer in self.layers]
        macs = sum(layer.binary_macs + layer.real_macs for layer in self.layers)
        rows.append(["total", "", "", "", f"{1e6 * self.seconds:.1f}", f"{macs / 1e6:.2f}", "", "100.0 %"])
        reasons = Counter(reason for layer in self.layers for reason in layer.reasons)
        why = [f"{count} layers {reason}" for reason, count in reasons.most_common()]
        return "\n".join([text_table(head, rows, right=frozenset(range(3, 8))), *why])


def _row(layer: LayerTime) -> list[str]:
    macs = layer.binary_macs + layer.real_macs
    return [
        layer.names[0] if layer.names else "",
        " ".join(layer.operations),
        layer.kernel,
        f"{1e6 * layer.minimum:.1f}",
        f"{1e6 * layer.median:.1f}",
        f"{macs / 1e6:.2f}" if macs else "",
        f"{layer.rate / 1e9:.1f}" if macs else "",
        f"{layer.fraction:.1%}".replace("%", " %"),
    ]


def profile_of(
    graph: Graph,
    layers: Sequence[Layer],
    phases: Sequence[int],
    kernels: Sequence[str],
    reasons: Sequence[str],
    ns: NDArray[np.float64],
    *,
    isa: str,
    threads: int,
) -> Profile:
    """Gather `ns` (runs, phases), the times of each phase, by layer; `phases` is how many a layer has."""
    ends = np.cumsum(phases)
    times = np.add.reduceat(ns, ends - np.array(phases), axis=1) / 1e9
    medians = np.median(times, axis=0)
    fractions = medians / max(medians.sum(), np.finfo(np.float64).tiny)
    nodes = {node.name: node for node in graph.nodes}
    measured = []
    for i, layer in enumerate(layers):
        spent = sum((cost(nodes[name], graph) for name in layer.names if layer.operations), Cost())
        measured.append(
            LayerTime(
                layer.names,
                layer.operations,
                f"{isa}/{kernels[ends[i] - 1]}",
                tuple(filter(None, reasons[ends[i] - 1].split("\n"))),
                spent.binary_macs,
                spent.real_macs,
                float(times[:, i].min()),
                float(medians[i]),
                float(fractions[i]),
            )
        )
    return Profile(tuple(measured), len(ns), threads)
