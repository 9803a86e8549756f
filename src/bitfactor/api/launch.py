"""Commands as jobs that go on by themselves, on this machine or a cluster."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bitfactor.errors import InputError, imported
from bitfactor.result import Result

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

    On "slurm" each is a task of one array, with the `options` of sbatch by submitit's names (partition, time
    in minutes, gpus_per_node, cpus_per_task, mem, account, ...), and begins again when its time is over; on
    "local", processes of this machine that outlive this one. A job has a day if `options` do not say.

    Raises
    ------
    InputError
        If submitit is not installed, slurm is not here or refuses the job, or an option is not one of these.

    Example
    -------
    >>> words = ["ablate", "digits", "--out", "runs/t"]
    >>> print(launch(words, "slurm", 2, {"partition": "gpu"}, Path("runs/t/slurm")))
    submitted 17_0 17_1; what they print is in runs/t/slurm
    """
    submitit = imported("submitit", "--launcher", "search")
    if tasks < 1:
        raise InputError("--tasks", expected="1 or more", found=str(tasks), fix="change it")
    try:
        executor = submitit.AutoExecutor(output, cluster=launcher, **_requeued(launcher))
        named = {f"{launcher}_{name}": _number(value) for name, value in options.items()}
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


def _requeued(launcher: Launcher) -> dict[str, int]:
    """Return how often a job begins again."""
    return {"slurm_max_num_timeout": 1000} if launcher == "slurm" else {}


def _number(value: str) -> str | int:
    return int(value) if value.isdigit() else value
