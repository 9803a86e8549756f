"""A run's directory: its settings, its last checkpoint, its log.

recipe.json         the settings and the versions it was started with
checkpoint.ckpt     model, optimizer and position after the last checkpointed step
log.jsonl           one line per epoch
tensorboard/        the same for TensorBoard
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bitfactor.atomic import replacing
from bitfactor.errors import InputError


@dataclass(frozen=True)
class Run:
    """The directory `path` of a run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint.ckpt"

    @property
    def log(self) -> Path:
        """The log, one JSON object per epoch."""
        return self.path / "log.jsonl"

    @property
    def recipe(self) -> Path:
        """The settings."""
        return self.path / "recipe.json"

    def start(self, settings: dict[str, Any], versions: dict[str, str]) -> None:
        """Record the settings, or check that a run begun before has the same.

        Raises
        ------
        InputError
            If `path` holds a run with other settings.
        """
        if self.recipe.exists():
            difference = _first_difference(self.settings(), settings)
            if difference:
                raise InputError(
                    self.path,
                    expected="a new directory, or one with a run of the same settings",
                    found=f"a run with {difference}",
                    fix="choose another --out, or delete the directory",
                )
            return
        with replacing(self.recipe) as temporary:
            temporary.write_text(json.dumps({"settings": settings, "versions": versions}, indent=2) + "\n")

    def settings(self) -> dict[str, Any]:
        """Return the recorded settings.

        Raises
        ------
        InputError
            If `path` holds no run.
        """
        try:
            settings: dict[str, Any] = json.loads(self.recipe.read_text())["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
            raise InputError(
                self.recipe,
                expected="the directory of a training run",
                found=found,
                fix="give what `bitfactor train RECIPE --out` wrote",
            ) from error
        return settings

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        if not self.log.exists():
            return []
        try:
            return [json.loads(line) for line in self.log.read_text().splitlines()]
        except ValueError as error:
            raise InputError(
                self.log,
                expected="one JSON object per line",
                found=str(error),
                fix="start the training again: it rewrites the log from the checkpoint",
            ) from error

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        """Replace the log."""
        with replacing(self.log) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def load(self) -> dict[str, Any]:
        """Read the last checkpoint.

        Raises
        ------
        InputError
            If there is none or it cannot be read.
        """
        try:
            state: dict[str, Any] = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except FileNotFoundError as error:
            raise InputError(
                self.checkpoint, expected="a checkpoint", found="none yet", fix="start the training first"
            ) from error
        except Exception as error:
            raise InputError(
                self.checkpoint,
                expected="a checkpoint",
                found=f"a file that cannot be read ({str(error).splitlines()[0]})",
                fix="delete it to train from the start",
            ) from error
        if not isinstance(state, dict) or not state.keys() >= _STATE:
            raise InputError(
                self.checkpoint,
                expected=f"a checkpoint with {', '.join(sorted(_STATE))}",
                found="a file of torch that holds something else",
                fix="delete it to train from the start",
            )
        return state

    def load_into(self, model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
        """Read the last checkpoint into `model`, and `optimizer` if given, and return it.

        Raises
        ------
        InputError
            If there is none, it cannot be read, or it is of another network.
        """
        state = self.load()
        try:
            model.load_state_dict(state["model"])
            if optimizer is not None:
                optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise InputError(
                self.checkpoint,
                expected="the parameters of the network that recipe.json describes",
                found=" ".join(str(error).split())[:200],
                fix="restore the file that belongs to it, or train again",
            ) from error
        return state

    def save(self, write: Callable[[Path], None]) -> None:
        """Replace the checkpoint by what `write` writes to the path that it is given."""
        with replacing(self.checkpoint) as temporary:
            try:
                write(temporary)
            except RuntimeError as error:  # torch's way to say that the disk is full
                raise OSError(" ".join(str(error).split())[:200]) from error


_STATE = {"model", "optimizer", "rng", "step", "loss", "rows"}


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    old, new = _flat(old), _flat(new)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return f"{names[0]} = {old.get(names[0])!r} instead of {new.get(names[0])!r}" if names else ""


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested settings; through JSON, so that tuples and lists compare equal."""
    flat: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(settings)).items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat
