"""`bitfactor.train` and `bitfactor.load`: a run from Python."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import nn

from bitfactor.api.evaluate import Evaluation, evaluate
from bitfactor.common.arrays import expect_above_0
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.result import Result
from bitfactor.data.readers.identity import remembered
from bitfactor.exporter import ExportReport
from bitfactor.recipes import expect_registered, recipe_named, recipe_of
from bitfactor.recipes.fitting import fitted
from bitfactor.recipes.own import OwnModel, option_values, with_options, with_own_model
from bitfactor.recipes.runs import called_source, export_run, load, network_options, source_of, teacher_of
from bitfactor.training import Recipe, Run, Source, Trial
from bitfactor.training import dry_run as try_out
from bitfactor.training import train as train_in
from bitfactor.training.optimization import moves_latents_alone
from bitfactor.training.trackers import Tracker

if TYPE_CHECKING:
    from bitfactor.api.report import Report

_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class TrainedRun(Result):
    """The directory of a run, and what to do with it. `print` shows how far it came and how good it is."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The log: one dict for each epoch."""
        return Run(self.path).history()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The log within epochs: one dict for each `log_every` steps."""
        return Run(self.path).step_history()

    @property
    def recipe(self) -> Recipe:
        """What was trained, with all settings."""
        return recipe_of(Run(self.path))

    def model(self, *, best: bool = False) -> nn.Module:
        """Return the network, in evaluation mode."""
        return load(self.path, best=best)

    def evaluate(self, **options: Any) -> Evaluation:
        """See `bitfactor.evaluate`."""
        return evaluate(self.path, **options)

    def export(self, path: _Path, **options: Any) -> ExportReport:
        """Write the network as one file of 1-bit weights, see `bitfactor.export`.

        Options are `best`, `real`, `overwrite` and `calibration`: how many training images give the ranges
        for the precisions `low` and `integer`.
        """
        return export_run(Run(self.path), Path(path), **options)

    def report(self, output: _Path | None = None, **options: Any) -> "Report":
        """Write the page of the run, see `bitfactor.report`."""
        from bitfactor.api.report import report  # matplotlib is only needed here

        return report(self.path, output, **options)

    def to_dict(self) -> dict[str, Any]:
        return {"out": str(self.path), **self.history[-1]}

    def __str__(self) -> str:
        recipe, last, data = self.recipe, self.history[-1], remembered(self.path)
        headline = recipe.task.headline
        line = f"{self.path}: epoch {last['epoch']} of {recipe.optimization.epochs}, step {last['step']}"
        line += f", loss {last['loss']:.4f}"
        if headline in last:
            images = f" of {data['evaluated']}" if data and data.get("evaluated") else ""
            line += f", {headline} {last[headline]:.2%}{images}"
        return line


@checked
def train(
    recipe: str | Recipe,
    *,
    out: _Path,
    data: _Path | None = None,
    model: str | None = None,
    start_from: _Path | None = None,
    minutes: float | None = None,
    device: str = "auto",
    other_data: bool = False,
    dry_run: bool = False,
    track: Sequence[Tracker] = (),
    progress: bool = True,
    on_log: Callable[[Mapping[str, Any]], object] | None = None,
    callbacks: Sequence[object] = (),
    **options: Any,
) -> TrainedRun | Trial:
    """Train a recipe; the same call resumes where an interrupted one stopped.

    Parameters
    ----------
    recipe
        A name of `bitfactor.recipes.RECIPES`, or a recipe.
    out
        Directory of the run: settings, checkpoints, log.
    data
        Directory of the data, for recipes that need one; a run that is resumed remembers it.
    model
        A network of your own in place of the recipe's, FILE.py:NAME.
    start_from
        A run, an exported file or zoo:NAME whose weights are taken over where names and shapes agree, of any
        latent or in full precision. A head for other classes starts anew. Options of the network that are
        not named are those of that one.
    minutes
        How long it may take on this machine, measured before it begins; a folder of images has 30 where
        neither epochs nor steps are named. It chooses the epochs and, for a folder, the network and the image
        side. Those of the two that are named stay; epochs or steps cannot stand beside it.
    device
        auto, cpu, cuda or cuda:N.
    other_data
        Resume although the images are others than those that the run began with.
    dry_run
        Do a few batches, say what the run would be like, and write nothing.
    track
        Trackers of experiments, which get each row of the log.
    progress
        Show progress on stderr.
    on_log
        Called with each row of the log: of an epoch, and of each `log_every` steps.
    callbacks
        Objects with any of the methods on_train_start(network), on_train_batch_end(step, loss), on_log(row),
        on_train_epoch_end(row) and on_train_end(row).
    options
        Of the recipe: the fields of `Binarization`, of `Optimization`, and those of its network and data.

    Raises
    ------
    InputError
        If an option is not one of the recipe's, or the data cannot be read. If `out` holds a run with other
        settings or of other images, or the loss is no number.

    Example
    -------
    >>> run = bitfactor.train("digits", out="runs/a", latent="tucker", epochs=3)
    >>> print(run.evaluate())
    >>> run.export("digits.safetensors")
    """
    chosen = recipe_named(recipe) if isinstance(recipe, str) else expect_registered(recipe)
    if options.get("steps") is not None and "epochs" in options:
        found = f"steps {options['steps']} and epochs {options['epochs']}"
        raise InputError("steps", expected="steps or epochs", found=found, fix="leave one of them out")
    if model is not None:
        chosen = with_own_model(chosen, vars(OwnModel.at(model)))
    console = Console(stderr=True, highlight=False, quiet=not progress)
    begun = Run(Path(out)).checkpoint.exists()
    if start_from is not None:
        chosen = _like(out if begun else start_from, chosen, options, console)
    changed = with_options(chosen, options)
    expect_effect(changed, chosen)
    if time := _minutes(chosen, minutes, options):
        changed = fitted(
            changed,
            time,
            options if start_from is None else {*options, *vars(chosen.model)},
            out=Path(out),
            data=None if data is None else Path(data),
            device=device,
            console=console,
        )
    given: dict[str, Any] = {
        "data": None if data is None else Path(data),
        "teacher": teacher_of(changed),
        "start_from": None if start_from is None else _source(start_from, begun=begun),
        "device": device,
    }
    if dry_run:
        return try_out(changed, **given, try_others=True)
    calls = [*callbacks, *([SimpleNamespace(on_log=on_log)] if on_log else [])]
    train_in(changed, Path(out), console, **given, other_data=other_data, callbacks=calls, track=track)
    return TrainedRun(Path(out))


def _source(start_from: _Path, *, begun: bool) -> Source:
    """Return what to start from; a run that was begun needs no more than its name."""
    return Source(None, (), called_source(start_from)) if begun else source_of(start_from)


def _like(start_from: _Path, recipe: Recipe, named: Mapping[str, Any], console: Console) -> Recipe:
    """Return the recipe with the network of what it starts from, but for what is named; and say so."""
    values, found = option_values(recipe), network_options(start_from, recipe)
    theirs = {name: one for name, one in found.items() if name not in named and one != values[name]}
    if theirs:
        told = {name: v if isinstance(v, tuple) else (v,) for name, v in theirs.items()}
        words = (f"{name} {' '.join(map(str, v))}" for name, v in told.items())
        console.print(f"{recipe.name}: {', '.join(words)}, as {start_from} has them", soft_wrap=True)
    return with_options(recipe, {**theirs, **{name: named[name] for name in found if name in named}})


def _minutes(recipe: Recipe, minutes: float | None, options: Collection[str]) -> float:
    """Return how long a training may take; 0 where epochs or steps say it."""
    named = sorted({"epochs", "steps"} & {*options})
    if minutes is None:
        return 0 if named else recipe.minutes
    if named:
        raise InputError(
            "minutes", expected=f"minutes or {named[0]}", found="both", fix="leave one of them out"
        )
    expect_above_0("minutes", minutes)
    return minutes


_FOUND = {
    "binary activations": "real ones",
    "binary weights": "real ones",
    "a weight decay": "none",
    "crops at random": "none",
    "the preset 'standard'": "the preset 'paper'",
}  # where that is needed


def expect_effect(recipe: Recipe, unchanged: Recipe) -> None:
    """Raise InputError if an option differs from the recipe's own and would change nothing.

    A study gives its options to each of its rows, so this is asked of a single training alone.
    """
    latent, scale = (f"the {name} {recipe.binarization.words(name)!r}" for name in ("latent", "scale"))
    idle = recipe.idle()
    if recipe.real and moves_latents_alone(recipe.optimization.optimizer):
        idle["optimizer"] = "a binary network"
    for name, needed in idle.items():
        value, usual = (option_values(one).get(name) for one in (recipe, unchanged))
        chosen = scale if "scale" in needed else latent
        if value != usual:
            raise InputError(
                name,
                expected=f"{needed} for {value!r}",
                found=_FOUND.get(needed, "a real one" if recipe.real else chosen),
                fix=f"leave {name} out",
            )
