"""`bitfactor.export`: lower, fold, check against torch, write."""

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfactor.atomic import replacing
from bitfactor.errors import InputError
from bitfactor.exporter.fold import fold
from bitfactor.exporter.lower import lower
from bitfactor.exporter.report import ExportReport, float_bytes, layer_reports
from bitfactor.format import InputSpec, ModelFile, save
from bitfactor.format.file import golden_input
from bitfactor.runtime import Session, reference

RANDOM_INPUTS = 4
TOLERANCE = 1e-3


def export(
    model: nn.Module,
    path: str | os.PathLike[str],
    example_input: Tensor,
    *,
    input_spec: InputSpec | None = None,
    labels: Sequence[str] = (),
    provenance: Mapping[str, str] | None = None,
) -> ExportReport:
    """Write `model` to `path` as signs: 1 bit per binary weight, no decomposition, checked against torch.

    The file appears only after the runtime has given what torch gives, on the example and on random inputs:
    outputs within 0.001 of the largest output, and, where an output is a vector of scores, the same class.

    Parameters
    ----------
    model
        Any model that `torch.export` can trace, with the layers that `bitfactor.binarize_` made. It is left
        as it is; what is exported is its behaviour in evaluation mode.
    example_input
        (N, ...), one batch as the model takes it; what torch gives for it, the runtime must give. N does not
        bind the file: it runs batches of any size.
    input_spec, labels, provenance
        Stored with the model: how a picture becomes an input, names of the classes, where it comes from.

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
    example_input = example_input.detach().cpu()
    graph = fold(lower(model, example_input))
    golden = reference.run(graph, golden_input(graph.input.shape))
    file = ModelFile(graph, golden, input_spec, tuple(labels), provenance or {})
    with replacing(path) as temporary:
        save(temporary, file)
        session = Session(temporary)
        session.verify()
        inputs = torch.cat([example_input, _random_inputs(example_input.shape[1:])])
        difference = _compare(model, session, inputs)
        size = temporary.stat().st_size
    return ExportReport(
        str(Path(path)), layer_reports(graph), float_bytes(model), size, len(inputs), difference
    )


def _random_inputs(shape: torch.Size) -> Tensor:
    return torch.randn(RANDOM_INPUTS, *shape, generator=torch.Generator().manual_seed(0))


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())


def _compare(model: nn.Module, session: Session, inputs: Tensor) -> float:
    """Return the largest relative difference between torch and the runtime."""
    with torch.inference_mode():
        expected = _outputs(model(inputs))
    found = _outputs(session(_numpy(inputs)))
    worst = 0.0
    for y, z in zip(expected, found, strict=True):
        worst = max(worst, float(np.abs(y - z).max() / max(np.abs(y).max(), np.finfo(np.float32).tiny)))
        if worst > TOLERANCE or (y.ndim == 2 and not np.array_equal(y.argmax(1), z.argmax(1))):
            raise InputError(
                "export",
                expected=f"torch and the runtime within {TOLERANCE} of the largest output, same classes",
                found=f"a difference of {worst:.2e}",
                fix="please report this model: the exported file would not do what the model does",
            )
    return worst


def _outputs(result: Any) -> list[NDArray[np.float32]]:
    values = result if isinstance(result, tuple | list) else [result]
    return [_numpy(value) if isinstance(value, Tensor) else value for value in values]
