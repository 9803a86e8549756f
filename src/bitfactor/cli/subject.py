"""A network to be measured: a run in torch, or an exported file in the runtime."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitfactor.data import DataSet, Target
from bitfactor.errors import InputError
from bitfactor.recipes import recipe_of, recipe_of_file
from bitfactor.runtime import Session
from bitfactor.training import Recipe, Run, restore
from bitfactor.training.limited import Limited

_BATCH = 256


@dataclass(frozen=True)
class Subject:
    """What is at `path`, with the held-out data of its recipe; `outputs` takes a batch of inputs."""

    path: Path
    recipe: Recipe
    data: DataSet
    outputs: Callable[[Tensor], Tensor]


def subject_at(
    path: Path, directory: Path | None = None, *, limit: int | None = None, best: bool = False
) -> Subject:
    """Return the network of a run's directory or of an exported file.

    Parameters
    ----------
    directory
        Of the data, for recipes that need one.
    limit
        At most about so many held-out pictures.
    best
        Of a run, take the checkpoint of its best epoch.
    """
    if path.is_dir():
        run = Run(path)
        recipe, labels = recipe_of(run), run.interface().labels
        outputs = _in_torch(recipe, run, best=best)
    else:
        session = Session(path)
        recipe, labels = recipe_of_file(session.model, path), session.model.labels
        outputs = _in_runtime(session)
    data = recipe.data(directory)
    if labels and data.labels != labels:
        raise InputError(
            directory or path,
            expected=f"data with the classes of {path} ({len(labels)})",
            found=f"{len(data.labels)} classes"
            if len(data.labels) != len(labels)
            else "others of the same number",
            fix="name the directory that it was trained on",
        )
    return Subject(path, recipe, Limited(data, limit) if limit else data, outputs)


def held_out(subject: Subject) -> Iterator[tuple[Tensor, Target, Tensor]]:
    """Yield inputs, target and outputs of the held-out data, batch by batch."""
    for inputs, target in subject.data.test_batches(_BATCH):
        yield inputs, target, subject.outputs(inputs)


def _in_torch(recipe: Recipe, run: Run, *, best: bool) -> Callable[[Tensor], Tensor]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = restore(recipe, run, best=best).to(device)

    @torch.inference_mode()
    def outputs(inputs: Tensor) -> Tensor:
        return model(inputs.to(device)).cpu()  # type: ignore[no-any-return]

    return outputs


def _in_runtime(session: Session) -> Callable[[Tensor], Tensor]:
    return lambda inputs: torch.from_numpy(np.asarray(session(inputs.numpy())))
