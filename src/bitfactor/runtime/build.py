"""A graph as a program of the compiled core."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.bits import words_for
from bitfactor.format.graph import Graph, Node, Value, real_weight
from bitfactor.runtime import _native
from bitfactor.runtime.arena import Lifetime, place
from bitfactor.runtime.plan import Stage, Step, plan
from bitfactor.runtime.reference import REFERENCE

_Buffers = Mapping[str, _native.Buffer]


@dataclass(frozen=True)
class Layer:
    """What runs in one pass: the nodes, the operations on the way, and how many phases of the program it is.

    The first layer lays out the input, the last the outputs; they have no operations, and the names are those
    of the values.
    """

    names: tuple[str, ...]
    operations: tuple[str, ...]
    phases: int

    def and_then(self, layer: "Layer") -> "Layer":
        """Return both as one; what this one stores is no operation any more."""
        operations = self.operations[:-1] + layer.operations
        return Layer(self.names + layer.names, operations, self.phases + layer.phases)

    def with_shortcut(self, layer: "Layer") -> "Layer":
        """Return this layer as one with that of its shortcut."""
        operations = layer.operations[:-1] + self.operations
        return Layer(self.names + layer.names, operations, layer.phases + self.phases)


def build(
    graph: Graph, isa: str, threads: int, *, bfloat16_parts: int = 0
) -> tuple[_native.Program, tuple[Layer, ...]]:
    """Return the program that runs `graph` with the kernels of `isa`, and what its phases stand for.

    With `bfloat16_parts`, sets that have matrix tiles multiply real numbers as sums of so many bfloat16 each.
    """
    steps, layers = plan(graph), [Layer((graph.input.name,), (), 1)]
    offsets, size = _place(graph, steps)
    buffers = {name: _buffer(graph.values[name], offset) for name, offset in offsets.items()}
    program = _native.Program(isa=isa, threads=threads, arena_bytes=size)
    if bfloat16_parts:
        program.allow_bfloat16(parts=bfloat16_parts)
    program.set_input(buffers[graph.input.name])
    within = False
    for step in steps:
        before = program.step_count()
        _add_rows(program, graph, step, offsets, buffers)
        for stage in step.stages:
            STAGES[stage.op](program, stage, buffers)
        if within:
            program.run_within_last(index=before - 1)
        operations = (step.node.op if step.node else "", *(stage.op for stage in step.stages))
        names = tuple(node.name for node in step.nodes)
        layer = Layer(names, tuple(filter(None, operations)), program.step_count() - before)
        if within:
            layer = layer.with_shortcut(layers.pop())
        layers.append(layers.pop().and_then(layer) if step.of_last else layer)
        within = step.within_next
    for name in graph.outputs:
        program.add_output(buffers[name])
    return program, (*layers, Layer(graph.outputs, (), 1))


def _place(graph: Graph, steps: Sequence[Step]) -> tuple[dict[str, int], int]:
    """Return the byte offset of each value that is in memory, and the bytes of the arena.

    A step and one `of_last` run at the same time; what passes between them has no place of its own. So do one
    `within_next` and the one after it.
    """
    within = [False, *(step.within_next for step in steps)]
    times = list(accumulate(not (step.of_last or within[i]) for i, step in enumerate(steps)))
    passed = [value for step in steps for value in step.passed]
    first = {graph.input.name: 0}
    last = {graph.input.name: 0}
    for i, step in zip(times, steps, strict=True):
        first.update(dict.fromkeys(step.writes, i))
        last.update(dict.fromkeys((*step.writes, *step.reads), i))
    last.update(dict.fromkeys(graph.outputs, len(steps) + 1))
    home = {name: name for name in first if name not in passed}
    sources: dict[int, set[str]] = {}
    for i, step in zip(times, steps, strict=True):
        sources.setdefault(i, set()).update(step.sources)
    for i, step in zip(times, steps, strict=True):
        for value, addend in _in_place(step):
            windows = step.of_last and addend in sources[i]  # which reach into the next band
            if addend in home and last[addend] == i and not windows:
                home[value] = home[addend]
                last[home[value]] = last[value]
    lifetimes = {
        name: Lifetime(_bytes(graph.values[name]), first[name], last[name]) for name in home.values()
    }
    offsets, size = place(lifetimes)
    return {name: offsets[home[name]] for name in home} | dict.fromkeys(passed, 0), size


def _in_place(step: Step) -> list[tuple[str, str]]:
    """(value, addend) where a stored value may take the place of what was added to it, pixel by pixel.

    A stream of shortcuts then stays in one place, and in the cache. At most one pair: it is the last value
    stored, after which nothing is read.
    """
    if not step.stages or step.stages[-1].op != "store":
        return []
    addends = [stage.value for stage in step.stages if stage.op == "add" and stage.value not in step.sources]
    return [(step.stages[-1].value, addends[-1])] if addends else []


def _bytes(value: Value) -> int:
    channels, pixels = _layout(value)
    return pixels * (8 * words_for(channels) if value.kind == "bit" else 4 * channels)


def _layout(value: Value) -> tuple[int, int]:
    """(C, H, W) -> (C, H * W); (F,) -> (F, 1)."""
    return value.shape[0], math.prod(value.shape[1:])


def _buffer(value: Value, offset: int) -> _native.Buffer:
    channels, pixels = _layout(value)
    return _native.Buffer(offset=offset, pixels=pixels, channels=channels, signs=value.kind == "bit")


def _add_rows(
    program: _native.Program,
    graph: Graph,
    step: Step,
    offsets: dict[str, int],
    buffers: _Buffers,
) -> None:
    source = step.sources[0]
    if step.node is None:
        program.pointwise(buffers[source])
    elif step.node.op == "concat":
        program.concat(sources=[buffers[name] for name in step.sources])
    elif step.of_last:
        shapes = graph.values[source].shape, graph.values[step.node.name].shape
        program.max_pool_of_last(pool=_pool(step.node, *shapes))
    elif step.node.op in WHOLE:
        WHOLE[step.node.op](program, buffers[source])
    else:
        shapes = graph.values[source].shape, graph.values[step.node.name].shape
        more = {"apart": True} if step.within_next else {}
        FROM_SHAPES[step.node.op](program, step.node, offsets[source], *shapes, **more)


_Shape = tuple[int, ...]


def _window(node: Node, x: _Shape, y: _Shape, kernel: Any) -> _native.Window:
    attributes: Any = node.attributes
    return _native.window(
        in_size=x[1:],
        out_size=y[1:],
        kernel=kernel,
        stride=attributes["stride"],
        padding=attributes["padding"][:2],
        dilation=attributes.get("dilation", (1, 1)),
    )


_ONE_PIXEL = {"in_size": (1, 1), "out_size": (1, 1), "kernel": (1, 1), "stride": (1, 1)}


def _point() -> _native.Window:
    """The window of a linear layer: a convolution over a map of one pixel."""
    return _native.window(**_ONE_PIXEL, padding=(0, 0), dilation=(1, 1))


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)


def _words(weight: NDArray[np.uint64], channels: int) -> NDArray[np.uint32]:
    """(..., 64-bit words) -> (..., 32-bit words), without the last where it holds no signs."""
    return np.ascontiguousarray(np.ascontiguousarray(weight).view(np.uint32)[..., : -(-channels // 32)])


def _conv2d(
    program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape, apart: bool = False
) -> None:
    weight, bias = _floats(real_weight(node)), _floats(node.tensors["bias"])
    groups: Any = node.attributes["groups"]
    window = _window(node, x, y, weight.shape[1:3])
    program.conv(source=source, window=window, groups=groups, weight=weight, bias=bias, apart=apart)


def _linear(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    weight = _floats(real_weight(node)).reshape(*y, 1, 1, -1)
    bias = _floats(node.tensors["bias"])
    program.conv(source=source, window=_point(), groups=1, weight=weight, bias=bias, apart=False)


def _binary_conv2d(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    groups: Any = node.attributes["groups"]
    pad_value: Any = node.attributes["pad_value"]
    channels = x[0] // groups
    program.binary_conv(
        source=source,
        window=_window(node, x, y, node.tensors["weight"].shape[1:3]),
        groups=groups,
        in_channels=channels,
        weight=_words(node.tensors["weight"], channels),
        pad_value=pad_value,
    )


def _binary_linear(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    weight = _words(node.tensors["weight"], x[0]).reshape(*y, 1, 1, -1)
    program.binary_conv(
        source=source, window=_point(), groups=1, in_channels=x[0], weight=weight, pad_value=0
    )


def _pool(node: Node, x: _Shape, y: _Shape) -> _native.Pool:
    attributes: Any = node.attributes
    return _native.pool(
        window=_window(node, x, y, attributes["kernel"]),
        channels=x[0],
        far_padding=attributes["padding"][2:],
        count_include_pad=bool(attributes.get("count_include_pad", 0)),
    )


def _max_pool2d(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    program.max_pool(source=source, pool=_pool(node, x, y))


def _avg_pool2d(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    program.avg_pool(source=source, pool=_pool(node, x, y))


def _upsample_nearest(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    program.upsample_nearest(source=source, in_size=x[1:], channels=x[0], scale=node.attributes["scale"])


def _gather(program: _native.Program, node: Node, source: int, x: _Shape, y: _Shape) -> None:
    """Reshape, permute, slice: the reference itself, run on the places of the numbers, tells who goes where.

    A place is that in the order (pixels, channels) of x.
    """
    places = np.arange(math.prod(x), dtype=np.int32).reshape(-1, x[0]).T.reshape(1, *x)
    moved = REFERENCE[node.op](node, places)
    program.gather(source=source, indices=np.ascontiguousarray(moved.reshape(y[0], -1).T))


def _threshold(program: _native.Program, stage: Stage, buffers: _Buffers) -> None:
    """Both x > t, and x < t for direction -1, are direction * x > direction * t."""
    tensors = _tensors(stage)
    direction = _floats(tensors["direction"])
    program.signs(
        buffer=buffers[stage.value],
        direction=direction,
        threshold=direction * _floats(tensors["threshold"]),
    )


def _affine(program: _native.Program, stage: Stage, buffers: _Buffers) -> None:
    tensors = _tensors(stage)
    program.affine(scale=_floats(tensors["scale"]), shift=_floats(tensors["shift"]))


def _scale(program: _native.Program, stage: Stage, buffers: _Buffers) -> None:
    alpha = _tensors(stage)["alpha"]
    program.scale(alpha=_floats(alpha.reshape(len(alpha), -1).T))  # (C, H, W) -> (pixels, C)


def _clip(program: _native.Program, stage: Stage, buffers: _Buffers) -> None:
    assert stage.node is not None
    program.clip(lower=stage.node.attributes["lower"], upper=stage.node.attributes["upper"])


def _tensors(stage: Stage) -> Any:
    assert stage.node is not None
    return stage.node.tensors


FROM_SHAPES: dict[str, Callable[..., None]] = {
    "conv2d": _conv2d,
    "linear": _linear,
    "binary_conv2d": _binary_conv2d,
    "binary_linear": _binary_linear,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "upsample_nearest": _upsample_nearest,
    "reshape": _gather,
    "permute": _gather,
    "slice": _gather,
}
WHOLE: dict[str, Callable[..., None]] = {
    "global_avg_pool": lambda program, source: program.global_avg_pool(source=source),
    "flatten": lambda program, source: program.flatten(source=source),
    "softmax": lambda program, source: program.softmax(source=source),
}
STAGES: dict[str, Callable[[_native.Program, Stage, _Buffers], None]] = {
    "scale": _scale,
    "affine": _affine,
    "relu": lambda program, stage, buffers: program.relu(),
    "prelu": lambda program, stage, buffers: program.prelu(slope=_floats(_tensors(stage)["slope"])),
    "clip": _clip,
    "sigmoid": lambda program, stage, buffers: program.sigmoid(),
    "add": lambda program, stage, buffers: program.add(buffer=buffers[stage.value]),
    "multiply": lambda program, stage, buffers: program.multiply(buffer=buffers[stage.value]),
    "store": lambda program, stage, buffers: program.store(buffer=buffers[stage.value]),
    "threshold": _threshold,
}
