"""What is kept of a trained cell: its network, its layers, its figures."""

import resource

from bitfactor.common.errors import InputError
from bitfactor.recipes import recipe_of
from bitfactor.recipes.runs import export_run
from bitfactor.study.directory import CellDirectory
from bitfactor.study.grid import Outcome
from bitfactor.training.run import machine, revision, versions

_BOOKKEEPING = frozenset(("epoch", "step", "loss", "learning_rate", "flipped", "seconds"))


def finish(cell: CellDirectory, *, resumed: bool) -> None:
    """Export the network of a training that is done, and write down what came out."""
    recipe, rows = recipe_of(cell), cell.history()
    reason = _export(cell)
    outcome = Outcome(
        headline=recipe.task.headline,
        metrics={name: value for name, value in rows[-1].items() if name not in _BOOKKEEPING},
        seconds=round(sum(row["seconds"] for row in rows), 1),
        cpu_seconds=round(_cpu_seconds(), 1),
        resumed=resumed,
        epochs=rows[-1]["epoch"],
        file=None if reason else cell.network.name,
        bytes=None if reason else cell.network.stat().st_size,
        not_exported=reason,
        host=machine(),
        versions=versions(),
        revision=revision(),
    )
    cell.finish(outcome)


def _export(cell: CellDirectory) -> str | None:
    """Export, and return why that cannot be, if so: a full-precision baseline has no binary weights."""
    try:
        export_run(cell, cell.network)
    except InputError as error:
        return str(error)
    return None


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
