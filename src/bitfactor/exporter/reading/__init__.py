"""An ONNX file becomes a graph, operator by operator, and is checked against ONNX's own evaluator.

Needs the packages of `bitfactor[onnx]`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from bitfactor.common.arrays import same_class
from bitfactor.common.errors import InputError, near_matches
from bitfactor.exporter.builder import Builder
from bitfactor.exporter.fold import fold
from bitfactor.exporter.operators import shapes
from bitfactor.exporter.parity import check, values_of
from bitfactor.exporter.reading.rules import POINTWISE, RULES
from bitfactor.exporter.reading.sizes import first_lengths, fixed, free_of, given, longer, open_axes, steps_of
from bitfactor.exporter.reading.steps import DOMAINS, OPERATORS, Steps, attributes_of, padded
from bitfactor.exporter.view import View
from bitfactor.format import Graph, Value
from bitfactor.format.graph import run
from bitfactor.format.low_precision import quantise
from bitfactor.format.signature import FreeSizes

Array = NDArray[Any]

_OLDEST = 7  # with broadcasting as numpy has it
_LATEST = onnx.defs.onnx_opset_version()
_SAMPLES = 2
_CHANNELS_FIRST = [0, 3, 1, 2]


@dataclass(frozen=True)
class Reading:
    """The graph of an ONNX file, what is to be said of it, and how far it is from ONNX's evaluator.

    `real` are the layers that stay real-valued. `same_class` of `checked_inputs` samples of noise have the
    same largest output, and differ by `max_difference` of the largest. `free` are the sizes that it leaves
    open.
    """

    graph: Graph
    metadata: Mapping[str, str]
    warnings: tuple[str, ...]
    checked_inputs: int
    same_class: int
    max_difference: float
    free: FreeSizes | None = None


def read(path: str | os.PathLike[str]) -> Reading:
    """Read an ONNX file, and check each operation of its graph on what ONNX's evaluator has there.

    Raises
    ------
    InputError
        If the file is damaged, of an opset that is not known, or holds what a graph cannot: it names the
        node.
    """
    model = _loaded(path)
    try:
        return _read_at_sizes(model) if open_axes(model) else _read(model)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # types, attributes and shapes that onnx's checker lets through
        raise _unreadable(path, f"{type(error).__name__}: {error}".strip().splitlines()[0]) from error


def _read_at_sizes(model: onnx.ModelProto) -> Reading:
    """Read a file of open sizes at four of them, and hold what follows from these against two more."""
    own = first_lengths(model, _graph_of)
    first, steps = _read(fixed(model, own)), steps_of(model, own, _graph_of)
    if not steps:
        only = f"its sizes are open, but it is read at one alone: {first.graph.input.shape}"
        return replace(first, warnings=(*first.warnings, only))
    others = [_read(fixed(model, longer(own, steps, times))) for times in (1, 3, 8)]
    far = [_graph_of(fixed(model, longer(own, steps, times))) for times in (5, 21)]
    turned = Reader(fixed(model, own)).turned
    axes = sorted(
        (i, (axis + 1) % 3 if given(model)[i].name in turned else axis, steps[name])
        for name, places in open_axes(model).items()
        if name in steps
        for i, axis in places
    )
    return replace(
        first,
        free=free_of([first.graph, *(other.graph for other in others)], axes, far),
        max_difference=max(one.max_difference for one in (first, *others)),
    )


def _graph_of(model: onnx.ModelProto) -> Graph:
    return quantise(fold(Reader(model).graph())[0], "float32")


def _read(model: onnx.ModelProto) -> Reading:
    reader = Reader(model)
    lowered = reader.graph()
    folded, stands_for = fold(lowered)
    graph = quantise(folded, "float32")
    inputs = {value.name: noise for value, noise in zip(reader.given, reader.noise(), strict=True)}
    truth = _evaluated(model, inputs)
    _expect_two_values(model, reader, truth)
    # A sum of signs that are scaled before may be rounded to either side of 0; ours is an integer. So ONNX's
    # values are held against the operations one by one, and what folding makes of these against themselves.
    known, values = reader.values_of(lowered, truth), reader.values_of(lowered, inputs)
    check(lowered, known, {})
    check(graph, values, stands_for)
    found = run(graph, *(values[value.name] for value in graph.inputs))
    expected = (truth[name] for name in reader.results)
    pairs = [(y.reshape(len(y), -1), z.reshape(len(z), -1)) for y, z in zip(found, expected, strict=True)]
    return Reading(
        graph,
        metadata={p.key: p.value for p in model.metadata_props},
        warnings=(*reader.warnings(), *_turned_signs(lowered, known, values)),
        checked_inputs=len(found[0]),
        same_class=same_class(*pairs[0]),
        max_difference=max(float(np.abs(y - z).max() / max(np.abs(z).max(), 1e-30)) for y, z in pairs),
    )


def _turned_signs(graph: Graph, known: Mapping[str, Array], values: Mapping[str, Array]) -> list[str]:
    """Return what is to be said of the first signs that are others than in ONNX."""
    for name, value in graph.values.items():
        turned = int((known[name] != values[name]).sum()) if value.dtype == "bit" else 0
        if turned:
            signs = f"{turned} of {values[name].size} signs of {name}"
            return [f"rounding turns {signs} in ONNX, where sums of signs are integers here"]
    return []


def _expect_two_values(model: onnx.ModelProto, reader: "Reader", truth: Mapping[str, Array]) -> None:
    """Raise InputError for a Sign that is 0 for some of the noise, as sums of signs are."""
    for node in model.graph.node:
        where, value = _place(node), truth.get(node.output[0])
        if where in reader.zeros and value is not None and not value.all():
            raise InputError(
                where,
                expected="a sign of two values",
                found=f"a third one, 0, in {(value == 0).mean():.1%} of its places",
                fix="compare with 0 instead, or add a BatchNorm before it",
            )


def _loaded(path: str | os.PathLike[str]) -> onnx.ModelProto:
    try:
        model = onnx.load(os.fspath(path), format="protobuf")
        if not model.graph.node:
            raise DecodeError("no operators")
        onnx.checker.check_model(model) if _is_standard(model) else None
        for one in model.graph.initializer:
            numpy_helper.to_array(one)  # says of what is none a KeyError or a ValueError
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(path, expected="an ONNX file", found=found, fix="name one that is there") from error
    except (DecodeError, onnx.checker.ValidationError, KeyError, ValueError, TypeError) as error:
        raise _unreadable(path, next(iter(str(error).strip().splitlines()), type(error).__name__)) from error
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not _OLDEST <= opset.version <= _LATEST:
            raise InputError(
                path,
                expected=f"opset {_OLDEST} to {_LATEST}",
                found=str(opset.version),
                fix="convert it with onnx.version_converter",
            )
    return _evaluable(model)


def _evaluable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model as ONNX's evaluator takes it for what runtimes do.

    It wants the domains of all nodes named, which Brevitas did not, and a BatchNormalization older than opset
    14 mixes statistics of the batch in, unless its momentum is 1.
    """
    known = {one.domain for one in model.opset_import}
    missing = sorted({node.domain for node in model.graph.node} - known - {"", "ai.onnx"})
    model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in missing)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            kept = [one for one in node.attribute if one.name != "momentum"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("momentum", 1.0)])
    return model


def _is_standard(model: onnx.ModelProto) -> bool:
    return all(node.domain in ("", "ai.onnx") for node in model.graph.node)


def _unreadable(path: object, found: str) -> InputError:
    return InputError(path, expected="an ONNX file", found=found, fix="write it again with its exporter")


class Reader:
    """Goes over the nodes of an ONNX graph.

    `products` and `differences` are values that are one of these of another value and a constant.
    `not_negative` are those that are 0 or more, `zeros` the signs that ONNX has as 0 at 0.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), _LATEST)
        stored = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self.given = given(model)
        self.results = [value.name for value in model.graph.output]
        self.values: dict[str, Any] = {name: _tensor(array) for name, array in stored.items()}
        self.products: dict[str, tuple[View, Tensor]] = {}
        self.differences: dict[str, tuple[View, Tensor, bool]] = {}
        self.not_negative: set[str] = set()
        self.zeros: set[str] = set()
        self.origins: dict[str, tuple[str, View]] = {}
        self.outputs = 1
        sizes = [_sizes(value) for value in self.given]
        self.turned = {value.name for value in self.given if self._is_channels_last(value.name)}
        self.batch = next((size[0] for size in sizes if size[0]), _SAMPLES)
        self.sizes = [(self.batch, *size[1:]) for size in sizes]
        inputs = [
            Value(value.name, _first(size[1:]) if value.name in self.turned else size[1:], "float32")
            for value, size in zip(self.given, self.sizes, strict=True)
        ]
        self.builder = Builder(inputs, self.batch)
        for value in inputs:
            view = self.builder.view(value.name)
            self._give(
                value.name,
                shapes.permute(self.builder, view, [0, 2, 3, 1]) if value.name in self.turned else view,
            )
        for node in model.graph.node:
            self._visit(node)

    def graph(self) -> Graph:
        """Return the graph of all that was read."""
        missing = [name for name in self.results if isinstance(self.values.get(name), Tensor)]
        if missing:
            raise InputError(
                f"output {missing[0]!r}",
                expected="one that depends on the input",
                found="a constant",
                fix="leave it out of the model",
            )
        views = [padded(self.builder, self.values[name]) for name in self.results]
        return self.builder.graph([self.builder.as_torch(view) for view in views])

    def noise(self) -> list[Array]:
        """Return a batch of noise for each input."""
        draw = np.random.default_rng(0)
        return [draw.standard_normal(size, np.float32) for size in self.sizes]

    def values_of(self, graph: Graph, truth: Mapping[str, Array]) -> dict[str, Array]:
        """Return what is known of the values of the graph; of others, what their definition gives."""
        wanted = {origin for origin, _ in self.origins.values() if origin in truth}
        known = {origin: torch.from_numpy(np.array(truth[origin], np.float32)) for origin in wanted}
        return values_of(graph, self.origins, known)

    def warnings(self) -> list[str]:
        if not self.zeros:
            return []
        return [f"the sign of exactly 0, in ONNX 0, is -1 here: {', '.join(sorted(self.zeros))}"]

    def shape_of(self, value: Any) -> tuple[int, ...]:
        return tuple(value.source.shape if isinstance(value, Steps) else value.shape)

    def moved(
        self, value: Any, move: Callable[[View], View], move_constant: Callable[[Tensor], Tensor]
    ) -> Any:
        """Move the numbers of a value; of `Steps`, their source and whatever depends on the place."""
        if isinstance(value, Steps) and not value.sides:
            if value.is_plain:
                return replace(value, source=move(value.source))
            shape = value.source.shape

            def part(x: Tensor) -> Tensor:
                return x if x.numel() == 1 else move_constant(x.expand(shape))

            return Steps(
                move(value.source),
                part(value.threshold),
                part(value.below),
                part(value.at),
                part(value.above),
            )
        view = padded(self.builder, value)
        y = move(view)
        if view.name in self.not_negative:
            self.not_negative.add(y.name)
        return y

    def _is_channels_last(self, name: str) -> bool:
        """Whether an input is only read as channels first."""
        readers = [node for node in self.model.graph.node if name in node.input]
        return (
            bool(readers)
            and name not in self.results
            and all(
                node.op_type == "Transpose" and list(attributes_of(node).get("perm", [])) == _CHANNELS_FIRST
                for node in readers
            )
        )

    def _give(self, name: str, value: Any) -> None:
        self.values[name] = value
        if isinstance(value, View):
            self.origins.setdefault(value.name, (name, value))

    def _visit(self, node: onnx.NodeProto) -> None:
        b = self.builder
        b.module = node.output[0].replace("/", ".").strip(".") or node.op_type
        b.where, self.outputs = _place(node), len(node.output)
        unknown = [one for one in node.input if one and one not in self.values]
        if unknown:
            raise b.refused("inputs computed before it", repr(unknown[0]), "sort the nodes")
        values = [self.values[one] if one else None for one in node.input]
        try:
            results = self._results(node, values)
        except InputError as error:
            if str(error).startswith(b.where):
                raise
            raise b.refused(error.expected, error.found, error.fix) from error
        except Exception as error:
            found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise b.refused("a form that the file can hold", found, "express it in another way") from error
        for output, value in zip(node.output, results, strict=False):
            self._give(output, value)

    def _results(self, node: onnx.NodeProto, values: list[Any]) -> Sequence[Any]:
        if node.op_type == "Shape":
            start, end = (attributes_of(node).get(name) for name in ("start", "end"))
            return [torch.tensor(self.shape_of(values[0])[start:end])]
        if node.op_type == "Quant" and isinstance(values[3], Tensor) and 1 < float(values[3]) < 8:
            return [RULES["Quant"](self, *values)]  # refused, also for weights
        if all(value is None or isinstance(value, Tensor) for value in values):
            return [_tensor(array) for array in self._evaluated(node, values)]
        steps = [i for i, value in enumerate(values) if isinstance(value, Steps)]
        others = [v for i, v in enumerate(values) if i not in steps and v is not None]
        if node.op_type in POINTWISE and len(steps) == 1 and all(isinstance(v, Tensor) for v in others):
            found = self._of_steps(node, values, steps[0])
            if found is not None:
                return [found]
        rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx", *DOMAINS) else None
        if rule is None:
            raise self.builder.refused(
                "an operator that is read",
                f"{node.domain or 'ai.onnx'} {node.op_type}",
                near_matches(node.op_type, RULES),
            )
        result = rule(self, *values, **attributes_of(node))
        return result if isinstance(result, list) else [result]

    def _of_steps(self, node: onnx.NodeProto, values: list[Any], place: int) -> Steps | None:
        steps: Steps = values[place]
        if steps.sides:
            return None

        def function(level: Tensor) -> Tensor:
            return _tensor(self._evaluated(node, [*values[:place], level, *values[place + 1 :]])[0])

        found = steps.mapped(function)
        dims = len(steps.source.dims)
        return found if all(x.dim() <= dims for x in (found.below, found.at, found.above)) else None

    def _evaluated(self, node: onnx.NodeProto, values: list[Any]) -> list[Array]:
        """Return what a node gives for constants."""
        arrays = {
            name: value.numpy() for name, value in zip(node.input, values, strict=True) if value is not None
        }
        graph = helper.make_graph(
            [node],
            "one",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in arrays.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
        )
        single = helper.make_model(
            graph, opset_imports=self.model.opset_import, functions=list(self.model.functions)
        )
        found = _evaluator(single).run(None, arrays)
        return [np.asarray(array) for array in found]


def _place(node: onnx.NodeProto) -> str:
    return f"node {node.name or node.output[0]!r} ({node.op_type})"


def _evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    known = {(one.op_domain, one.__name__) for one in OPERATORS}
    kept = [one for one in model.functions if (one.domain, one.name) not in known]
    if len(kept) < len(model.functions):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.functions[:]
        copy.functions.extend(kept)
        model = copy
    return ReferenceEvaluator(model, new_ops=OPERATORS)


def _evaluated(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
    found = _evaluator(model).run(None, dict(given), intermediate=True)
    return {**given, **found}  # type: ignore[dict-item]


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))


def _first(size: tuple[int, ...]) -> tuple[int, ...]:
    return (size[2], size[0], size[1])


def _sizes(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape of an input; the batch is 0 where it is open."""
    kind = value.type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    if kind.elem_type != onnx.TensorProto.FLOAT or len(dims) < 2:
        shape = [dim.dim_value or dim.dim_param or "?" for dim in kind.shape.dim]
        raise InputError(
            f"input {value.name!r}",
            expected="float32, and a batch in front",
            found=f"type {onnx.TensorProto.DataType.Name(kind.elem_type)}, shape {shape}",
            fix="give it a batch, and change its type with a Cast",
        )
    return tuple(dims)
