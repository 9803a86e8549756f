"""What `bitfactor ablate` prints at its end."""

from collections.abc import Sequence
from statistics import mean, stdev

from bitfactor.cli.output import print_json, print_table
from bitfactor.study import Job


def print_outcomes(jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print the outcome of each finished job as JSON, or mean and deviation over seeds as a table."""
    outcomes = [(job.cell, job.directory.outcome()) for job in jobs if job.state == "finished"]
    if as_json:
        print_json(
            [
                {"name": cell.name, "axes": dict(cell.axes), "real": cell.real, "seed": cell.seed, **outcome}
                for cell, outcome in outcomes
            ]
        )
        return
    names = list(dict.fromkeys(name for cell, _ in outcomes for name in cell.axes))
    rows: dict[tuple[str, ...], list[float]] = {}
    for cell, outcome in outcomes:
        row = tuple(str(cell.axes.get(name, "real" if cell.real else "")) for name in names)
        rows.setdefault(row, []).append(outcome["metrics"][outcome["headline"]])
    if rows:
        columns = [*(name.replace("_", " ") for name in names), outcomes[0][1]["headline"], "over seeds"]
        print_table(columns, [(*row, f"{mean(values):.2%}", _spread(values)) for row, values in rows.items()])


def _spread(values: Sequence[float]) -> str:
    return f"± {stdev(values):.2%} ({len(values)})" if len(values) > 1 else "(1)"
