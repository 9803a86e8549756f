"""`bitfactor.export`: lower, fold, check against torch, write."""

import copy
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfactor.atomic import replacing
from bitfactor.exporter.fold import fold
from bitfactor.exporter.lower import lower
from bitfactor.exporter.parity import as_tuple, check, check_trace, relative_difference, torch_values
from bitfactor.exporter.report import ExportReport, float_bytes, layer_reports
from bitfactor.format import InputSpec, ModelFile, Skeleton, save
from bitfactor.format.file import golden_input
from bitfactor.runtime import Session, reference

CHECKED = 2


def export(
    model: nn.Module,
    path: str | os.PathLike[str],
    example_input: Tensor,
    *,
    input_spec: InputSpec | None = None,
    labels: Sequence[str] = (),
    skeleton: Skeleton | None = None,
    provenance: Mapping[str, str] | None = None,
) -> ExportReport:
    """Write `model` to `path` as signs: 1 bit per binary weight, no decomposition, checked against torch.

    The file appears only after each of its operations has given what torch gives, on the example and on
    random inputs (see `bitfactor.exporter.parity`), and after the runtime has replayed the golden vector.

    Parameters
    ----------
    model
        Any model that `torch.export` can trace, with the layers that `bitfactor.binarize_` made. It is left
        as it is; what is exported is its behaviour in evaluation mode.
    example_input
        (N, ...), one batch as the model takes it, to trace and check the model with; the first two samples
        are enough. N does not bind the file: it runs batches of any size.
    input_spec, labels, skeleton, provenance
        Stored with the model: how a picture becomes an input, names of the classes or the joints that it
        finds, where it comes from.

    Raises
    ------
    InputError
        If the model cannot be lowered (an operator that is not supported is named, and where it stands), the
        runtime disagrees with torch, or `path` cannot be written.

    Example
    -------
    >>> model = bitfactor.models.resnet18(num_classes=10, stem="cifar")
    >>> plan = bitfactor.binarize_(model, bitfactor.Binarization(latent="tucker"))
    >>> print(bitfactor.export(model, "net.safetensors", torch.randn(2, 3, 32, 32)))
    """
    model = copy.deepcopy(model).cpu().eval()
    example = example_input[:CHECKED].detach().cpu()
    lowered = lower(model, example)
    graph, stands_for = fold(lowered.graph)
    batches = [example, _random_like(example)]
    for batch in batches:
        check_trace(model, lowered, batch)
        check(graph, torch_values(lowered, batch), stands_for)
    inputs = torch.cat(batches)
    golden = reference.run(graph, golden_input(graph.input.shape))
    with replacing(path) as temporary:
        save(temporary, ModelFile(graph, golden, input_spec, tuple(labels), skeleton, provenance or {}))
        session = Session(temporary)
        session.verify()
        difference, same_class = _end_to_end(model, session, inputs)
        file_bytes = temporary.stat().st_size
    return ExportReport(
        path=str(path),
        layers=layer_reports(graph),
        float_bytes=float_bytes(model),
        file_bytes=file_bytes,
        checked_inputs=len(inputs),
        same_class=same_class,
        max_difference=difference,
    )


def _random_like(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())


def _end_to_end(model: nn.Module, session: Session, x: Tensor) -> tuple[float, int]:
    """Compare the whole model with the runtime: largest relative difference, inputs with the same class."""
    with torch.inference_mode():
        expected = as_tuple(model(x))
    found = as_tuple(session(_numpy(x)))
    difference = max(relative_difference(z, _numpy(y)) for y, z in zip(expected, found, strict=True))
    classes = [_numpy(expected[0]), found[0]]
    first, second = (scores.reshape(len(x), -1).argmax(1) for scores in classes)
    return difference, int((first == second).sum())
