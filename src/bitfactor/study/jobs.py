"""The cells of a study as processes, which of them are given up, and commands as jobs of a cluster."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import ceil
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mean
from typing import IO, Any, Literal, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.common.result import Result
from bitfactor.study.directory import CellDirectory
from bitfactor.study.grid import Cell, Row

State = Literal["waiting", "running", "elsewhere", "finished", "failed", "given up"]

_PAUSE = 1.0  # seconds between two looks, while no process ends
_PATIENCE = 60.0  # seconds that a process has to write its checkpoint, when it is to stop


@dataclass
class Job:
    """A cell and what has become of it: `call` trains it on a device, `command` is what a user would type.

    `call` takes the name of the device and returns the status of its process. The processes are forked from
    one that has imported the module of `call`: a training starts at once. With `halving`, one that was given
    up stays so.
    """

    cell: Cell
    directory: CellDirectory
    command: Sequence[str]
    call: "partial[int]"
    epochs: int
    steps: int | None = None
    state: State = "waiting"
    halving: bool = False
    process: BaseProcess | None = field(default=None, repr=False)
    device: str = ""
    claim: IO[str] | None = field(default=None, repr=False)

    def epochs_by(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Return its epochs; of a number of steps, the first row of a log tells how many there are."""
        first = rows[0].get("step") if rows else None
        return ceil(self.steps / first) if self.steps and first else self.epochs

    def take(self) -> bool:
        """Claim the cell if it is to be trained, and return whether that is for this process to do."""
        self.claim = None if self.ended else self.directory.claim()
        if self.ended:  # by another call on the same folder, maybe a moment ago
            self.state = self.ended
            self.release()
        elif self.claim is None:
            self.state = "elsewhere"
        return self.claim is not None

    @property
    def ended(self) -> State | None:
        """How it has ended, None if it is to be trained."""
        if self.directory.finished:
            return "finished"
        return "given up" if self.halving and self.directory.given_up else None

    def release(self) -> None:
        """Let others have the cell."""
        if self.claim is not None:
            self.claim.close()
            self.claim = None

    def start(self, device: str) -> None:
        """Start the process. It stops when this one ends."""
        self.device = device
        self.directory.describe(self.cell, self.command)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, self.call.func.__module__])
        self.process = context.Process(target=_run, args=(partial(self.call, device), self.directory.output))
        self.process.start()
        self.state = "running"

    def look(self) -> bool:
        """Return whether the process has ended, and note how."""
        assert self.process is not None
        if self.process.is_alive():
            return False
        self.state = self.ended or "failed"
        self.release()
        return True

    def give_up(self) -> None:
        """Let the process end before its training does."""
        assert self.process is not None
        self.directory.give_up()
        self.process.terminate()

    def ask_to_stop(self) -> None:
        """Let the process write a checkpoint and end."""
        assert self.process is not None
        self.process.terminate()
        self.state = "waiting"


def expect_main() -> None:
    """Raise InputError where a process of a study runs the script that began it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InputError(
            "a study in a script",
            expected="its call under `if __name__ == '__main__':`",
            found="one that its own processes repeat",
            fix="put it there",
        )


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


@checked
def run_jobs(
    jobs: Sequence[Job], devices: Sequence[str], notice: Callable[[Job], None], look: Callable[[], bool]
) -> None:
    """Run the jobs that are waiting in their order, one at a time on each of `devices`.

    A device that stands there twice takes two. A cell that another call on the same folder has claimed is
    waited for: until it is finished there, or free again.

    `notice` is called with each that has started or ended. `look` is called all the time, and stops the rest
    when it returns False. However this ends, no process is left running.
    """
    waiting = [job for job in jobs if job.state == "waiting"]
    running: list[Job] = []
    free = list(devices)
    try:
        while (waiting or running) and look():
            for job in list(waiting):
                if free and job.take():
                    job.start(free.pop(0))
                    running.append(job)
                if job.state not in ("waiting", "elsewhere"):
                    waiting.remove(job)
                    notice(job)
            wait([job.process.sentinel for job in running if job.process], _PAUSE)
            for job in [job for job in running if job.look()]:
                running.remove(job)
                free.append(job.device)
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
    for job in running:
        job.release()


_COLOURS = {
    "waiting": "dim",
    "running": "cyan",
    "elsewhere": "blue",
    "finished": "green",
    "failed": "red",
    "given up": "dim",
}


class Progress:
    """Shows the state of `jobs` on `console`; `at_once` are trained at a time."""

    def __init__(self, jobs: Sequence[Job], headline: str, at_once: int, console: Console) -> None:
        self._jobs, self._headline, self._at_once, self._console = jobs, headline, at_once, console
        self._ended = False
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._table)

    def __enter__(self) -> Self:
        done = sum(job.state == "finished" for job in self._jobs)
        self._print(f"{len(self._jobs)} trainings, {done} finished before, {self._at_once} at a time")
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._live.is_started:
            self._live.refresh()
            self._live.stop()

    def refresh(self) -> None:
        """Show how far the trainings are."""
        if self._live.is_started:
            self._live.refresh()

    def notice(self, job: Job) -> None:
        """Say what has happened to a job; of a failed one with the end of its output."""
        if job.state == "failed":
            self._print(
                f"{job.cell.name}: failed; the end of {job.directory.output}:\n{job.directory.tail()}"
            )
        elif not self._live.is_started:
            done = sum(job.state == "finished" for job in self._jobs)
            _, _, metric, _ = _cells(job, self._headline)
            self._print(f"{job.cell.name}: {job.state}  {metric}  ({done} of {len(self._jobs)} finished)")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, caption=self._caption(), caption_justify="left")
        for name in ("training", "state", "epoch", self._headline, "time left"):
            table.add_column(name, justify="left" if name in ("training", "state") else "right")
        most = max(_LEAST_NAME, self._console.width - _OTHER_COLUMNS)
        for job in self._shown():
            name = shortened(job.cell.name, most)
            table.add_row(name, *_cells(job, self._headline), style=_COLOURS[job.state])
        return table

    def _shown(self) -> list[Job]:
        """Return the jobs that fit on the screen, those that run or have failed first; all at the end."""
        most = len(self._jobs) if self._ended else max(1, self._console.height - _OTHER_LINES)
        first = sorted(self._jobs, key=lambda job: _URGENCY.index(job.state))[:most]
        return [job for job in self._jobs if any(job is one for one in first)]

    def _caption(self) -> str:
        rows = {job.directory.path: _rows(job) for job in self._jobs}
        seconds = [row["seconds"] for history in rows.values() for row in history]
        first = next(filter(None, rows.values()), [])
        left = sum(
            job.epochs_by(first) - len(rows[job.directory.path])
            for job in self._jobs
            if job.state not in ("failed", "given up")
        )
        done = sum(job.state == "finished" for job in self._jobs)
        estimate = f", {_duration(left * mean(seconds) / self._at_once)} left" if seconds and left else ""
        return f"{done} of {len(self._jobs)} finished{estimate}"


_URGENCY = ("running", "failed", "elsewhere", "finished", "given up", "waiting")
_OTHER_LINES = 4  # the heading, two lines of the caption, and the cursor's
_OTHER_COLUMNS, _LEAST_NAME = 40, 12


def shortened(name: str, most: int) -> str:
    """Return a name of at most so many characters, without its middle: names differ at their ends.

    >>> shortened("holistic-learned-seed10-lr0.004", 16)
    'holisti…-lr0.004'
    """
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[half - most :]}"


def _cells(job: Job, headline: str) -> tuple[str, str, str, str]:
    """Return state, epoch, last measurement and time left."""
    rows = [] if job.state in ("waiting", "elsewhere") else _rows(job)
    measured = [row[headline] for row in rows if headline in row]
    epochs = job.epochs_by(rows)
    left = (epochs - len(rows)) * mean(row["seconds"] for row in rows) if rows else 0.0
    return (
        job.state,
        f"{len(rows)}/{epochs}" if rows else "",
        f"{measured[-1]:.2%}" if measured else "",
        _duration(left) if left and job.state == "running" else "",
    )


def _rows(job: Job) -> list[dict[str, Any]]:
    """Return the rows of its log; none of a damaged one, which the training writes again."""
    with suppress(InputError):
        return job.directory.history()
    return []


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


_PARTS = 3


class Halving:
    """Successive halving: of the trainings of a row, the best third goes on after 1/9 and 1/3 of the epochs.

    A training is compared with those of its row and seed that have come as far before it, in any process on
    the same folder. Each row keeps its best. The rule is that of Li et al., A system for massively parallel
    hyperparameter tuning (2020), as Optuna's SuccessiveHalvingPruner has it.
    """

    def __init__(self, headline: str) -> None:
        self._optuna = imported("optuna", "--halving", "search")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._headline = headline
        self._searches: dict[tuple[Row, int, int], Any] = {}
        self._trials: dict[str, Any] = {}
        self._told: dict[str, int] = {}

    def gives_up(self, job: Job) -> bool:
        """Take note of what a training has measured since the last call; return whether it should end."""
        name = job.cell.name
        hopeless = False
        for line in _rows(job):
            epoch = line["epoch"]
            if self._headline in line and self._told.get(name, 0) < epoch < job.epochs:
                self._told[name] = epoch
                trial = self._trials.get(name) or self._ask(job)
                trial.report(line[self._headline], epoch)
                hopeless = hopeless or trial.should_prune()
        return hopeless

    def _ask(self, job: Job) -> Any:
        key = (job.cell.row, job.cell.seed, job.epochs)
        if key not in self._searches:
            pruner = self._optuna.pruners.SuccessiveHalvingPruner(ceil(job.epochs / _PARTS**2), _PARTS)
            self._searches[key] = self._optuna.create_study(direction="maximize", pruner=pruner)
        trial = self._trials[job.cell.name] = self._searches[key].ask()
        return trial


Launcher = Literal["local", "slurm"]

_MINUTES = 24 * 60


@dataclass(frozen=True)
class Launched(Result):
    """The jobs that were submitted; what they print is in `output`."""

    jobs: tuple[str, ...]
    output: Path

    def __str__(self) -> str:
        return f"submitted {' '.join(self.jobs)}; what they print is in {self.output}"


@dataclass(frozen=True)
class _Command:
    """A command of bitfactor that can be stopped, and is submitted again where a job's time is over."""

    words: Sequence[str]

    def __call__(self) -> None:
        process = subprocess.Popen([sys.executable, "-m", "bitfactor", *self.words])
        try:
            status = process.wait()
        except BaseException:  # of submitit, where the job's time ends
            process.terminate()
            process.wait()
            raise
        if status:
            raise RuntimeError(f"ended with status {status}")

    def checkpoint(self) -> Any:
        """Return what is to be done when the job begins again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def launch(
    words: Sequence[str], launcher: Launcher, tasks: int, options: Mapping[str, str], output: Path
) -> Launched:
    """Submit the command `words` of bitfactor, `tasks` times, through submitit.

    On "slurm" each is a task of one array, and begins again when its time is over. `options` are those of
    sbatch by submitit's names (partition, time in minutes, gpus_per_node, cpus_per_task, mem, account, ...).
    On "local" each is a process of this machine that outlives this one. A job has a day if `options` do not
    say.
    """
    submitit = imported("submitit", "--launcher", "search")
    expect_that(tasks >= 1, "--tasks", expected="1 or more", found=tasks)
    try:
        again = {"slurm_max_num_timeout": 1000} if launcher == "slurm" else {}  # how often a job begins again
        executor = submitit.AutoExecutor(output, cluster=launcher, **again)
        named = {
            f"{launcher}_{name}": int(value) if value.isdigit() else value for name, value in options.items()
        }
        executor.update_parameters(name="bitfactor", timeout_min=_MINUTES, **named)
        with executor.batch():
            jobs = [executor.submit(_Command(words)) for _ in range(tasks)]
        return Launched(tuple(job.job_id for job in jobs), output)
    except (NameError, ValueError, RuntimeError, submitit.core.utils.FailedSubmissionError) as error:
        raise InputError(
            f"--launcher {launcher}",
            expected="a job that it takes",
            found=str(error).splitlines()[0],
            fix="change --launcher-option, or run the command without --launcher",
        ) from error
