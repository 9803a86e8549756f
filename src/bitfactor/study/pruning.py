"""Which trainings of a search are given up before their end."""

from math import ceil
from typing import Any

from bitfactor.errors import imported
from bitfactor.study.grid import Row
from bitfactor.study.schedule import Job

_PARTS = 3


class Halving:
    """Successive halving: of the trainings of a row, the best third goes on after 1/9 and 1/3 of the epochs.

    A training is compared with those of its row and seed that have come as far before it, here or in another
    process on the same folder: each row keeps its best. The rule is that of Li et al., A system for massively
    parallel hyperparameter tuning (2020), as Optuna's SuccessiveHalvingPruner has it.

    Raises
    ------
    InputError
        If Optuna is not installed.

    Example
    -------
    >>> halving = Halving("accuracy")
    >>> halving.gives_up(job)
    False
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
        for line in job.directory.run.history():
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
