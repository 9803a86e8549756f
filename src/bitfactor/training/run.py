"""A run's directory: its settings, its last checkpoint, its log.

recipe.json         the settings, the run whose weights it starts from, the data's interface and identity, the
                    versions it was started with
checkpoint.ckpt     model, optimizer and position after the last checkpointed step; torch's zip has a checksum
                    of each of its parts, which is checked where it is read
checkpoint-1.ckpt   the one before, for the case that the last is damaged, and so on, as many as are kept
best.ckpt           the one after the epoch, of those with binary weights, that did best on the test set
log.jsonl           one line per epoch
layers.json         the `LayerRecord`s of the network at the end of the training, by name
steps.jsonl         one line for each `log_every` steps, if that is set
movement.jsonl      one line per layer and step that was diagnosed
tensorboard/        the same for TensorBoard
lock                locked by the process that trains it
"""

import errno
import fcntl
import json
import os
import platform
import shutil
import subprocess
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from bitfactor.common import __version__
from bitfactor.common.checks import expect_that, record
from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run, made_directory, not_writable, replacing, write_file, write_json
from bitfactor.common.machine import cpu_name
from bitfactor.common.result import plain
from bitfactor.data.readers.identity import KEY, Identity, remembered
from bitfactor.nn import merge_
from bitfactor.training.metrics.latents import LayerRecord, describe_layers
from bitfactor.training.optimization import MovingAverage
from bitfactor.training.processes import is_of_a_reader
from bitfactor.training.tasks import Interface


def versions() -> dict[str, str]:
    """Return name -> version."""
    return {
        "bitfactor": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def revision() -> str | None:
    """Return git's name of the source that runs, ending in `-dirty` if changed; outside git its hash."""
    source = Path(__file__)
    if not _git(source.parent, "ls-files", source.name):  # installed, maybe into another project's directory
        files = sorted(source.parents[1].rglob("*.py"))
        return f"sha256 {sha256(b''.join(file.read_bytes() for file in files)).hexdigest()[:12]}"
    return _git(source.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def machine() -> str:
    """Return the name of the CPU, and of the GPU if there is one."""
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([cpu_name(), *gpu])


class FileOf:
    """A file of a directory by its name: `path / name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Path:
        return Path(owner.path / self._name)


@dataclass(frozen=True)
class Run:
    """The directory `path` of a run, and its files."""

    path: Path

    recipe = FileOf("recipe.json")
    checkpoint = FileOf("checkpoint.ckpt")
    best = FileOf("best.ckpt")
    log = FileOf("log.jsonl")
    steps = FileOf("steps.jsonl")
    diagnosis = FileOf("movement.jsonl")
    layers = FileOf("layers.json")
    lock = FileOf("lock")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process train here; the lock dies with the process that has it."""
        made_directory(self.path)
        try:
            file = self.lock.open("a")
        except OSError as error:
            raise not_writable(self.path, error) from error
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone, not its children
            except (BlockingIOError, PermissionError) as error:
                raise InputError(
                    self.path,
                    expected="a run that no other process trains",
                    found="one that another process trains now",
                    fix="wait for it, or choose another --out",
                ) from error
            yield

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
        newer: dict[str, Any] | None = None,
        teacher: str = "",
    ) -> None:
        """Record the settings and the data, or check that a run begun before has the same.

        What a run of an earlier version did not record was as `newer` says, see `Recipe.defaults`.
        `source` is the run whose weights it starts from, `beside` are those that it will be compared with.
        `teacher` is the digest of its teacher's weights. A directory without a checkpoint holds no run yet:
        what a refused command left is replaced.
        """
        fix, is_study = "choose another --out", (self.path / "study.json").exists()
        expect_that(not self.path.is_file(), self.path, expected="a directory", found="a file", fix=fix)
        expected = "the directory of a run, or a new one"
        expect_that(not is_study, self.path, expected=expected, found="that of a study", fix=fix)
        ended, found = (self.path / "outcome.json").exists(), "a finished training of a study"
        expect_that(not ended, self.path, expected=expected, found=found, fix=fix)
        others = "" if self._is_ours() else ", ".join(file.name for file in self._files() if file.exists())
        expect_that(not others, self.path, expected=expected, found=f"one with another's {others}", fix=fix)
        for run in beside:
            theirs = remembered(run.path)
            if not (data and theirs) or run.settings()["data"] != settings["data"]:
                continue
            expect_that(
                data["fingerprint"] == theirs["fingerprint"],
                self.path,
                expected=f"the images of {run.path}, {_described(theirs)}",
                found=f"others, {_described(data)}",
                fix="name the same --data, or choose another --out",
            )
        document: dict[str, Any] = {"settings": settings, "interface": plain(interface), "from": source}
        if self.recipe.exists() and self.checkpoint.exists():
            begun: dict[str, Any] = {name: self._recorded(name) for name in ("settings", "interface")}
            begun["from"] = self.record().get("from", source)
            document["from"] = begun["from"] if source is None else source
            taught = self.record().get("teacher") or teacher
            known = teacher and teacher == self.record().get("teacher")
            same = {"settings.optimization.teacher"} if known else set()
            difference = _first_difference(begun, document, newer or {}, same)
            expected = "a new directory, or one with a run of the same settings"
            found, fix = f"a run with {difference}", "name the same, or choose another --out"
            expect_that(not difference, self.path, expected=expected, found=found, fix=fix)
            self._note_changed_imports()
            if taught != teacher:
                warnings.warn("the teacher has other weights than when the run began", stacklevel=2)
            self._note_other_versions(versions)
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
        made_by = {"versions": versions, "revision": revision(), "machine": machine()}
        about = {"teacher": teacher, "imports": files_run(), KEY: data}
        write_json(self.recipe, {**document, **about, **made_by})

    def _files(self) -> tuple[Path, ...]:
        return self.best, self.log, self.steps, self.diagnosis, self.layers, self.checkpoint, self.recipe

    def _is_ours(self) -> bool:
        """Whether the recipe in the directory, if there is one, is that of a run."""
        try:
            return "settings" in self.record()
        except (OSError, ValueError, TypeError):
            return False

    def _forget(self) -> None:
        """Delete what is left of a run whose checkpoint was deleted, as another takes its place."""
        older = takewhile(Path.exists, map(self.older, count(1)))
        for file in (*self._files()[:5], *older):
            file.unlink(missing_ok=True)

    def settings(self) -> dict[str, Any]:
        """Return the recorded settings."""
        return self._recorded("settings")

    def imports(self) -> dict[str, str]:
        """Return the user's Python files that were run before the training (`--import`), with their SHA-256.

        Runs of earlier versions have no hashes.
        """
        files = self.record().get("imports", {})
        return files if isinstance(files, dict) else dict.fromkeys(files, "")

    def _note_changed_imports(self) -> None:
        now = files_run()
        for file, content in self.imports().items():
            if content and now.get(file, content) != content:
                warnings.warn(f"{file} has changed since the run began", stacklevel=2)

    def _note_other_versions(self, now: dict[str, str]) -> None:
        before = self.record().get("versions") or {}
        apart = [name for name in now if before.get(name, now[name]) != now[name]]
        others = [f"{name} {before[name]} then, {now[name]} now" for name in apart]
        if others:
            warnings.warn(f"other versions than when the run began: {', '.join(others)}", stacklevel=2)

    def record(self) -> dict[str, Any]:
        """Return all that was recorded when it began; nothing of a directory that is no run yet."""
        found: dict[str, Any] = json.loads(self.recipe.read_text()) if self.recipe.is_file() else {}
        return found

    def interface(self) -> Interface:
        """Return what goes into the network and what its outputs mean."""
        return record(Interface, self._recorded("interface"))

    def _recorded(self, name: str) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads(self.recipe.read_text())[name]
        except (OSError, ValueError, KeyError, TypeError) as error:
            found = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            found = "no such file" if isinstance(error, FileNotFoundError) else found
            raise InputError(
                self.recipe,
                expected="the directory of a training run",
                found=found,
                fix="give what `bitfactor train RECIPE --out` wrote",
            ) from error
        return values

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

    def layer_records(self) -> dict[str, LayerRecord]:
        """Return the layers of the network at the end of the training, none before."""
        if not self.layers.exists():
            return {}
        try:
            found = json.loads(self.layers.read_text())
            return {name: record(LayerRecord, one) for name, one in found.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            fix = "restore it, or delete it: the same command writes it again"
            raise InputError(
                self.layers, expected="the layers of a network", found=str(error), fix=fix
            ) from error

    def write_layers(self, model: nn.Module) -> None:
        """Write down the layers of a network."""
        write_json(self.layers, plain(describe_layers(model)), indent=None)

    def step_history(self) -> list[dict[str, Any]]:
        """Return the lines of the log within epochs; none where there is no `log_every`."""
        return self._lines(self.steps)

    def write_history(
        self, rows: list[dict[str, Any]], movement: list[dict[str, Any]], steps: list[dict[str, Any]]
    ) -> None:
        """Replace the log, and the diagnosis and the log within epochs if there are such."""
        for path, lines in ((self.log, rows), (self.diagnosis, movement), (self.steps, steps)):
            if lines or path == self.log:
                write_file(path, "".join(json.dumps(line) + "\n" for line in lines))

    def load(self, *, best: bool = False, mend: bool = False) -> dict[str, Any]:
        """Read the last checkpoint, or the best one; for a damaged last one, with a warning, the one before.

        `mend` puts that in the place of the damaged one, so that the next save keeps it.

        Raises
        ------
        InputError
            If there is none or it cannot be read.
        """
        path = self.best if best else self.checkpoint
        try:
            return _state_in(path)
        except InputError as error:
            older = takewhile(Path.exists, map(self.older, count(1)))
            for before in () if best or not path.exists() else older:
                with suppress(InputError):
                    state = _state_in(before)
                    warnings.warn(f"{error}; taken is {before.name}, step {state['step']}", stacklevel=2)
                    if mend:
                        _copy(before, path)
                    return state
            raise InputError(path, **self._instead(path, error)) from error

    def _instead(self, path: Path, error: InputError) -> dict[str, str]:
        """Return what to say of a checkpoint that cannot be read: what stands there in its place."""
        missing = not path.exists()
        fix = "start the training first" if missing else "delete it to train from the start"
        if missing and (self.path / "outcome.json").exists():
            fix = "take net.safetensors, which a study keeps, or train it with --keep-checkpoints"
        others = {"--best": self.best, "the last one, without --best,": self.checkpoint}
        for name, other in others.items():
            if other != path and other.exists():
                with suppress(InputError):
                    step = _state_in(other)["step"]
                    fix = f"take {name} ({other.name}, step {step}), or {fix}"
        return {"expected": "a checkpoint", "found": error.found, "fix": fix}

    def put(
        self,
        state: dict[str, Any],
        model: nn.Module,
        optimizer: Optimizer,
        average: MovingAverage | None = None,
    ) -> None:
        """Put a checkpoint into a network in training, whose latents are merged if they were."""
        with self._fitting():
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            if average is not None:
                average.network.load_state_dict(state["average"])

    def load_outcome_into(self, model: nn.Module, *, best: bool = False) -> None:
        """Read what is to be evaluated into `model`: the moving average, if there is one, or else the
        network.
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
        """Replace the checkpoint by what `write` writes to the path that it is given.

        The one before is kept, and `keep` in all if that is more. Where there is no space, nothing is lost.
        """
        try:
            with replacing(self.checkpoint) as temporary:
                try:
                    write(temporary)
                except RuntimeError as error:  # torch's way to say that the disk is full, in its own words
                    if is_of_a_reader(error):
                        raise
                    full = shutil.disk_usage(self.path).free < _FULL
                    reason = os.strerror(errno.ENOSPC) if full else " ".join(str(error).split())[:200]
                    raise OSError(reason) from error
                self._shift(max(keep, 2))
        except InputError as error:
            kept = "; the last checkpoint is whole: the same command resumes from it"
            fix = error.fix + kept * self.checkpoint.exists()
            raise InputError(self.checkpoint, expected=error.expected, found=error.found, fix=fix) from error

    def keep_best(self) -> None:
        """Make the last checkpoint the best."""
        with replacing(self.best) as temporary:
            shutil.copyfile(self.checkpoint, temporary)

    def older(self, number: int) -> Path:
        """Return where the checkpoint `number` before the last is kept."""
        return self.path / f"checkpoint-{number}.ckpt"

    def _shift(self, keep: int) -> None:
        if not self.checkpoint.exists():
            self._forget()
            return
        for number in range(keep - 1, 1, -1):
            if self.older(number - 1).exists():
                self.older(number - 1).replace(self.older(number))
        _copy(self.checkpoint, self.older(1))


def _copy(source: Path, target: Path) -> None:
    """Let `target` be `source` too, which is only ever replaced: on most disks it takes no space."""
    with replacing(target) as temporary:
        temporary.unlink()
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def _state_in(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds; torch itself does not look at the checksums in it."""
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} is not what was written")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise _no_checkpoint(path, "none yet") from error
    except Exception as error:
        empty = path.is_file() and not path.stat().st_size
        reason = "it is empty" if empty else " ".join(str(error).split())[:160] or type(error).__name__
        raise _no_checkpoint(path, f"a file that cannot be read ({reason})") from error
    if not isinstance(state, dict) or not state.keys() >= _STATE:
        raise _no_checkpoint(path, "a file of torch that holds something else")
    return state


def _no_checkpoint(path: Path, found: str) -> InputError:
    return InputError(path, expected="a checkpoint", found=found, fix="take another")


_FULL = 2**20  # bytes: with so few left a disk is full
_STATE = {"model", "average", "optimizer", "step", "loss", "rows"}


def _described(data: Identity) -> str:
    place = f" in {data['path']}" if data.get("path") else ""
    return f"{data['train']} to train on and {data['test']} to evaluate on{place}"


def digest_of(network: nn.Module) -> str:
    """Return the SHA-256 of a network's parameters and buffers; empty if it has none."""
    values, found = network.state_dict(), sha256()
    for name, value in values.items():
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest() if values else ""


def _first_difference(
    old: dict[str, Any], new: dict[str, Any], newer: dict[str, Any], same: Collection[str] = ()
) -> str:
    old, new = flat(newer, "settings.") | flat(old), flat(new)
    apart = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    free = {*same, *_OF_RECORDS}
    names = [name for name in apart if name not in free and not _is_moved(name, old, new)]
    if not names:
        return ""
    short = names[0].rpartition(".")[2]
    return f"{short} = {old.get(names[0])!r} instead of {new.get(names[0])!r}"


_OF_RECORDS = {f"settings.optimization.{name}" for name in ("keep_last", "checkpoint_steps", "log_every")}
"""What is kept of a training, and changes nothing in it."""


def _is_moved(name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether `name` is the place of the same file of a network of one's own, which has moved."""
    files = [settings.get("settings.model.sha256") for settings in (old, new)]
    names = [str(settings.get(name)).rpartition("/")[2] for settings in (old, new)]
    return name == "settings.model.spec" and bool(files[0]) and files[0] == files[1] and names[0] == names[1]


def flat(settings: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return {"group.name": value}, through JSON, so that tuples and lists compare equal."""
    found: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(settings)).items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found
