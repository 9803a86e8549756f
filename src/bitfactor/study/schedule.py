"""Run the cells of a study as processes, some at a time."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from bitfactor.study.directory import CellDirectory
from bitfactor.study.grid import Cell

State = Literal["waiting", "running", "finished", "failed"]

_PAUSE = 1.0  # seconds between two looks, while no process ends
_PATIENCE = 60.0  # seconds that a process has to write its checkpoint, when it is to stop


@dataclass
class Job:
    """A cell and what has become of it: `call` trains it, `command` is what a user would type.

    `call` returns the status of its process. The processes are forked from one that has imported the module
    of `call`: a training starts at once.
    """

    cell: Cell
    directory: CellDirectory
    command: Sequence[str]
    call: "partial[int]"
    epochs: int
    state: State = "waiting"
    process: BaseProcess | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process. It is told to stop when this one ends."""
        self.directory.describe(self.cell, self.command)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, self.call.func.__module__])
        self.process = context.Process(target=_run, args=(self.call, self.directory.output))
        self.process.start()
        self.state = "running"

    def look(self) -> bool:
        """Return whether the process has ended, and note how."""
        assert self.process is not None
        if self.process.is_alive():
            return False
        self.state = "finished" if self.directory.finished else "failed"
        return True

    def ask_to_stop(self) -> None:
        """Let the process write a checkpoint and end."""
        assert self.process is not None
        self.process.terminate()
        self.state = "waiting"


def _run(call: Callable[[], int], output: Path) -> None:
    os.setsid()  # Ctrl-C comes to the parent alone, which passes it on
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(call())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    notice: Callable[[Job], None],
    look: Callable[[], bool],
) -> None:
    """Run the jobs that are waiting, `at_once` at a time, in their order.

    `notice` is told of each that has started or ended; `look` is called all the time, and stops the rest
    when it returns False. However this ends, no process is left running.
    """
    waiting = [job for job in jobs if job.state == "waiting"]
    running: list[Job] = []
    try:
        while (waiting or running) and look():
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                job.start()
                running.append(job)
                notice(job)
            wait([job.process.sentinel for job in running if job.process], _PAUSE)
            for job in [job for job in running if job.look()]:
                running.remove(job)
                notice(job)
    finally:
        _stop(running)


def _stop(running: Sequence[Job]) -> None:
    for job in running:
        job.ask_to_stop()
    processes = [job.process for job in running if job.process]
    deadline = time.monotonic() + _PATIENCE
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:  # the last checkpoint is whole in any case
        pass
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
