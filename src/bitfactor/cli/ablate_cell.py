"""One training of a study, as a process: `python -m bitfactor.cli.ablate_cell DIR ARGUMENT-OF-TRAIN...`.

It ends, with a checkpoint, when its standard input does; so none is left when `bitfactor ablate` is killed.
"""

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bitfactor.cli import main as command
from bitfactor.study import CellDirectory, finish


def main(path: Path, arguments: Sequence[str]) -> int:
    """Train in `path`, or go on, and write down what came out; returns the status of `bitfactor train`."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    cell = CellDirectory(path)
    with _alone_in(path):
        if cell.finished:
            return 0
        resumed = cell.run.checkpoint.exists()
        status = command(["train", *arguments])
        if status == 0:
            finish(cell, resumed=resumed)
        return status


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """Wait for a process that still trains here, the last one of a study that was killed, say."""
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
