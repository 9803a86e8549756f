"""A graph, ready to run: in the compiled core or in numpy, and what it gives on samples."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.machine import REFERENCE, chosen_isa, physical_cores
from bitfactor.format.graph import ARRAYS, Cost, Graph, cost, run, total
from bitfactor.format.low_precision import low_precision
from bitfactor.runtime.inputs import expect_finite, not_finite, packed
from bitfactor.runtime.plan import bytes_to_plan
from bitfactor.runtime.program import LayerTime, Profile, program_of

Outputs = tuple[NDArray[Any], ...]
Runner = Callable[..., Outputs]
Shapes = tuple[tuple[int, ...], ...]
Precision = Literal["highest", "high", "medium", "low", "integer"]


_TINY = 1 << 20  # operands (see default_threads): some tens of microseconds, less than to wake a thread


def default_threads(graph: Graph) -> int:
    """Return the physical cores that this process may use, or 1 for a tiny network.

    The measure is operands: multiply-accumulates of real numbers, or 32 at once of signs.
    """
    spent = total(graph)
    return 1 if spent.real_macs + spent.binary_macs // 32 < _TINY else physical_cores()


def runner(
    graph: Graph,
    isa: str,
    threads: int = 1,
    precision: Precision = "highest",
    most_bytes: int | None = None,
) -> Runner:
    """Return a function from the inputs (N, ...) to the outputs of `graph`, one array each."""
    if precision == "low":
        graph = low_precision(graph)
    if isa == REFERENCE:

        def reference(*xs: NDArray[np.float32]) -> Outputs:
            expect_finite(xs, names_of(graph))
            return run(graph, *xs)

        return reference
    return NativeRunner(graph, isa, threads, precision, most_bytes)


class NativeRunner:
    """Runs `graph` in the compiled core."""

    def __init__(
        self,
        graph: Graph,
        isa: str,
        threads: int,
        precision: Precision = "highest",
        most_bytes: int | None = None,
    ) -> None:
        self.graph, self.isa, self.threads, self._most_bytes = graph, isa, threads, most_bytes
        self._packed = packed(graph)
        if most_bytes is not None and bytes_to_plan(self._packed) > most_bytes:
            raise self._too_large()
        program = program_of(self._packed)
        self._layers = program.layers
        try:
            self._program, self._phases = program.compile(
                isa, threads, bfloat16_parts=_PARTS.get(precision, 0), most_bytes=most_bytes
            )
        except MemoryError as error:
            raise self._too_large() from error
        except RuntimeError as error:  # of the system
            found, fix = f"{threads} ({error})", "take fewer"
            raise InputError(
                "threads", expected="as many as the system gives", found=found, fix=fix
            ) from error
        except ValueError as error:  # of the core, which takes programs of so much memory
            shapes = tuple(value.shape for value in graph.inputs)
            raise unfit(graph, shapes, f"pass a smaller one ({error})") from error
        self._values = [graph.values[name] for name in graph.outputs]

    def __call__(self, *xs: NDArray[np.float32]) -> Outputs:
        samples = len(xs[0])
        outs = self._outputs(samples)
        try:
            finite = self._program.run(x=_flat(xs), outs=outs)
        except MemoryError as error:
            raise self._too_large() from error
        if not finite:
            expect_finite(xs, names_of(self.graph))
            raise not_finite(xs[0], "x")  # changed since
        return tuple(
            out.reshape(samples, *value.shape).astype(ARRAYS[value.dtype], copy=False)
            for out, value in zip(outs, self._values, strict=True)
        )

    def profile(self, *xs: NDArray[np.float32], runs: int) -> Profile:
        """Time the layers over `runs` runs of one sample, after a few that warm up."""
        expect_finite(xs, names_of(self.graph))
        kernels, outs = self._program.phases(), self._outputs(1)
        for count in (_WARM_UP, runs):
            ns = np.empty((count, len(kernels)))
            self._program.profile(x=_flat(xs), outs=outs, ns=ns)
        ends = np.cumsum(self._phases)
        times = np.add.reduceat(ns, ends - np.array(self._phases), axis=1) / 1e9
        medians = np.median(times, axis=0)
        fractions = medians / max(medians.sum(), np.finfo(np.float64).tiny)
        nodes = {node.name: node for node in self._packed.nodes}
        reasons = self._program.reasons()
        layers = []
        for i, layer in enumerate(self._layers):
            counted = [nodes[name] for name in layer.names if layer.operations]
            spent = sum((cost(node, self._packed) for node in counted), Cost())
            layers.append(
                LayerTime(
                    layer.names,
                    layer.operations,
                    f"{self.isa}/{kernels[ends[i] - 1]}",
                    tuple(filter(None, reasons[ends[i] - 1].split("\n"))),
                    spent.binary_macs,
                    spent.real_macs,
                    float(times[:, i].min()),
                    float(medians[i]),
                    float(fractions[i]),
                )
            )
        return Profile(tuple(layers), len(ns), self.threads)

    def _too_large(self) -> InputError:
        limited = self._most_bytes is not None
        return InputError(
            "max_bytes" if limited else "memory",
            expected=f"kernels and samples that take at most {self._most_bytes} bytes"
            if limited
            else "enough",
            found="that the network needs more",
            fix="allow more, if you trust the file" if limited else "run it with fewer threads",
        )

    def _outputs(self, samples: int) -> list[NDArray[np.float32]]:
        return [np.empty((samples, math.prod(value.shape)), np.float32) for value in self._values]


_PARTS: dict[Precision, int] = {"high": 2, "medium": 1}  # of a number, in bfloat16; else it is float32
_WARM_UP = 3


def names_of(graph: Graph) -> list[str]:
    """Return how messages call the inputs: by name, and a single one x."""
    return [value.name for value in graph.inputs] if graph.others else ["x"]


def unfit(graph: Graph, shapes: Shapes, fix: str) -> InputError:
    found = " and ".join(f"(N, {', '.join(map(str, shape))})" for shape in shapes)
    return InputError(names_of(graph)[0], expected="a size that the network can take", found=found, fix=fix)


def _flat(xs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the samples of all inputs, the values of a sample behind each other: (N, values)."""
    rows = [x.reshape(len(x), math.prod(x.shape[1:])) for x in xs]
    return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)


_BATCH = 16


def outputs_on(
    graph: Graph, samples: NDArray[np.float32], precision: Precision = "highest"
) -> Iterator[Outputs]:
    """Yield the outputs of `graph` on samples (N, *input shape), some at a time."""
    run = runner(graph, chosen_isa(), precision=precision)
    return (run(samples[i : i + _BATCH]) for i in range(0, len(samples), _BATCH))


def magnitudes_on(graph: Graph, samples: NDArray[np.float32]) -> Mapping[str, float]:
    """Return the largest magnitude of each real value of `graph` on samples (N, *input shape)."""
    names = tuple(node.name for node in graph.nodes if graph.values[node.name].dtype == "float32")
    found = {graph.input.name: float(np.abs(samples).max()), **dict.fromkeys(names, 0.0)}
    for outputs in outputs_on(replace(graph, outputs=names), samples) if names else ():
        for name, value in zip(names, outputs, strict=True):
            found[name] = max(found[name], float(np.abs(value).max()))
    return found
