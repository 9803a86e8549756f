"""The tables of a study."""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import TypeVar

from bitfactor.report.document import Table
from bitfactor.report.study.comparison import (
    View,
    axis_name,
    claims,
    row_name,
    setting_name,
    value_name,
    view_at,
)
from bitfactor.report.study.directory import REAL, Cell, Row, Study
from bitfactor.report.study.paper import IMAGENET, MPII, imagenet_difference, mpii_difference
from bitfactor.report.study.statistics import sample

T = TypeVar("T")

NONE = "–"
BASELINES: tuple[Row, ...] = (("none", "analytic"), ("none", "learned"))
_LABELS = {"accuracy": "top-1", "top5": "top-5", "pckh": "PCKh", "pck": "PCK"}
_SECOND = "top5"


def metric_name(name: str) -> str:
    """Return a metric's name for people."""
    return _LABELS.get(name, name)


def results(view: View, study: Study) -> Table:
    """Return mean and deviation of each row, in the form of the paper's tables 1 and 2, with its figures."""
    metrics = _metrics(study)
    rated = any(cell.rate is not None for cell in study.cells)
    head = ["latent", "scale", *map(metric_name, metrics), "seeds", *(["learning rate"] if rated else [])]
    rows = [_result(view, row, metrics, rated) for row in _shown(view, study)]
    return Table(
        [*head, "top-1", "top-5", "PCKh"],
        rows,
        "Percent: mean ± standard deviation over the seeds. The paper's own figures are of other data and "
        "other networks, without a deviation: compare the order and the differences, not the height.",
        (("", 2), ("measured here", len(head) - 2), ("paper: ImageNet", 2), ("paper: MPII", 1)),
        words=(0, 1),
    )


def _result(view: View, row: Row, metrics: Sequence[str], rated: bool) -> list[str]:
    samples = [view.sample(row, metric) for metric in metrics]
    rate = [_or_none(view.rate(row), value_name)] if rated else []
    imagenet = [f"{figure:.1f}" for figure in IMAGENET.get(row, ())] or [NONE, NONE]
    mpii = _or_none(MPII.get(row), lambda figure: f"{figure:.1f}")
    seeds = str(samples[0].n) if samples[0] else "0"
    return [
        row_name(row[:1]),
        row[1] or NONE,
        *(_or_none(found, str) for found in samples),
        seeds,
        *rate,
        *imagenet,
        mpii,
    ]


def differences(view: View, study: Study) -> Table:
    """Return the paired differences of each row to the baselines of the study."""
    baselines = [row for row in BASELINES if view.values(row, study.headline)]
    rows = [
        [
            row_name(row),
            *(cell for base in baselines for cell in _difference(view, row, base, study.headline)),
        ]
        for row in _shown(view, study)
    ]
    return Table(
        ["row", *(name for _ in baselines for name in ("points", "pairs", "ImageNet", "MPII"))],
        rows,
        f"Points of {metric_name(study.headline)}: mean of the differences between runs of the same seed, "
        "with its 95 % confidence interval (Student's t) where there are two or more; beside it the paper's.",
        (("", 1), *((f"to {row_name(base)}", 4) for base in baselines)),
    )


def _difference(view: View, row: Row, base: Row, metric: str) -> list[str]:
    if row == base:
        return [NONE] * 4
    found = view.difference(row, base, metric)
    paper = (imagenet_difference(row, base), mpii_difference(row, base))
    return [
        _or_none(found, str),
        str(found.pairs) if found else "0",
        *(_or_none(figure, _paper_points) for figure in paper),
    ]


def comparisons(view: View, study: Study) -> Table:
    """Return what the paper says of pairs of rows, and whether it shows."""
    rows = [
        [
            f"{row_name(claim.ours)} over {row_name(claim.theirs)}",
            _or_none(claim.found, str),
            _or_none(claim.imagenet, _paper_points),
            _paper_points(claim.mpii),
            claim.verdict,
        ]
        for claim in claims(view, study)
    ]
    return Table(
        ["comparison", "points, measured", "paper: ImageNet", "paper: MPII", "verdict"],
        rows,
        "As in the paper, or the other way round: the whole 95 % interval lies on that side of zero; "
        "undecided: it holds zero.",
        words=(0, 4),
    )


def along(axis: str, view: View, study: Study) -> Table:
    """Return mean and deviation of each row over the values of an axis, at the view's other values."""
    others = tuple((name, value) for name, value in view.setting if name != axis)
    values = study.axes[axis]
    at = [view_at(study, (*others, (axis, value))) for value in values]
    rows = [
        [
            row_name(row),
            *(cell for one in at for cell in _sample(one, row, study.headline)),
        ]
        for row in _shown(view, study)
    ]
    head = [name for value in values for name in (value_name(value), "seeds")]
    return Table(
        ["row", *head],
        rows,
        f"{metric_name(study.headline)} in percent by {axis_name(axis)}{_where(others)}.",
    )


def _sample(view: View, row: Row, metric: str) -> list[str]:
    found = view.sample(row, metric)
    return [_or_none(found, str), str(found.n) if found else "0"]


def sizes(study: Study) -> Table | None:
    """Return bytes and speed of the exported networks, None where they have not been measured."""
    if study.speed is None:
        return None
    by_name = {cell.name: cell for cell in study.cells}
    rows = [
        [
            _run_name(by_name[name]),
            f"{found['bytes']:,}",
            f"{found['float_bytes']:,}",
            f"{found['float_bytes'] / found['bytes']:.1f}",
            f"{found['torch_times']:.1f}",
        ]
        for name, found in study.speed["cells"].items()
        if name in by_name
    ]
    return Table(
        ["exported network", "bytes", "bytes in float32", "times smaller", "times faster than torch"],
        rows,
        f"One thread, one input at a time, on {study.speed['machine']}: the median time of the float network "
        "in torch (float32), by that of the exported file, in one interleaved run.",
    )


def weights(view: View, study: Study) -> Table:
    """Return how far the weights before the sign have spread."""
    layers = {row: [found for cell in view.rows[row] for found in cell.layers.values()] for row in study.rows}
    rows = [
        [
            row_name(row),
            f"{median(layer.std for layer in found):.3g}",
            f"{mean(layer.share_outside for layer in found):.1%}",
        ]
        for row, found in layers.items()
        if found
    ]
    head = ["row", "standard deviation of W, median of the layers", "fraction of |W| > 1, mean of the layers"]
    return Table(head, rows)


def costs(view: View, study: Study) -> Table:
    """Return what a training of each row took."""
    rows = [
        [
            row_name(row),
            str(len(done)),
            _minutes([cell.outcome.get("seconds") for cell in done if cell.outcome]),
            _minutes([cell.outcome.get("cpu_seconds") for cell in done if cell.outcome]),
        ]
        for row in _shown(view, study)
        if (done := [cell for cell in view.rows[row] if cell.outcome])
    ]
    return Table(
        ["row", "trainings", "minutes by the clock", "CPU minutes"],
        rows,
        "Mean of a training. Several may have run side by side.",
    )


def unfinished(study: Study) -> Table | None:
    """Return the trainings that are not finished, None where all are."""
    begun = [
        (_place(cell.row, cell.setting, cell.seed), cell.state) for cell in study.cells if not cell.outcome
    ]
    missing = [(_place(*place), "not begun") for place in study.missing()]
    return Table(["training", "state"], [*begun, *missing]) if begun or missing else None


def _place(row: Row, setting: Sequence[tuple[str, object]], seed: int) -> str:
    return ", ".join(filter(None, (row_name(row), setting_name(tuple(setting)), f"seed {seed}")))


def _run_name(cell: Cell) -> str:
    return ", ".join(filter(None, (row_name(cell.row), setting_name(cell.setting))))


def _shown(view: View, study: Study) -> list[Row]:
    return [row for row in (*study.rows, REAL) if row != REAL or view.rows[REAL]]


def _metrics(study: Study) -> list[str]:
    has_second = any(cell.metric(_SECOND) is not None for cell in study.finished)
    return [study.headline, *([_SECOND] if has_second else [])]


def _minutes(seconds: Sequence[float | None]) -> str:
    known = sample([value for value in seconds if value is not None])
    return _or_none(known, lambda found: f"{found.mean / 60:.1f}")


def _where(setting: Sequence[tuple[str, object]]) -> str:
    return f", at {setting_name(tuple(setting))}" if setting else ""


def _paper_points(figure: float) -> str:
    return f"{figure:+.1f}".replace("-", "−")


def _or_none(value: T | None, text: Callable[[T], str]) -> str:
    return NONE if value is None else text(value)
