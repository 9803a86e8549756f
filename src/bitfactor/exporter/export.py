"""`bitfactor.export`: lower, fold, find free sizes by running the model, check against torch, write."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfactor.common.arrays import relative_difference, same_class
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_name, expect_output, replacing
from bitfactor.exporter.builder import floats
from bitfactor.exporter.fold import fold
from bitfactor.exporter.lower import Lowered, lower
from bitfactor.exporter.parity import (
    check,
    check_adoption,
    check_trace,
    expect_any_batch,
    expect_binary,
    expect_calibration,
    expect_description,
    expect_examples,
    expect_model,
    expect_same_operations,
    tensors_of,
    torch_values,
)
from bitfactor.exporter.report import (
    ExportReport,
    UnsupportedError,
    calibration_of,
    float_bytes,
    folded_away,
    layer_reports,
    warnings_about,
    with_integers,
    with_ranges,
)
from bitfactor.exporter.split import SplitReport, split
from bitfactor.format import Graph, InputSpec, ModelFile, Signature, Skeleton, save
from bitfactor.format.graph import run
from bitfactor.format.low_precision import Real, quantise
from bitfactor.format.model import golden_inputs
from bitfactor.format.signature import FreeSizes, free_sizes, plain
from bitfactor.nn.model import Call, Example, copied, noise_like
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.runner import runner

_STEPS = (1, 2, 4, 8, 16, 32, 64)
_TIMES, _MOST = (8, 4, 2), 1 << 25  # elements of all values
Axis = tuple[int, int]  # number of the input, axis of a sample


@dataclass(frozen=True)
class Free:
    """Axes that have one length, which may grow by multiples of `step`."""

    axes: tuple[Axis, ...]
    step: int


def free_axes(model: nn.Module, call: Call) -> list[Free]:
    """Return the axes whose length may be another, each with the smallest step that the model takes.

    The axes of one length in several inputs, such as ids and their mask, are tried together where none can
    change by itself.
    """
    every = [(i, axis) for i, x in enumerate(call.tensors) for axis in range(x.dim() - 1)]
    found = [free for axis in every if (free := _free(model, call, (axis,)))]
    tried = {axis for free in found for axis in free.axes}
    tied: dict[int, list[Axis]] = {}
    for axis in every:
        if axis not in tried:
            tied.setdefault(_length(call, axis), []).append(axis)
    for axes in tied.values():
        if len({i for i, _ in axes}) > 1 and (free := _free(model, call, tuple(axes))):
            found.append(free)
    if not found:
        raise InputError(
            "dynamic_size",
            expected="a model that takes inputs of other sizes than the example's",
            found="none that it takes",
            fix="leave it out, or replace what fixes the size, such as a flatten before a linear layer",
        )
    return found


def _length(call: Call, axis: Axis) -> int:
    return call.tensors[axis[0]].shape[axis[1] + 1]


def _free(model: nn.Module, call: Call, axes: tuple[Axis, ...]) -> Free | None:
    for step in _STEPS:
        # Twice, as one step may do where a pool rounds.
        if all(_runs(model, resized(call, dict.fromkeys(axes, times * step))) for times in (1, 2)):
            return Free(axes, step)
    return None


def _runs(model: nn.Module, call: Call) -> bool:
    try:
        with torch.no_grad():
            call(model)
    except Exception:  # whatever the model's own code says of a size it was not made for
        return False
    return True


def resized(call: Call, more: dict[Axis, int]) -> Call:
    """Return the call with axes of inputs so much longer, or shorter; the values are the example's, again."""
    number = iter(range(len(call.tensors)))

    def longer(x: Tensor) -> Tensor:
        i = next(number)
        for axis in range(x.dim() - 1):
            length = x.shape[axis + 1]
            places = torch.arange(length + more.get((i, axis), 0)) % length
            x = x.index_select(axis + 1, places)
        return x

    return call.mapped(longer)


def other_sizes(call: Call, free: Sequence[Free]) -> Iterator[Call]:
    """Yield the call at three larger sizes; no two lengths that change by themselves grow alike."""
    for least in (1, 3, 8):
        more = {axis: one.step * (least + i) for i, one in enumerate(free) for axis in one.axes}
        yield resized(call, more)


def far_sizes(
    model: nn.Module, call: Call, free: Sequence[Free], graph: Graph, sizes: FreeSizes
) -> Iterator[tuple[Call, Graph]]:
    """Yield a sample far from the example in size, with what the file has as its graph.

    Those are the smallest size that the model takes, one half-way from there, and one several times the
    example's, up to 2^25 elements in all.
    """
    one = call.mapped(lambda x: x[:1])
    least = [_least(model, one, each) for each in free]
    for counts in (least, [count // 2 for count in least]):
        other = _apart(one, free, counts)
        planned = _planned(other, graph, sizes)
        if planned and _runs(model, other):
            yield other, planned
    for times in _TIMES:
        # Two lengths of an example may be the same: here they differ.
        counts = [(times - 1) * _length(one, each.axes[0]) // each.step + i for i, each in enumerate(free)]
        other = _apart(one, free, counts)
        planned = _planned(other, graph, sizes)
        fits = planned and sum(prod(value.shape) for value in planned.values.values()) <= _MOST
        if planned and fits and _runs(model, other):
            yield other, planned
            return


def _apart(call: Call, free: Sequence[Free], counts: Sequence[int]) -> Call:
    """Return the call, of other values, with each free length so many steps longer."""
    more = {axis: one.step * count for one, count in zip(free, counts, strict=True) for axis in one.axes}
    return resized(call, more).mapped(noise_like)


def _least(model: nn.Module, call: Call, free: Free) -> int:
    """Return how many steps, as a negative number, lead to about the smallest length that the model takes."""
    most = (_length(call, free.axes[0]) - 1) // free.step
    kept = (0, *(1 << i for i in range(most.bit_length())))
    return next((n - most for n in kept if n < most and _runs(model, _apart(call, [free], [n - most]))), 0)


def _planned(call: Call, graph: Graph, sizes: FreeSizes) -> Graph | None:
    """Return the graph of the file for a call; None where a session refuses it."""
    try:
        return sizes.graph_for(graph, [tuple(x.shape[1:]) or (1,) for x in call.tensors])
    except InputError:
        return None


CHECKED = 2
_FEW = 4  # samples
_SAME = 1e-3  # of the largest output: the same operations give the same bits, equivalent ones round


@checked
@torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]  # a file is of float32
def export(
    model: nn.Module,
    path: str | os.PathLike[str],
    example_input: Example | list[Example],
    *,
    real: Real = "float32",
    calibration: Tensor | Sequence[Tensor] | None = None,
    on_unsupported: Literal["error", "split"] = "error",
    dynamic_size: bool = False,
    input_spec: InputSpec | None = None,
    labels: Sequence[str] = (),
    skeleton: Skeleton | None = None,
    provenance: Mapping[str, str] | None = None,
    binary: bool = True,
    overwrite: bool = False,
) -> ExportReport | SplitReport:
    """Write `model` to `path` as signs: 1 bit per binary weight, no decomposition, checked against torch.

    The file appears only after each operation has given what torch gives, and the runtime has replayed the
    golden vector. Operations are compared on the examples and on random inputs (`bitfactor.exporter.parity`).

    Parameters
    ----------
    model
        Any model that `torch.export` can trace, with the layers that `bitfactor.binarize_` made, in
        evaluation mode. It is left as it is.
    example_input
        (N, ...), one batch as the model takes it, to trace and check the model with; the first two samples
        are enough. N does not bind the file: it runs batches of any size. Of a model with several inputs, a
        tuple of its arguments, or a dict of them by name. Tensors are inputs of the file, all else is fixed.
        A list of several batches, of images of different sizes, makes a file that takes each of these sizes.
    real
        How the weights of real-valued layers are stored: float32, float16 or int8 (a step per output
        channel). The report says what that costs.
    calibration
        Real samples, (N, ...) or several batches of the first example's size, a hundred or more. The file
        then holds the ranges with which `Session(precision="low")` computes real-valued layers in 8-bit
        integers. It also holds those of each value, for precision "integer". The report says what both cost
        on the samples. Other precisions stay the same.
    on_unsupported
        What to do where the file cannot hold all of the model. "error" names all places.
        "split" writes one zip file of the parts that the runtime runs, and what torch runs between them.
        `bitfactor.exporter.Split` runs it, and a `SplitReport` lists the parts.
    dynamic_size
        Make a file that takes other sizes than the example's: any height and width where the model is
        convolutional throughout, any length of a sequence. Which lengths may differ, and by how much, is
        found by running the model. The operations must be the same at all sizes. They are checked at four,
        the smallest and one several times as large among them. What a model has for each position, such as an
        embedding, reaches as far as the largest example. Then pass a list of two, the last as long as it
        gets.
    input_spec, labels, skeleton, provenance
        Stored with the model: how an image becomes an input, names of the classes or the keypoints that it
        finds, where it comes from.
    binary
        Refuse a model without a binary layer. If not, a network in full precision is written, too.
    overwrite
        Replace a file that bitfactor did not write, such as a checkpoint of the same name.

    Raises
    ------
    InputError
        If the model is in training mode, has no binary layer or a number that is not finite, or cannot be
        lowered. The message then names operator and place. Also if it does other operations for another size
        or number of samples, or the runtime disagrees with torch. Also if `path` is another's file or cannot
        be written.

    Example
    -------
    >>> model = bitfactor.models.resnet18(num_classes=10, stem="cifar")
    >>> plan = bitfactor.binarize_(model, bitfactor.Binarization(latent="tucker"))
    >>> print(bitfactor.export(model.eval(), "net.safetensors", torch.randn(2, 3, 32, 32)))
    """
    if on_unsupported == "error":
        expect_name(path, onnx=False)
        expect_output(path, overwrite=overwrite)
    expect_model(model)
    examples = expect_examples(example_input if isinstance(example_input, list) else [example_input])
    if len(examples[0].tensors[0]) <= _FEW:  # or channels, where the batch is missing
        with torch.no_grad():
            examples[0].mapped(lambda x: x.detach().cpu()).tried(copied(model).cpu())
    drawn = expect_calibration(calibration, examples[0])
    model = copied(model).cpu()
    if on_unsupported == "split":
        obstacles = _obstacles(model, examples[0])
        if obstacles is not None:
            given = {
                "calibration": drawn is not None,
                "dynamic_size": dynamic_size,
                "example_input": len(examples) > 1,
                "input_spec": input_spec is not None,
                "labels": len(labels) > 0,
                "skeleton": skeleton is not None,
                "provenance": bool(provenance),
            }
            for name in filter(given.get, given):
                raise InputError(
                    name,
                    expected="a model that one file holds, as parts have none",
                    found=f"{len(obstacles.obstacles)} places that it cannot hold",
                    fix=f"leave {name} out, or change {obstacles.obstacles[0].where}",
                )
            return split(
                model, path, examples[0].mapped(lambda x: x.detach().cpu()), obstacles, real, overwrite
            )
    short = [call.mapped(lambda x: x[:CHECKED].detach().cpu()) for call in examples]
    axes = free_axes(model, short[0]) if dynamic_size else []
    first, *others = (
        _checked_graph(model, call, real) for call in (*short, *(other_sizes(short[0], axes) if axes else ()))
    )
    free = _free_sizes(axes, [first.graph, *(other.graph for other in others)]) if axes else None
    if free is None:
        for other in others:
            expect_same_operations(first.graph, other.graph, "size of the input")
    else:
        for call, planned in far_sizes(model, short[0], axes, first.graph, free):
            _expect_same_outputs(model, call, planned, real)
    graph = first.graph
    if binary:
        expect_binary(first.lowered, model)
    expect_description(graph, input_spec, labels, skeleton, provenance or {})
    if input_spec is None and len(graph.input.shape) == 3 and graph.input.shape[0] in (1, 3):
        warnings.warn(
            f"{path} has no input_spec, so predict, evaluate and page cannot prepare an image for it: pass "
            "input_spec=bitfactor.InputSpec(...), and labels",
            UserWarning,
            stacklevel=3,  # the caller of the checked function
        )
    report = _report(model, (first, *others), real)
    if drawn is not None:
        graph = with_ranges(graph, floats(drawn), input_spec)
        report = replace(report, calibration=calibration_of(graph, floats(drawn)))
    signature, integers = _call_of(first)
    file = ModelFile(
        graph,
        run(graph, *golden_inputs(graph, integers)),
        input_spec,
        tuple(labels),
        skeleton,
        provenance or {},
        () if free else tuple(other.graph.input.shape for other in others),
        report.to_dict(),
        signature,
        integers,
        free,
    )
    if drawn is not None:
        file, cost = with_integers(file, floats(drawn))
        report = replace(report, integers=cost)
        file = replace(file, report=report.to_dict())
    with replacing(path) as temporary:
        save(temporary, file)
        Session(temporary).verify()
        file_bytes = temporary.stat().st_size
    return replace(report, path=str(path), file_bytes=file_bytes)


@dataclass(frozen=True)
class _Checked:
    """A graph that does what torch does on `inputs`, and what it was before it was folded."""

    graph: Graph
    lowered: Lowered
    inputs: tuple[Call, ...]
    real_error: float


def _free_sizes(axes: Sequence[Free], graphs: Sequence[Graph]) -> FreeSizes:
    steps = sorted((i, axis, free.step) for free in axes for i, axis in free.axes)
    return free_sizes(graphs, steps)


def _expect_same_outputs(model: nn.Module, call: Call, planned: Graph, real: Real) -> None:
    """Raise InputError unless `planned` gives what the model's own graph for the call's size gives."""
    try:
        own = quantise(fold(lower(model, call).graph)[0], real)
        isa, xs = instruction_sets()[0], [_samples(x) for x in call.tensors]
        outputs = (runner(graph, isa)(*xs) for graph in (planned, own))
        pairs = [*zip(*outputs, strict=True)]
        same = all(y.shape == z.shape and not relative_difference(y, z) > _SAME for y, z in pairs)
        found = "" if same else "others"
    except InputError as error:
        found = str(error)
    if found:
        shapes = " and ".join(str(tuple(x.shape)) for x in call.tensors)
        raise InputError(
            "dynamic_size",
            expected=f"the same operations at every size that the model takes, also for {shapes}",
            found=found,
            fix="replace what depends on the size, or leave dynamic_size out and pass a list of examples",
        )


def _obstacles(model: nn.Module, call: Call) -> UnsupportedError | None:
    """Return what the file cannot hold of a model, or None."""
    try:
        lower(model, call.mapped(lambda x: x[:CHECKED].detach().cpu()))
    except UnsupportedError as error:
        return error
    return None


def _call_of(checked: _Checked) -> tuple[Signature | None, dict[int, NDArray[np.float32]]]:
    """Return the signature, if it is one that the file must state, and the golden inputs of integers."""
    signature, graph = checked.lowered.signature, checked.graph
    integers = {
        i: _samples(x[:1]) for i, x in enumerate(checked.inputs[0].tensors) if not x.is_floating_point()
    }
    stated = signature != plain(len(graph.inputs), len(graph.outputs))
    return (signature if stated else None), integers


def _checked_graph(model: nn.Module, example: Call, real: Real) -> _Checked:
    lowered = lower(model, example)
    expect_any_batch(model, example, lowered)
    graph, stands_for = fold(lowered.graph)
    graph = quantise(graph, real)
    noise = example.mapped(noise_like)
    inputs = (example, noise) if _runs(model, noise) else (example,)
    error = 0.0
    for call in inputs:
        check_trace(model, lowered, call)
        if lowered.adoption is not None:
            check_adoption(lowered.adoption, call)
        error = max(error, check(graph, torch_values(lowered, call), stands_for, real))
    return _Checked(graph, lowered, inputs, error)


def _report(model: nn.Module, checked: Sequence[_Checked], real: Real) -> ExportReport:
    graph = checked[0].graph
    layers = layer_reports(graph, checked[0].lowered, model)
    outcomes = [_end_to_end(model, each.graph, call) for each in checked for call in each.inputs]
    furthest = max(difference for difference, _ in outcomes)
    return ExportReport(
        layers=layers,
        folded=folded_away(checked[0].lowered.graph, graph),
        warnings=(
            *warnings_about(layers, model, checked[0].inputs[0]),
            *([_APART.format(furthest)] if furthest > _FAR else []),
            *_zeros_apart(model, checked[0]),
        ),
        real=real,
        real_error=max(each.real_error for each in checked),
        float_bytes=float_bytes(model),
        checked_inputs=sum(len(call.tensors[0]) for each in checked for call in each.inputs),
        same_class=sum(same for _, same in outcomes),
        max_difference=furthest,
    )


_FAR = 0.05
_APART = (
    "on the inputs it was checked on, the file differs from torch by {:.0%} of the largest output: rounding "
    "puts a sign, a comparison or a floor on the other side; measure its accuracy"
)
_ZEROS = (
    "for an input of zeros the file differs from torch by {:.0%} of the largest output: the sign of exactly "
    "0, in torch 0, is -1 or 1 here; take torch.where(x > 0, 1.0, -1.0)"
)


def _zeros_apart(model: nn.Module, checked: _Checked) -> list[str]:
    """Return what to say where signs of others' code are 0 for an input of zeros, as of a black border."""
    if checked.lowered.adoption is None:
        return []
    call = checked.inputs[0].mapped(lambda x: torch.zeros_like(x) if x.is_floating_point() else x)
    with torch.inference_mode():
        if not all(bool(y.isfinite().all()) for y in tensors_of(call(model))):
            return []
    difference, _ = _end_to_end(model, checked.graph, call)
    return [_ZEROS.format(difference)] if difference > _FAR else []


def _samples(tensor: Tensor) -> NDArray[np.float32]:
    """Return a tensor (N, ...) as the graph has it, (N, 1) where it is (N,)."""
    array = floats(tensor)
    return array if array.ndim > 1 else array[:, None]


def _end_to_end(model: nn.Module, graph: Graph, call: Call) -> tuple[float, int]:
    """Compare the whole model with the runtime: largest relative difference, inputs with the same class."""
    with torch.inference_mode():
        expected = tensors_of(call(model))
    found = runner(graph, instruction_sets()[0])(*map(_samples, call.tensors))
    difference = max(relative_difference(z, _samples(y)) for y, z in zip(expected, found, strict=True))
    return difference, same_class(found[0], _samples(expected[0]))
