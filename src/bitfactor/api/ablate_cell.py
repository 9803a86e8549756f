"""One training of a study, in a process of its own."""

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bitfactor.api.train import run_recipe
from bitfactor.errors import InputError
from bitfactor.own_file import run_file
from bitfactor.recipes import recipe_of_settings
from bitfactor.study import CellDirectory, finish
from bitfactor.training import DivergedError, TerminatedError
from bitfactor.training.processes import expect_devices, run_joined

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


def train_cell(
    path: Path,
    settings: Mapping[str, Any],
    imports: Sequence[str],
    data: Path | None,
    threads: int,
    device: str,
) -> int:
    """Run the files of `imports`, train in `path` on `device`, or resume, and write down what came out.

    "cuda:0+cuda:1" are two processes of one training. Returns the status of this process.
    """
    _prepare(imports, threads)
    cell, devices = CellDirectory(path), expect_devices(device)
    with _alone_in(path):
        if cell.finished:
            return 0
        resumed = cell.run.checkpoint.exists()
        status: int | None
        if len(devices) == 1:
            status = _train(path, settings, data, device)
        else:
            kind = devices[0].partition(":")[0]
            status = run_joined(devices, _part, imports, threads, path, settings, data, kind)
        if status == 0:
            finish(cell, resumed=resumed)
        return _TERMINATED if status is None else status


def _prepare(imports: Sequence[str], threads: int) -> None:
    torch.set_num_threads(threads)
    for file in imports:
        run_file(file)


def _part(imports: Sequence[str], threads: int, *training: Any) -> int:
    """Train in a process of its own, which knows nothing of the files of `imports` yet."""
    _prepare(imports, threads)
    return _train(*training)


def _train(path: Path, settings: Mapping[str, Any], data: Path | None, device: str) -> int:
    try:
        console = Console(stderr=True, highlight=False)
        recipe = recipe_of_settings(dict(settings), path)
        others = CellDirectory(path).others()
        run_recipe(recipe, path, data=data, device=device, beside=others, console=console)
    except InputError as error:
        if isinstance(error, DivergedError):
            CellDirectory(path).give_up(diverged=True)
        print(f"bitfactor: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except TerminatedError as stop:
        print(stop, file=sys.stderr)
        return _TERMINATED
    return 0


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """Wait for a process that still trains here, the last one of a study that was killed, say."""
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
