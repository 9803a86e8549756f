"""A network that the file cannot hold as a whole, in parts: those that the runtime runs, and the rest.

The parts are layers of the trace: a part takes what earlier ones give, and the runtime and torch take turns.
They stand in one zip file, model files beside programs of torch.export, with `parts.json`, which says in what
order they run and what goes where. The rest runs sample by sample, as its shapes are those of one.
"""

import json
import operator
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves

from bitfactor.common.arrays import relative_difference
from bitfactor.common.checks import checked, record
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.result import Result, text_table
from bitfactor.exporter.builder import Unknown
from bitfactor.exporter.fold import fold
from bitfactor.exporter.follow import constant_of
from bitfactor.exporter.lower import Lowered, Visit, lower_trace
from bitfactor.exporter.parity import check, expect_same_operations, tensors_of, torch_values
from bitfactor.exporter.report import Obstacle, UnsupportedError, grouped
from bitfactor.exporter.trace import Trace, leaves, placeholders, traced, type_of
from bitfactor.format import ModelFile, Signature, Value, save
from bitfactor.format.graph import run, total
from bitfactor.format.low_precision import Real, quantise
from bitfactor.format.model import golden_inputs
from bitfactor.format.signature import as_float, plain
from bitfactor.nn.model import Call
from bitfactor.runtime import Session
from bitfactor.runtime.inputs import by_name

SUFFIX, _INDEX = ".zip", "parts.json"
_LAYERS = ("conv", "linear", "matmul")


@dataclass(frozen=True)
class Part:
    """One part: a file, what runs it (bitfactor or torch), the values that it takes and gives."""

    file: str
    runs: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    binary_macs: int = 0
    real_macs: int = 0

    @property
    def macs(self) -> tuple[int, int]:
        return self.binary_macs, self.real_macs


@dataclass(frozen=True)
class SplitReport(Result):
    """What was written: the parts in their order, and the places that torch has to run.

    `max_difference` is that of the whole from the model, as a fraction of its largest output.
    """

    path: str
    parts: tuple[Part, ...]
    rest: tuple[Obstacle, ...]
    max_difference: float
    file_bytes: int = 0

    def __str__(self) -> str:
        head = ["part", "runs in", "takes", "gives", "1-bit MACs", "real MACs"]
        rows = [
            [one.file, one.runs, ", ".join(one.inputs), ", ".join(one.outputs), *map(_count, one.macs)]
            for one in self.parts
        ]
        return "\n".join(
            [
                text_table(head, rows, right=frozenset({4, 5})),
                "",
                f"{self.path}: {self.file_bytes:,} bytes; bitfactor.exporter.Split runs it, with torch for:",
                *grouped(self.rest),
                f"largest difference from the model {self.max_difference:.1e} of the largest output",
            ]
        )


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


class Split:
    """Runs what `bitfactor.export(..., on_unsupported="split")` wrote; it needs torch. Called as a `Session`.

    Example
    -------
    >>> Split("net.zip")(x.numpy()).shape
    (2, 10)
    """

    @checked
    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        try:
            with TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
                index = json.loads((Path(folder) / _INDEX).read_text())
                self.parts = [record(Part, one) for one in index["parts"]]
                self._runs = [_runner(Path(folder) / one.file, one, threads) for one in self.parts]
            self.input_names: tuple[str, ...] = tuple(index["inputs"])
            self.outputs: list[str] = index["outputs"]
            self.signature = Signature.restored(index["signature"])
        except Exception as error:  # of zipfile, json, torch
            fix = "write one with bitfactor.export(..., on_unsupported='split')"
            found = " ".join(str(error).split())[:200] or type(error).__name__
            raise InputError(path, expected="a network in parts", found=found, fix=fix) from error

    def __call__(self, *args: NDArray[Any], **kwargs: NDArray[Any]) -> Any:
        """Return what the model returns for inputs (N, ...), in their order or by name."""
        given = by_name(self.input_names, args, kwargs)
        values: dict[str, NDArray[Any]] = {}
        for name, kind, (where, x) in zip(self.input_names, self.signature.types, given, strict=True):
            as_float(x, kind, where)
            values[name] = x.astype(kind)
        for part, runs in zip(self.parts, self._runs, strict=True):
            values.update(zip(part.outputs, runs([values[name] for name in part.inputs]), strict=True))
        return self.signature.arrange([values[name] for name in self.outputs])


def _runner(file: Path, part: Part, threads: int | None) -> Any:
    if part.runs == "bitfactor":
        session = Session(file, threads=threads)
        return lambda xs: session(*xs)
    module = torch.export.load(file).module()

    def by_sample(xs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        count = len(xs[0])
        given = xs if count else [np.zeros((1, *x.shape[1:]), x.dtype) for x in xs]  # for the shapes alone
        try:
            samples = [
                [y.numpy() for y in tensors_of(module(*(torch.tensor(x[i : i + 1]) for x in given)))]
                for i in range(max(count, 1))
            ]
        except (AssertionError, IndexError, RuntimeError) as error:
            found = f"{', '.join(str(x.shape) for x in xs)} ({' '.join(str(error).split())[:120]})"
            fix = "resize, or pad, to the shape of the example"
            expected = "inputs as the part takes them"
            raise InputError(file.name, expected=expected, found=found, fix=fix) from error
        return [np.concatenate(parts)[:count] for parts in zip(*samples, strict=True)]

    return by_sample


def split(
    model: nn.Module,
    path: str | os.PathLike[str],
    call: Call,
    error: UnsupportedError,
    real: Real,
    overwrite: bool = False,
) -> SplitReport:
    """Write the parts of a model that the file cannot hold as a whole; see `bitfactor.export`."""
    path = expect_output(Path(path).with_suffix(SUFFIX), overwrite=overwrite)
    two = call.mapped(lambda x: x[:2] if len(x) > 1 else x.repeat_interleave(2, 0))
    first, other = Cut(model, two.mapped(lambda x: x[:1])), Cut(model, two)
    if not any(piece.lowered for piece in first.pieces):
        raise error
    for piece, again in zip(first.pieces, other.pieces, strict=True):
        if piece.lowered and again.lowered:
            expect_same_operations(piece.lowered.graph, again.lowered.graph, "number of samples")
    with TemporaryDirectory() as folder:
        parts = first.write(Path(folder), real)
        index = {
            "parts": [asdict(part) for part in parts],
            "inputs": first.names,
            "outputs": first.outputs,
            "signature": first.signature.described(),
        }
        (Path(folder) / _INDEX).write_text(json.dumps(index))
        with replacing(path) as temporary:
            with zipfile.ZipFile(temporary, "w") as archive:
                for file in sorted(Path(folder).iterdir(), key=lambda file: (file.name != _INDEX, file.name)):
                    archive.write(file, file.name)
            difference = _difference(model, Split(temporary), two)
            file_bytes = temporary.stat().st_size
    return SplitReport(str(path), tuple(parts), error.obstacles, difference, file_bytes)


def _difference(model: nn.Module, whole: Split, call: Call) -> float:
    """Return how far the parts together are from the model, as a fraction of the largest output."""
    with torch.inference_mode():
        expected = tensors_of(call(model))
    found = [y for y in tree_leaves(whole(*(x.numpy() for x in call.tensors))) if y is not None]
    difference = max(relative_difference(y, z.numpy()) for y, z in zip(found, expected, strict=True))
    if not difference <= _TOLERANCE:
        raise InputError(
            type(model).__name__,
            expected=f"parts that give the model's outputs within {_TOLERANCE}",
            found=f"{difference:.1e}",
            fix="keep the samples of a batch apart, or else please report this model",
        )
    return difference


_TOLERANCE = 0.05  # rounding may turn a sign next to zero; each operation by itself is checked


@dataclass(frozen=True)
class Piece:
    """A part in torch: `module` takes `inputs` and gives `outputs`; `lowered` is it as a graph, or None."""

    module: fx.GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lowered: Lowered | None


class Cut:
    """A model, traced with a call, in pieces."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        trace = traced(model, call)
        visit = Visit(trace)
        _store_constants(visit)
        levels = _levels(trace.module.graph, _rest(visit))
        whole = split_module(trace.module, None, levels.get)  # type: ignore[arg-type]
        self.call, self.signature = call, trace.signature
        self.names = [value.name for value in trace.inputs]
        self.pieces: list[Piece] = []
        values: dict[fx.Node, Any] = dict(zip(placeholders(whole), trace.given.values(), strict=True))
        for node in whole.graph.nodes:
            if node.op == "call_module":
                is_rest = int(str(node.target).removeprefix("submod_")) % 2 == 1
                self.pieces.append(_piece(whole, node, values, is_rest=is_rest))
                values[node] = self.pieces[-1].outputs
            elif node.op == "call_function":  # one of several values that a piece gives
                values[node] = values[node.args[0]][node.args[1]]
        self.outputs = [_one(values[leaf]) for leaf in leaves(whole) if leaf is not None]

    def write(self, folder: Path, real: Real) -> list[Part]:
        """Write the pieces, checked on the values that torch has between them."""
        values = dict(zip(self.names, self.call.tensors, strict=True))
        parts = []
        for i, piece in enumerate(self.pieces):
            xs = [values[name] for name in piece.inputs]
            with torch.no_grad():
                values.update(zip(piece.outputs, tensors_of(piece.module(*xs)), strict=True))
            write = _write_rest if piece.lowered is None else _write_graph
            parts.append(write(folder, i, piece, xs, real))
        return parts


def _one(value: Any) -> str:
    """Return the name of a value, where a piece gives one alone."""
    name: str = value[0] if isinstance(value, tuple) else value
    return name


def _store_constants(visit: Visit) -> None:
    """Let what is computed from constants be a constant of the trace; drop what only checks its inputs."""
    module = visit.trace.module
    for i, node in enumerate(list(module.graph.nodes)):
        value = visit.environment.get(node)
        if node.op == "call_module":
            module.graph.erase_node(node)
        elif node.op == "call_function" and isinstance(value, Tensor):
            module.register_buffer(f"constant_{i}", value)
            _replace(module, node, f"constant_{i}")


def _replace(module: fx.GraphModule, node: fx.Node, constant: str) -> None:
    with module.graph.inserting_before(node):
        stored = module.graph.get_attr(constant)
    stored.meta = node.meta
    node.replace_all_uses_with(stored)
    module.graph.erase_node(node)


def _rest(visit: Visit) -> set[fx.Node]:
    """Return the nodes that torch runs: those that could not be lowered, and what is not worth a part."""
    graph = visit.trace.module.graph
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    rest, before = {node for node in nodes if node in visit.missing}, -1
    while len(rest) > before:
        before = len(rest)
        rest |= {node for node in nodes if _belongs_to_rest(node, rest, visit)}
        levels = _levels(graph, rest)
        layers = {levels[node] for node in nodes if any(op in str(node.target) for op in _LAYERS)}
        rest |= {node for node in nodes if levels[node] % 2 == 0 and levels[node] not in layers}
    return rest


def _belongs_to_rest(node: fx.Node, rest: set[fx.Node], visit: Visit) -> bool:
    """Whether a value would have to pass between the parts that cannot: one of integers, say."""
    from_rest = [operand for operand in node.all_input_nodes if operand in rest]
    if node.target is operator.getitem:
        return bool(from_rest)
    passing = [*from_rest, *([node] if any(user in rest for user in node.users) else [])]
    return any(isinstance(visit.builder.stand_in(one.meta.get("val")), Unknown) for one in passing)


def _levels(graph: fx.Graph, rest: set[fx.Node]) -> dict[fx.Node, int]:
    """Return the number of each node's part: even ones run in the runtime, odd ones in torch."""
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            odd = int(node in rest)
            before = [levels[operand] for operand in node.all_input_nodes if operand in levels]
            levels[node] = max((level + (level % 2 != odd) for level in before), default=odd)
    return levels


def _piece(whole: fx.GraphModule, node: fx.Node, values: Mapping[fx.Node, Any], *, is_rest: bool) -> Piece:
    module: Any = getattr(whole, str(node.target))
    inputs: dict[fx.Node, str] = {}
    for i, (operand, inner) in enumerate(zip(node.args, placeholders(module), strict=True)):
        assert isinstance(operand, fx.Node)
        if operand.op == "get_attr":
            module.register_buffer(f"constant_{i}", constant_of(whole, str(operand.target)))
            _replace(module, inner, f"constant_{i}")
        else:
            inputs[inner] = _one(values[operand])
    module.recompile()
    outputs = tuple(f"{node.target}.{i}" for i in range(len(leaves(module))))
    return Piece(module, tuple(inputs.values()), outputs, None if is_rest else _lowered(module, [*inputs]))


def _lowered(module: fx.GraphModule, inputs: Sequence[fx.Node]) -> Lowered:
    vals = [node.meta["val"] for node in inputs]
    values = [Value(f"in{i}", tuple(val.shape[1:]) or (1,), "float32") for i, val in enumerate(vals)]
    given = {node: value.name for value, node in zip(values, inputs, strict=True)}
    signature = plain(len(inputs), len(leaves(module)))
    return lower_trace(Trace(module, tuple(values), len(vals[0]), given, signature), "a part")


def _write_graph(folder: Path, i: int, piece: Piece, xs: Sequence[Tensor], real: Real) -> Part:
    assert piece.lowered is not None
    graph, stands_for = fold(piece.lowered.graph)
    graph = quantise(graph, real)
    check(graph, torch_values(piece.lowered, Call(tuple(xs))), stands_for, real)
    integers = {n: x.numpy().astype(np.float32) for n, x in enumerate(xs) if not x.is_floating_point()}
    golden = run(graph, *golden_inputs(graph, integers))
    path = folder / f"{i}.safetensors"
    scalars = tuple(i for i, x in enumerate(xs) if x.dim() == 1)
    signature = replace(piece.lowered.signature, types=tuple(map(type_of, xs)), scalar_inputs=scalars)
    signature = replace(signature, outputs=tuple(range(len(piece.outputs))))
    save(path, ModelFile(graph, golden, signature=signature, golden_integers=integers))
    Session(path).verify()
    spent = total(graph)
    return Part(path.name, "bitfactor", piece.inputs, piece.outputs, spent.binary_macs, spent.real_macs)


def _write_rest(folder: Path, i: int, piece: Piece, xs: Sequence[Tensor], real: Real) -> Part:
    path = folder / f"{i}.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(piece.module, tuple(xs)), path)
    return Part(path.name, "torch", piece.inputs, piece.outputs)
