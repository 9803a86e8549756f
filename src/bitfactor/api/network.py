"""A network to evaluate: a run in torch, or an exported file in the runtime, which needs no torch."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError, imported
from bitfactor.data.readers.files import Holdout
from bitfactor.data.readers.identity import Identity, identity_in, remembered
from bitfactor.format import InputSpec
from bitfactor.runtime import Precision, Session
from bitfactor.runtime.hub import located
from bitfactor.runtime.zoo import locate

if TYPE_CHECKING:
    from bitfactor.training import Recipe

Array = NDArray[Any]


@runtime_checkable
class RunDirectory(Protocol):
    """What `bitfactor.train` returns, or anything else that knows the directory of a run."""

    path: Any


@dataclass(frozen=True)
class Network:
    """What is at `path`; `outputs` takes inputs (N, C, H, W) to what the network says of them.

    `recipe` names what it was trained by, and `full_recipe()` returns that, with its settings, in torch.
    `holdout` and `trained_with` are of that training; `keypoints` are the names of those that it finds.
    """

    path: Path
    outputs: Callable[[NDArray[np.float32]], Array]
    labels: tuple[str, ...]
    input_spec: InputSpec | None
    finds_keypoints: bool
    recipe: str | None
    full_recipe: "Callable[[], Recipe]"
    holdout: Holdout
    trained_with: Identity | None
    keypoints: tuple[str, ...] = ()

    def directory(self, data: str | os.PathLike[str] | None) -> Path | None:
        """Return the directory of the data: the one that is named, or else the one that the run remembers."""
        if data is not None:
            return Path(data)
        path = (self.trained_with or {}).get("path")
        if path is None:
            return None
        if not Path(path).exists():
            raise InputError(
                self.path,
                expected=f"its data in {path}, where they were in training",
                found="no such directory",
                fix="name their place with --data",
            )
        return Path(path)


def network_at(
    subject: str | os.PathLike[str] | RunDirectory,
    *,
    best: bool = False,
    device: str = "auto",
    precision: Precision = "highest",
) -> Network:
    """Return the network of a run, of an exported file, or of the zoo, by its name.

    Parameters
    ----------
    best
        Of a run, take the checkpoint of its best epoch.
    device
        Of a run, where torch computes: auto, cpu, cuda, cuda:1, ...
    precision
        Of a file, that of its real-valued layers.
    """
    place = subject if isinstance(subject, str | os.PathLike) else subject.path
    path = locate(os.fspath(place))
    if not (path / "recipe.json").exists():
        path = Path(located(path))
    if path.is_dir():
        if precision != "highest":
            raise InputError(
                f"--precision {precision}",
                expected="an exported file, for any but the highest",
                found=f"the run {path}, which torch computes",
                fix="export it first, or leave it out",
            )
        return _of_run(path, best, device)
    for flag, given in (("--best", best), (f"--device {device}", device not in ("auto", "cpu"))):
        if given:
            raise InputError(
                flag,
                expected="the directory of a run",
                found=f"the file {path}, which runs on the CPU as it is",
                fix="leave it out",
            )
    return _of_file(path, precision)


def _of_run(path: Path, best: bool, device: str) -> Network:
    runs = imported("bitfactor.recipes.runs", path, "train")
    recipe, interface, run = runs.as_function(path, best=best, device=device)
    return Network(
        path,
        lambda inputs: first_of(run(inputs)).cpu().numpy(),
        interface.labels,
        interface.input_spec,
        interface.skeleton is not None,
        recipe.name,
        lambda: recipe,
        holdout_in(recipe.settings()),
        remembered(path),
        interface.skeleton.keypoints if interface.skeleton else (),
    )


def _of_file(path: Path, precision: Precision) -> Network:
    session = Session(path, precision=precision)
    model = session.model
    settings = json.loads(model.provenance.get("settings", "{}"))

    def full_recipe() -> "Recipe":
        recipe: Recipe = imported("bitfactor.recipes", path, "train").recipe_of_file(model, path)
        return recipe

    return Network(
        path,
        lambda inputs: np.asarray(first_of(session(inputs))),
        model.labels,
        model.input_spec,
        model.skeleton is not None or "heatmaps" in model.provenance,
        model.provenance.get("recipe"),
        full_recipe,
        holdout_in(settings),
        identity_in(model.provenance, path),
        model.skeleton.keypoints if model.skeleton else (),
    )


def first_of(outputs: Any) -> Any:
    """Return the first output of a network, which `predict` reads too, where it has several or names them."""
    while isinstance(outputs, Mapping | tuple | list):
        outputs = next(iter(outputs.values() if isinstance(outputs, Mapping) else outputs))
    return outputs


def holdout_in(settings: Any) -> Holdout:
    """Return what the settings of a training say of the images to evaluate on."""
    options = settings.get("data") if isinstance(settings, dict) else None
    chosen = options.get("holdout") if isinstance(options, dict) else None
    return "validation" if chosen == "validation" else "test"
