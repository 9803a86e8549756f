"""Run the cells of a study as processes, some at a time."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bitfactor.study.directory import CellDirectory
from bitfactor.study.grid import Cell

State = Literal["waiting", "running", "finished", "failed"]

_PAUSE = 0.25  # seconds between two looks at the processes
_PATIENCE = 60.0  # seconds that a process has to write its checkpoint, when it is to stop


@dataclass
class Job:
    """A cell and what has become of it: `call` starts its process, `command` is what a user would type."""

    cell: Cell
    directory: CellDirectory
    command: Sequence[str]
    call: Sequence[str]
    epochs: int
    state: State = "waiting"
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self, environment: dict[str, str]) -> None:
        """Start the process. It ends when its standard input does: with this process, or when told to."""
        self.directory.describe(self.cell, self.command)
        with self.directory.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.call,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C comes to this process alone, which passes it on
            )
        self.state = "running"

    def look(self) -> bool:
        """Return whether the process has ended, and note how."""
        assert self.process is not None
        if self.process.poll() is None:
            return False
        self._close()
        self.state = "finished" if self.directory.finished else "failed"
        return True

    def ask_to_stop(self) -> None:
        """Let the process write a checkpoint and end."""
        self._close()
        self.state = "waiting"

    def _close(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    environment: dict[str, str],
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
                job.start(environment)
                running.append(job)
                notice(job)
            time.sleep(_PAUSE)
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
            process.wait(max(0.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # the last checkpoint is whole in any case
        for process in processes:
            process.kill()
            process.wait()
