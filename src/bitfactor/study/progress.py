"""What `bitfactor ablate` shows while it trains: a live table, or a line per event where nobody watches."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import mean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bitfactor.study.schedule import Job

_COLOURS = {"waiting": "dim", "running": "cyan", "finished": "green", "failed": "red"}


class Progress:
    """Shows the state of `jobs`, of which `at_once` are trained at a time, on `console`."""

    def __init__(self, jobs: Sequence[Job], headline: str, at_once: int, console: Console) -> None:
        self._jobs, self._headline, self._at_once, self._console = jobs, headline, at_once, console
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._table)

    def __enter__(self) -> Self:
        done = sum(job.state == "finished" for job in self._jobs)
        self._print(f"{len(self._jobs)} trainings, {done} finished before, {self._at_once} at a time")
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        for job in self._jobs:
            table.add_row(job.cell.name, *_cells(job, self._headline), style=_COLOURS[job.state])
        return table

    def _caption(self) -> str:
        rows = {job.cell.name: job.directory.run.history() for job in self._jobs}
        seconds = [row["seconds"] for history in rows.values() for row in history]
        left = sum(job.epochs - len(rows[job.cell.name]) for job in self._jobs if job.state != "failed")
        done = sum(job.state == "finished" for job in self._jobs)
        estimate = f", {_duration(left * mean(seconds) / self._at_once)} left" if seconds and left else ""
        return f"{done} of {len(self._jobs)} finished{estimate}"


def _cells(job: Job, headline: str) -> tuple[str, str, str, str]:
    """Return state, epoch, last measurement and time left."""
    rows = [] if job.state == "waiting" else job.directory.run.history()
    measured = [row[headline] for row in rows if headline in row]
    left = (job.epochs - len(rows)) * mean(row["seconds"] for row in rows) if rows else 0.0
    return (
        job.state,
        f"{len(rows)}/{job.epochs}" if rows else "",
        f"{measured[-1]:.2%}" if measured else "",
        _duration(left) if left and job.state == "running" else "",
    )


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
