"""A run's directory: its settings, its last checkpoint, its log.

recipe.json         the settings, the run whose weights it starts from, the data's interface and identity, the
                    versions it was started with
checkpoint.ckpt     model, optimizer and position after the last checkpointed step
checkpoint-1.ckpt   the one before, and so on, as many as are kept
best.ckpt           the one after the epoch, of those with binary weights, that did best on the test set
log.jsonl           one line per epoch
movement.jsonl      one line per layer and step that was diagnosed
tensorboard/        the same for TensorBoard
"""

import json
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run, replacing
from bitfactor.common.version import __version__
from bitfactor.data.readers.identity import KEY, Identity, remembered
from bitfactor.nn import merge_
from bitfactor.training.optimization import MovingAverage
from bitfactor.training.tasks import Interface


def versions() -> dict[str, str]:
    """Return name -> version."""
    return {
        "bitfactor": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Run:
    """The directory `path` of a run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint after the best epoch."""
        return self.path / "best.ckpt"

    @property
    def log(self) -> Path:
        """The log, one JSON object per epoch."""
        return self.path / "log.jsonl"

    @property
    def recipe(self) -> Path:
        """The settings."""
        return self.path / "recipe.json"

    def start(
        self,
        settings: dict[str, Any],
        interface: Interface,
        versions: dict[str, str],
        data: Identity | None = None,
        *,
        source: str | None = None,
        beside: "Sequence[Run]" = (),
        other_data: bool = False,
    ) -> None:
        """Record the settings and the data, or check that a run begun before has the same.

        `source` is the run whose weights it starts from, `beside` are those that it will be compared with. A
        directory without a checkpoint holds no run yet: what a refused command left is replaced.

        Raises
        ------
        InputError
            If `path` holds a run with other settings, or of other images and `other_data` does not allow it,
            or a run beside it is of other images.
        """
        if self.path.is_file():
            raise InputError(self.path, expected="a directory", found="a file", fix="choose another --out")
        if (self.path / "study.json").exists():
            raise InputError(
                self.path,
                expected="the directory of a run, or a new one",
                found="that of a study",
                fix="choose another --out",
            )
        for run in beside:
            theirs = remembered(run.path)
            if not (data and theirs) or run.settings()["data"] != json.loads(json.dumps(settings["data"])):
                continue
            if data["fingerprint"] != theirs["fingerprint"]:
                raise InputError(
                    self.path,
                    expected=f"the images of {run.path}, {_described(theirs)}",
                    found=f"others, {_described(data)}",
                    fix="name the same --data, or choose another --out",
                )
        record: dict[str, Any] = {"settings": settings, "interface": interface.to_dict(), "from": source}
        if self.recipe.exists() and self.checkpoint.exists():
            begun: dict[str, Any] = {name: self._recorded(name) for name in ("settings", "interface")}
            begun["from"] = json.loads(self.recipe.read_text()).get("from", source)
            record["from"] = begun["from"] if source is None else source
            difference = _first_difference(begun, record)
            if difference:
                raise InputError(
                    self.path,
                    expected="a new directory, or one with a run of the same settings",
                    found=f"a run with {difference}",
                    fix="choose another --out, or delete the directory",
                )
            before = remembered(self.path)
            if before and data and before["fingerprint"] != data["fingerprint"] and not other_data:
                raise InputError(
                    self.path,
                    expected=f"the images that it began with, {_described(before)}",
                    found=f"others, {_described(data)}",
                    fix="name the same --data, choose another --out, or say --other-data",
                )
            if before == data or not other_data:
                return
        with replacing(self.recipe) as temporary:
            document = {**record, "imports": files_run(), KEY: data, "versions": versions}
            temporary.write_text(json.dumps(document, indent=2) + "\n")

    def settings(self) -> dict[str, Any]:
        """Return the recorded settings.

        Raises
        ------
        InputError
            If `path` holds no run.
        """
        return self._recorded("settings")

    def imports(self) -> list[str]:
        """Return the user's Python files that were run before the training (`--import`)."""
        files: list[str] = json.loads(self.recipe.read_text()).get("imports", [])
        return files

    def interface(self) -> Interface:
        """Return what goes into the network and what its outputs mean.

        Raises
        ------
        InputError
            If `path` holds no run.
        """
        return Interface.from_dict(self._recorded("interface"))

    def _recorded(self, name: str) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads(self.recipe.read_text())[name]
        except (OSError, ValueError, KeyError, TypeError) as error:
            found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
            raise InputError(
                self.recipe,
                expected="the directory of a training run",
                found=found,
                fix="give what `bitfactor train RECIPE --out` wrote",
            ) from error
        return values

    @property
    def diagnosis(self) -> Path:
        """What steps did to the layers, one JSON object per layer and step."""
        return self.path / "movement.jsonl"

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        return self._lines(self.log)

    def movement(self) -> list[dict[str, Any]]:
        """Return the lines of the diagnosis; none where nothing was diagnosed."""
        return self._lines(self.diagnosis)

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text().splitlines()]
        except ValueError as error:
            raise InputError(
                path,
                expected="one JSON object per line",
                found=str(error),
                fix="start the training again: it rewrites the log from the checkpoint",
            ) from error

    def write_history(self, rows: list[dict[str, Any]], movement: list[dict[str, Any]]) -> None:
        """Replace the log, and the diagnosis if there is one."""
        for path, lines in ((self.log, rows), (self.diagnosis, movement)):
            if lines or path == self.log:
                with replacing(path) as temporary:
                    temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def load(self, *, best: bool = False) -> dict[str, Any]:
        """Read the last checkpoint, or the best one.

        Raises
        ------
        InputError
            If there is none or it cannot be read.
        """
        path = self.best if best else self.checkpoint
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError as error:
            raise InputError(
                path, expected="a checkpoint", found="none yet", fix="start the training first"
            ) from error
        except Exception as error:
            raise InputError(
                path,
                expected="a checkpoint",
                found=f"a file that cannot be read ({str(error).splitlines()[0]})",
                fix="delete it to train from the start",
            ) from error
        if not isinstance(state, dict) or not state.keys() >= _STATE:
            raise InputError(
                path,
                expected=f"a checkpoint with {', '.join(sorted(_STATE))}",
                found="a file of torch that holds something else",
                fix="delete it to train from the start",
            )
        return state

    def put(
        self,
        state: dict[str, Any],
        model: nn.Module,
        optimizer: Optimizer,
        average: MovingAverage | None = None,
    ) -> None:
        """Put a checkpoint into a network in training, whose latents are merged if they were.

        Raises
        ------
        InputError
            If it is of another network.
        """
        with self._fitting():
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            if average is not None:
                average.network.load_state_dict(state["average"])

    def load_outcome_into(self, model: nn.Module, *, best: bool = False) -> None:
        """Read what is to be evaluated into `model`: the moving average, if there is one, or else the
        network.

        Raises
        ------
        InputError
            If there is none, it cannot be read, or it is of another network.
        """
        state = self.load(best=best)
        if state.get("merged"):
            merge_(model)
        with self._fitting():
            model.load_state_dict(state["average"] or state["model"])

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError, AttributeError) as error:
            raise InputError(
                self.checkpoint,
                expected="the parameters of the network that recipe.json describes",
                found=" ".join(str(error).split())[:200],
                fix="restore the file that belongs to it, or train again",
            ) from error

    def save(self, write: Callable[[Path], None], keep: int = 1) -> None:
        """Replace the checkpoint by what `write` writes to the path that it is given; keep `keep` in all."""
        self._shift(keep)
        with replacing(self.checkpoint) as temporary:
            try:
                write(temporary)
            except RuntimeError as error:  # torch's way to say that the disk is full
                raise OSError(" ".join(str(error).split())[:200]) from error

    def keep_best(self) -> None:
        """Make the last checkpoint the best."""
        with replacing(self.best) as temporary:
            shutil.copyfile(self.checkpoint, temporary)

    def older(self, number: int) -> Path:
        """Return where the checkpoint `number` before the last is kept."""
        return self.path / f"checkpoint-{number}.ckpt"

    def _shift(self, keep: int) -> None:
        if keep == 1 or not self.checkpoint.exists():
            return
        for number in range(keep - 1, 1, -1):
            if self.older(number - 1).exists():
                self.older(number - 1).replace(self.older(number))
        with replacing(self.older(1)) as temporary:
            shutil.copyfile(self.checkpoint, temporary)


_STATE = {"model", "average", "optimizer", "step", "loss", "rows"}


def _described(data: Identity) -> str:
    place = f" in {data['path']}" if data.get("path") else ""
    return f"{data['train']} to train on and {data['test']} to evaluate on{place}"


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    old, new = _flat(old), _flat(new)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not names:
        return ""
    short = names[0].rpartition(".")[2]
    return f"{short} = {old.get(names[0])!r} instead of {new.get(names[0])!r}"


def _flat(settings: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return {"group.name": value}, through JSON, so that tuples and lists compare equal."""
    flat: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(settings)).items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat
