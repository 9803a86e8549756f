"""The tables of a study, and what it found in words that follow from its numbers."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import TypeVar

from bitfactor.study.documents import Prose, Table
from bitfactor.study.grid import REAL, Cell, Row, Study, Training, Value, setting_of, text_of
from bitfactor.study.paper import Published, published_for
from bitfactor.study.statistics import (
    RATE,
    Claim,
    StudyView,
    axis_name,
    claims,
    row_name,
    sample,
    setting_name,
    student,
    view_at,
    with_value,
)

say = Prose("study.j2")
"""What is said of a study, by name."""


def finding(view: StudyView, study: Study) -> list[str]:
    """Return sentences: the paper's order, the order of the means, the best row, the baseline."""
    order = say("order", found=counts(claims(view, study)))
    return [order, *_means(view, study), *_best(view, study), *_baseline(view, study)]


def by_rate(view: StudyView, study: Study) -> list[str]:
    """Return a sentence on the paper's order at each learning rate, nothing where there is but one."""
    settings = [(*view.setting, (RATE, rate)) for rate in study.axes.get(RATE, ())]
    return [
        say("at_rate", setting=setting_name(at[-1:]), found=counts(claims(view_at(study, at), study)))
        for at in settings
    ]


def caution(study: Study) -> list[str]:
    """Return what a reader should know before believing the numbers."""
    total, n = len(study.trainings) + len(study.missing()), len(study.design.seeds)
    done = len(study.finished)
    rates = say(
        "rates", holdout=study.holdout, earlier=study.design.choices, here=len(study.axes.get(RATE, ()))
    )
    sentences = [
        say("unfinished", done=done, total=total) if done < total else "",
        say("seeds", n=n, errors=student(n - 1) if n > 1 else None),
        rates,
    ]
    return [sentence for sentence in sentences if sentence]


def counts(found: Sequence[Claim]) -> Mapping[str, int]:
    """Return how many comparisons were measured, and what came out."""
    measured = [claim for claim in found if claim.found is not None]
    shown = sum(claim.verdict == "as in the paper" for claim in measured)
    turned = sum(claim.verdict == "the other way round" for claim in measured)
    return {
        "measured": len(measured),
        "agreeing": sum(claim.agrees for claim in measured),
        "shown": shown,
        "turned": turned,
        "undecided": len(measured) - shown - turned,
    }


def _means(view: StudyView, study: Study) -> list[str]:
    sentences, published = [], published_for(study.headline)
    for scale in study.scales:
        means = {row: at.mean for row in study.rows if row.scale == scale and (at := view.sample(row))}
        known = [row for row in means if row in published.figures]
        if len(known) > 1:
            measured = _ascending({row: 100 * mean for row, mean in means.items()}, 2)
            paper = _ascending({row: published.figures[row][0] for row in known}, 1)
            sentences.append(say("means", scale=scale, measured=measured, paper=paper, data=published.data))
    return sentences


def _ascending(percent: Mapping[Row, float], digits: int) -> list[str]:
    ordered = sorted(percent, key=percent.__getitem__)
    return [f"{row_name(row[:1])} {percent[row]:.{digits}f}" for row in ordered]


def _best(view: StudyView, study: Study) -> list[str]:
    means = {row: at for row in study.rows if (at := view.sample(row))}
    if not means:
        return []
    best = max(means, key=lambda row: means[row].mean)
    base = Row("none", best.scale)
    over = view.difference(best, base) if best != base else None
    return [say("best", row=row_name(best), mean=means[best], over=over, base=row_name(base))]


def _baseline(view: StudyView, study: Study) -> list[str]:
    baseline = view.sample(REAL)
    means = [at.mean for row in study.rows if (at := view.sample(row))]
    if baseline is None or not means:
        return []
    return [say("baseline", mean=baseline, gap=100 * (baseline.mean - max(means)))]


T = TypeVar("T")

NONE, INTERVAL = "–", "95 % interval"
BASELINES = (Row("none", "analytic"), Row("none", "learned"))
_LABELS = {"accuracy": "top-1", "top5": "top-5", "pckh": "PCKh", "pck": "PCK"}
_SECOND = "top5"


def metric_name(name: str) -> str:
    """Return a metric's name for people."""
    return _LABELS.get(name, name)


def results(view: StudyView, study: Study) -> Table:
    """Return mean and deviation of each row, in the form of the paper's tables 1 and 2, with its figures."""
    has_second = any(one.metric(_SECOND) is not None for one in study.finished)
    metrics, published = [study.headline, *[_SECOND] * has_second], published_for(study.headline)
    choices = list(dict.fromkeys(name for training in study.trainings for name in training.chosen))
    named = [metric_name(name) for name in metrics]
    head = ["latent", "scale", *named, "seeds", INTERVAL, *map(axis_name, choices)]
    rows = [_result(view, row, metrics, published, choices) for row in _shown(view, study)]
    return Table(
        [*head, *published.metrics],
        rows,
        say("results", same=study.design.recipe == published.recipe),
        (("", 2), ("measured here", len(head) - 2), (f"paper: {published.data}", len(published.metrics))),
        words=(0, 1),
    )


def _result(
    view: StudyView, row: Row, metrics: Sequence[str], published: Published, choices: Sequence[str]
) -> list[str]:
    samples = [view.sample(row, metric) for metric in metrics]
    chosen = view.chosen(row)
    paper = [f"{figure:.1f}" for figure in published.figures.get(row, ())] or [NONE] * len(published.metrics)
    seeds, interval = (str(samples[0].n), samples[0].interval) if samples[0] else ("0", None)
    return [
        row_name(row[:1]),
        row[1] or NONE,
        *(_or_none(found, str) for found in samples),
        seeds,
        _or_none(interval, lambda ends: " to ".join(f"{100 * end:.2f}" for end in ends)),
        *(text_of(chosen[name]) if name in chosen else NONE for name in choices),
        *paper,
    ]


def differences(view: StudyView, study: Study) -> Table:
    """Return the paired differences of each row to the baselines of the study."""
    baselines, published = [row for row in BASELINES if view.values(row)], published_for(study.headline)
    rows = [
        [row_name(row), *(cell for base in baselines for cell in _difference(view, row, base, published))]
        for row in _shown(view, study)
    ]
    return Table(
        ["row", *(name for _ in baselines for name in ("points", "pairs", published.data))],
        rows,
        say("differences", metric=metric_name(study.headline)),
        (("", 1), *((f"to {row_name(base)}", 3) for base in baselines)),
    )


def _difference(view: StudyView, row: Row, base: Row, published: Published) -> list[str]:
    if row == base:
        return [NONE] * 3
    found = view.difference(row, base)
    paper = _or_none(published.difference(row, base), paper_points)
    return [_or_none(found, str), str(found.pairs) if found else "0", paper]


def comparisons(view: StudyView, study: Study) -> Table:
    """Return what the paper says of pairs of rows, and whether it shows."""
    rows = [
        [
            f"{row_name(claim.ours)} over {row_name(claim.theirs)}",
            _or_none(claim.found, str),
            paper_points(claim.points),
            claim.verdict,
        ]
        for claim in claims(view, study)
    ]
    return Table(
        ["comparison", "points, measured", f"paper: {published_for(study.headline).data}", "verdict"],
        rows,
        say("comparisons"),
        words=(0, 3),
    )


def along(axis: str, view: StudyView, study: Study) -> Table:
    """Return mean and deviation of each row over the values of an axis, at the view's other values."""
    others = tuple((name, value) for name, value in view.setting if name != axis)
    values = study.axes[axis]
    at = [with_value(view, study, axis, value) for value in values]
    rows = [
        [row_name(row), *(cell for one in at for cell in _sample(one, row))] for row in _shown(view, study)
    ]
    head = [name for value in values for name in (text_of(value), "seeds")]
    metric = metric_name(study.headline)
    caption = say("along", metric=metric, axis=axis_name(axis), where=setting_name(others))
    return Table(["row", *head], rows, caption)


def _sample(view: StudyView, row: Row) -> list[str]:
    found = view.sample(row)
    return [_or_none(found, str), str(found.n) if found else "0"]


def sizes(study: Study) -> Table | None:
    """Return bytes and speed of the exported networks, None where they have not been measured."""
    if study.speed is None:
        return None
    by_name = {training.cell.name: training for training in study.trainings}
    rows = [
        [
            training_name(by_name[name]),
            f"{found['bytes']:,}",
            f"{found['float_bytes']:,}",
            f"{found['float_bytes'] / found['bytes']:.1f}",
            f"{found['torch_times']:.1f}",
        ]
        for name, found in study.speed["cells"].items()
        if name in by_name
    ]
    warnings = [one for found in study.speed["cells"].values() for one in found.get("warnings", ())]
    return Table(
        ["exported network", "bytes", "bytes in float32", "times smaller", "times faster than torch"],
        rows,
        " ".join([say("sizes", machine=study.speed["machine"]), *dict.fromkeys(warnings)]),
    )


def weights(view: StudyView, study: Study) -> Table:
    """Return how far the weights before the sign have spread."""
    layers = {row: [layer for one in view.rows[row] for layer in one.layers.values()] for row in study.rows}
    rows = [
        [
            row_name(row),
            f"{median(layer.std for layer in found):.3g}",
            f"{mean(layer.outside for layer in found):.1%}",
        ]
        for row, found in layers.items()
        if found
    ]
    head = ["row", "standard deviation of W, median of the layers", "fraction of |W| > 1, mean of the layers"]
    return Table(head, rows)


def costs(view: StudyView, study: Study) -> Table:
    """Return what a training of each row took."""
    done = {row: [one.outcome for one in view.rows[row] if one.outcome] for row in _shown(view, study)}
    rows = [
        [
            row_name(row),
            str(len(outcomes)),
            _minutes([outcome.seconds for outcome in outcomes]),
            _minutes([outcome.cpu_seconds for outcome in outcomes]),
        ]
        for row, outcomes in done.items()
        if outcomes
    ]
    return Table(["row", "trainings", "minutes by the clock", "CPU minutes"], rows, say("costs"))


def unfinished(study: Study) -> Table | None:
    """Return the trainings that are not finished, None where all are."""
    begun = [(_place(one.cell, study), one.state) for one in study.trainings if one.outcome is None]
    missing = [(_place(cell, study), "not begun") for cell in study.missing()]
    return Table(["training", "state"], [*begun, *missing]) if begun or missing else None


_COSTS = ("seconds", "cpu_seconds", "bytes", "host", "revision")


def trainings(study: Study) -> Table:
    """Return a row for each training, finished or not, its metrics as fractions: what the CSV holds."""
    metrics = sorted({name for one in study.finished if one.outcome for name in one.outcome.metrics})
    rows = [
        [
            one.cell.name,
            *one.cell.row,
            *(_word(axis, dict(one.setting)) for axis in study.axes),
            one.cell.seed,
            one.end,
            one.log[-1]["epoch"] if one.log else 0,
            *map(one.metric, metrics),
            *(getattr(one.outcome, name, None) for name in _COSTS),
        ]
        for one in study.trainings
    ]
    head = ["cell", "latent", "scale", *study.axes, "seed", "state", "epochs", *metrics, *_COSTS]
    return with_options([Table(head, [row]) for row in rows], study.trainings, head)


def with_options(parts: Sequence[Table], trainings: Sequence[Training], head: Sequence[str]) -> Table:
    """Return the rows of a table for each training as one, each with its options and where it came from."""
    known = [{**one.options, **one.provenance} for one in trainings]
    names = list(dict.fromkeys(name for one in known for name in one if name not in head))
    values = [[text_of(one[name]) if name in one else None for name in names] for one in known]
    rows = [[*row, *more] for part, more in zip(parts, values, strict=True) for row in part.rows]
    return Table([*head, *names], rows)


def means(study: Study) -> Table:
    """Return mean, deviation and 95 % interval of the headline at each row and setting, as fractions."""
    rows = []
    for view in (view_at(study, setting) for setting in study.settings()):
        for row in (*study.rows, REAL):
            if found := view.sample(row):
                interval = found.interval or (None, None)
                values = [_word(axis, dict(view.setting)) for axis in study.axes]
                rows.append([*row, *values, study.headline, found.mean, found.std, found.n, *interval])
    figures = ["metric", "mean", "deviation", "n", "low", "high"]
    return Table(["latent", "scale", *study.axes, *figures], rows)


def hyperparameters(view: StudyView, study: Study) -> list[Table]:
    """Return the options that all rows share, and those that differ, of the first training of each row."""
    first = {row_name(row): [one.options for one in at if one.options] for row, at in view.rows.items()}
    rows = {name: found[0] for name, found in first.items() if found}
    names = dict.fromkeys(name for options in rows.values() for name in options if name != "seed")
    values = {name: [text_of(one[name]) if name in one else NONE for one in rows.values()] for name in names}
    same = [[name, texts[0]] for name, texts in values.items() if len(set(texts)) == 1]
    others = [[name, *texts] for name, texts in values.items() if len(set(texts)) > 1]
    tables = [Table(["option", "of all rows"], same, words=(0, 1)), Table(["option", *rows], others)]
    return [table for table in tables if table.rows]


def _word(axis: str, setting: Mapping[str, Value]) -> object:
    value = setting.get(axis)
    return value if axis not in setting or isinstance(value, float) else text_of(value)


def training_name(training: Training) -> str:
    """Return a training's row and setting for people."""
    return ", ".join(filter(None, (row_name(training.cell.row), setting_name(training.setting))))


def _place(cell: Cell, study: Study) -> str:
    setting = setting_name(setting_of(cell, study.design.axes))
    return ", ".join(filter(None, (row_name(cell.row), setting, f"seed {cell.seed}")))


def _shown(view: StudyView, study: Study) -> list[Row]:
    return [row for row in (*study.rows, REAL) if row != REAL or view.rows[REAL]]


def _minutes(seconds: Sequence[float | None]) -> str:
    known = sample([value for value in seconds if value is not None])
    return _or_none(known, lambda found: f"{found.mean / 60:.1f}")


def paper_points(figure: float) -> str:
    """Return a difference of the paper's figures, in points, with its sign."""
    return f"{figure:+.1f}".replace("-", "−")


def _or_none(value: T | None, text: Callable[[T], str]) -> str:
    return NONE if value is None else text(value)
