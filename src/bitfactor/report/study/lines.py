"""A study as CSV: one line per training."""

import csv
import io

from bitfactor.report.study.directory import Cell, Study


def cells_csv(study: Study) -> str:
    """Return a head and a line for each training, finished or not, its metrics as fractions.

    Example
    -------
    >>> pandas.read_csv(io.StringIO(cells_csv(study))).groupby(["latent", "scale"]).accuracy.mean()
    """
    metrics = sorted({name for cell in study.finished if cell.outcome for name in cell.outcome["metrics"]})
    text = io.StringIO()
    head = ["cell", "latent", "scale", *study.axes, "seed", "state", "epochs", *metrics, *_COSTS]
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    for cell in study.cells:
        writer.writerow(_line(cell, metrics))
    return text.getvalue()


_COSTS = ("seconds", "cpu_seconds", "bytes", "host", "revision")


def _line(cell: Cell, metrics: list[str]) -> dict[str, object]:
    outcome = cell.outcome or {}
    return {
        "cell": cell.name,
        "latent": cell.row[0],
        "scale": cell.row[1],
        **dict(cell.setting),
        "seed": cell.seed,
        "state": "finished" if cell.outcome else "unfinished",
        "epochs": cell.log[-1]["epoch"] if cell.log else 0,
        **{name: outcome.get("metrics", {}).get(name) for name in metrics},
        **{name: outcome.get(name) for name in _COSTS},
    }
