"""A graph as a program: the instructions of the compiled core in their order; and where its time goes."""

import math
from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bitfactor.common import _native
from bitfactor.common.result import text_table
from bitfactor.format.bits import WORD_BITS
from bitfactor.format.graph import Graph, Value
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.operation import Pixelwise, Place, Rows
from bitfactor.format.program import Buffer, Instruction
from bitfactor.runtime.plan import Stage, Step, plan

ALIGNMENT = 64  # a cache line, and the widest register
WORD_BYTES = WORD_BITS // 8


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `size` bytes, in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def place(buffers: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """Return the byte offset of each buffer, and the bytes needed in all.

    Large buffers first, each at the lowest place that no buffer alive at the same time holds.
    """
    # Plain loops: the first call of numpy's sort alone takes 200 kB of memory.
    placed: list[tuple[int, int, Lifetime]] = []  # from byte to byte, the lowest first
    offsets: dict[str, int] = {}
    for name in sorted(buffers, key=lambda name: -buffers[name].size):
        buffer, at = buffers[name], 0
        size = _aligned(buffer.size)
        for begin, end, other in placed:
            if other.first <= buffer.last and buffer.first <= other.last:
                if begin - at >= size:
                    break
                at = max(at, end)
        offsets[name] = at
        insort(placed, (at, at + size, buffer), key=lambda one: one[:2])
    return offsets, max((end for _, end, _ in placed), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


_Buffers = Mapping[str, Buffer]


@dataclass(frozen=True)
class Layer:
    """What runs in one pass: the nodes, the operations on the way, and the instructions for it.

    The first layer lays out the input, the last the outputs; they have no operations, and the names are those
    of the values.
    """

    names: tuple[str, ...]
    operations: tuple[str, ...]
    instructions: tuple[Instruction, ...]

    def and_then(self, layer: "Layer") -> "Layer":
        """Return both as one; what this one stores is no operation any more."""
        operations = self.operations[:-1] + layer.operations
        return Layer(self.names + layer.names, operations, self.instructions + layer.instructions)

    def with_shortcut(self, layer: "Layer") -> "Layer":
        """Return this layer as one with that of its shortcut, which runs within it."""
        instructions = (
            *layer.instructions,
            Instruction.of("end_shortcut"),
            *self.instructions,
            Instruction.of("run_shortcut_within_last"),
        )
        return Layer(self.names + layer.names, layer.operations[:-1] + self.operations, instructions)


@dataclass(frozen=True)
class Program:
    """A graph as layers of instructions over one arena. It is plain data, the same for every machine."""

    layers: tuple[Layer, ...]
    arena_bytes: int

    def compile(
        self, isa: str, threads: int, *, bfloat16_parts: int = 0, most_bytes: int | None = None
    ) -> tuple[_native.Program, tuple[int, ...]]:
        """Return the program in the core, for the kernels of `isa`, and of how many phases each layer is.

        With `bfloat16_parts`, sets that multiply bfloat16 faster than float32 take real numbers as sums of so
        many bfloat16 each. MemoryError where the core would take more than `most_bytes`.
        """
        limit = {} if most_bytes is None else {"most_bytes": most_bytes}
        core = _native.Program(isa=isa, threads=threads, arena_bytes=self.arena_bytes, **limit)
        if bfloat16_parts:
            core.allow_bfloat16(parts=bfloat16_parts)
        phases = []
        for layer in self.layers:
            before = core.step_count()
            for instruction in layer.instructions:
                core.add(kind=instruction.kind, arguments=dict(instruction.arguments))
            phases.append(max(core.step_count() - before, 1))  # the input's and the outputs' are no steps
        return core, tuple(phases)


def program_of(graph: Graph, steps: Sequence[Step] | None = None, sign_word: int = WORD_BYTES) -> Program:
    """Return the program that runs `graph`, in the steps of `plan` or in others.

    Signs of a map lie in words of so many bytes; the core takes those of 8.
    """
    steps = plan(graph) if steps is None else steps
    offsets, size = _place(graph, steps, sign_word)
    buffers = {name: _buffer(graph.values[name], offset) for name, offset in offsets.items()}
    layers = [_ends("input", (graph.input.name,), graph, buffers)]
    within = False
    for step in steps:
        if step.stays:
            continue
        names = tuple(node.name for node in step.nodes)
        operations = (step.node.op if step.node else "", *(stage.op for stage in step.stages))
        stages = (_stage(stage, buffers) for stage in step.stages)
        instructions = (_rows(graph, step, buffers), *stages)
        layer = Layer(names, tuple(filter(None, operations)), instructions)
        if within:
            layer = layer.with_shortcut(layers.pop())
        layers.append(layers.pop().and_then(layer) if step.of_last else layer)
        within = step.within_next
    return Program((*layers, _ends("output", graph.outputs, graph, buffers)), size)


def _ends(kind: str, names: tuple[str, ...], graph: Graph, buffers: _Buffers) -> Layer:
    instructions = []
    for name in names:
        shape, dtype = graph.values[name].shape, graph.values[name].dtype
        instructions.append(Instruction.of(kind, buffer=buffers[name], name=name, shape=shape, dtype=dtype))
    return Layer(names, (), tuple(instructions))


def _place(graph: Graph, steps: Sequence[Step], sign_word: int = WORD_BYTES) -> tuple[dict[str, int], int]:
    """Return the byte offset of each value that is in memory, and the bytes of the arena.

    A step and one `of_last` run at the same time; what passes between them has no place of its own. So do one
    `within_next` and the one after it.
    """
    within = [False, *(step.within_next for step in steps)]
    times = list(accumulate(not (step.of_last or within[i]) for i, step in enumerate(steps)))
    passed = [value for step in steps for value in step.passed]
    root: dict[str, str] = {}  # value -> the one in whose memory it is seen in another shape
    for step in steps:
        if step.stays:
            root |= {value: root.get(source, source) for value in step.writes for source in step.sources}
    first = {graph.input.name: 0}
    last = {graph.input.name: 0}
    for i, step in zip(times, steps, strict=True):
        if not step.stays:
            first.update(dict.fromkeys(step.writes, i))
        last.update((root.get(value, value), i) for value in (*step.writes, *step.reads))
    last.update((root.get(value, value), len(steps) + 1) for value in graph.outputs)
    home = {name: name for name in first if name not in passed}
    sources: dict[int, set[str]] = {}
    for i, step in zip(times, steps, strict=True):
        sources.setdefault(i, set()).update(root.get(value, value) for value in step.sources)
    for i, step in zip(times, steps, strict=True):
        for value, added in _in_place(step):
            addend = root.get(added, added)
            windows = step.of_last and addend in sources[i]  # which reach into the next band
            fits = addend in home and _bytes(graph.values[addend], sign_word) == _bytes(
                graph.values[value], sign_word
            )
            read = {root.get(source, source) for source in step.sources}  # in another shape too
            if fits and addend not in read and last[addend] == i and not windows:
                home[value] = home[addend]
                last[home[value]] = last[value]
    lifetimes = {
        name: Lifetime(_bytes(graph.values[name], sign_word), first[name], last[name])
        for name in home.values()
    }
    offsets, size = place(lifetimes)
    places = {name: offsets[home[name]] for name in home} | dict.fromkeys(passed, 0)
    return places | {value: places[source] for value, source in root.items()}, size


def _in_place(step: Step) -> list[tuple[str, str]]:
    """(value, addend) where a stored value may take the place of what was added to it, pixel by pixel.

    A stream of shortcuts then stays in one place, and in the cache. At most one pair: it is the last value
    stored, after which nothing is read.
    """
    if not step.stages or step.stages[-1].op != "store":
        return []
    own = (*step.sources, *step.writes)
    sums = (stage for stage in step.stages if stage.op in ("add", "integer_add"))
    addends = [stage.value for stage in sums if stage.value not in own]
    return [(step.stages[-1].value, addends[-1])] if addends else []


def _bytes(value: Value, sign_word: int) -> int:
    channels, pixels = _layout(value)
    return pixels * (sign_word * -(-channels // (8 * sign_word)) if value.dtype == "bit" else 4 * channels)


def _layout(value: Value) -> tuple[int, int]:
    """(C, H, W) -> (C, H * W); (F,) -> (F, 1)."""
    return value.shape[0], math.prod(value.shape[1:])


def _buffer(value: Value, offset: int) -> Buffer:
    channels, pixels = _layout(value)
    return Buffer(offset, pixels, channels, signs=value.dtype == "bit")


def _rows(graph: Graph, step: Step, buffers: _Buffers) -> Instruction:
    sources = tuple(buffers[name] for name in step.sources)
    if step.node is None:
        return Instruction.of("pointwise", source=sources[0])
    operation = OPERATIONS[step.node.op]
    assert isinstance(operation, Rows)  # the plan has put what follows in registers into stages
    shapes = tuple(graph.values[name].shape for name in step.sources)
    instruction = operation.rows(step.node, Place(sources, shapes, graph.values[step.node.name].shape))
    if step.of_last:
        return instruction.but(of_last=True)
    return instruction.but(apart=True) if step.within_next else instruction


def _stage(stage: Stage, buffers: _Buffers) -> Instruction:
    buffer = buffers.get(stage.value)
    if stage.node is None:
        return Instruction.of("store", buffer=buffer)
    operation = OPERATIONS[stage.op]
    assert isinstance(operation, Pixelwise)  # the plan follows no other operation in registers
    return operation.stage(stage.node, buffer)


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
