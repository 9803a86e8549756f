"""One training of a study, in a process of its own."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from bitfactor.cli import main as command
from bitfactor.cli import train as train  # imported before the processes are forked
from bitfactor.study import CellDirectory, finish


def train_cell(path: Path, arguments: Sequence[str], threads: int) -> int:
    """Train in `path`, or go on, and write down what came out; returns the status of `bitfactor train`."""
    torch.set_num_threads(threads)
    cell = CellDirectory(path)
    with _alone_in(path):
        if cell.finished:
            return 0
        resumed = cell.run.checkpoint.exists()
        status = command(["train", *arguments])
        if status == 0:
            finish(cell, resumed=resumed)
        return status


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """Wait for a process that still trains here, the last one of a study that was killed, say."""
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
