"""The document that a study becomes."""

import shlex
from collections.abc import Sequence

from bitfactor.study.chapters import inside, panels_by_scale
from bitfactor.study.documents.document import Chapter, Document, Figure
from bitfactor.study.figures import Series, against, bands, dots, intervals
from bitfactor.study.grid import REAL, Row, Study, Training, Value, shown_options, text_of
from bitfactor.study.statistics import (
    RATE,
    StudyView,
    axis_name,
    row_name,
    setting_name,
    views,
    with_value,
)
from bitfactor.study.tables import (
    BASELINES,
    along,
    by_rate,
    caution,
    comparisons,
    costs,
    differences,
    finding,
    hyperparameters,
    metric_name,
    results,
    say,
    sizes,
    training_name,
    unfinished,
)


def document(study: Study, examples: Sequence[Figure] = ()) -> Document:
    """Return the page of a study; `examples` are images with what the best network found in them."""
    all_views = views(study)
    first = all_views[0]
    chapters = [
        _unfinished(study),
        *(chapter for view in all_views for chapter in _compared(view, study)),
        *_along_axes(first, study),
        *inside(first, study),
        Chapter("Poses", (say("poses"),), figures=examples) if examples else None,
        _networks(study),
        _taken(first, study) if study.finished else None,
        _commands(study),
        Chapter("Hyperparameters", (), tables) if (tables := hyperparameters(first, study)) else None,
    ]
    return Document(
        say("title", recipe=study.design.recipe),
        [*finding(first, study), *by_rate(first, study), *caution(study)],
        _facts(study),
        [chapter for chapter in chapters if chapter is not None],
    )


def _facts(study: Study) -> list[tuple[str, str]]:
    design, outcomes = study.design, [one.outcome for one in study.finished if one.outcome]
    used = [outcome.cpu_seconds for outcome in outcomes if outcome.cpu_seconds is not None]
    machines = dict.fromkeys(outcome.host or design.machine for outcome in outcomes)
    time = f"{_hours(sum(outcome.seconds for outcome in outcomes))} by the clock, summed over the trainings"
    named = [
        ("recipe", design.recipe),
        ("rows", f"{len(study.rows)}: {', '.join(study.latents)} by {', '.join(study.scales)}"),
        ("seeds", ", ".join(map(str, design.seeds))),
        *((axis_name(name), ", ".join(map(text_of, values))) for name, values in study.axes.items()),
        ("other flags", shown_options(design.arguments)),
        ("part of the data", say("part", holdout=study.holdout)),
        ("trainings finished", f"{len(study.finished)} of {len(study.trainings) + len(study.missing())}"),
        ("time", time + (f"; {_hours(sum(used))} of CPU time" if used else "")),
        ("started", design.started or "unknown"),
    ]
    known = {
        "machine": ", ".join(filter(None, machines)) or design.machine or "unknown",
        "versions": ", ".join(f"{name} {version}" for name, version in design.versions.items()),
        "hash of code": design.revision or "unknown",
    }
    return [(name, value) for name, value in [*named, *(known | origins(study.trainings)).items()] if value]


def origins(trainings: Sequence[Training]) -> dict[str, str]:
    """Return what the figures of trainings are of and came from; where these differ, all of it."""
    found: dict[str, dict[str, None]] = {}
    for one in trainings:
        for name, value in one.provenance.items():
            found.setdefault(name.replace("_", " "), {})[value] = None
    return {name: "; ".join(values) for name, values in found.items()}


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"


def _unfinished(study: Study) -> Chapter | None:
    table = unfinished(study)
    return Chapter("What is missing", (say("missing"),), [table]) if table else None


def _compared(view: StudyView, study: Study) -> list[Chapter]:
    if not any(view.values(row) for row in (*study.rows, REAL)):
        return []
    where = f" at {setting_name(view.setting)}" if view.setting else ""
    name = "-".join(text_of(value) for _, value in view.setting)
    chapters = [
        Chapter(
            f"Accuracy{where}",
            (),
            [results(view, study)],
            [
                Figure(
                    _file("results", name),
                    _dots(view, study).encode(),
                    say("dots"),
                )
            ],
        ),
        Chapter(
            f"Differences to a free weight{where}",
            (),
            [table] if (table := differences(view, study)).groups[1:] else [],
            [
                Figure(
                    _file("differences", name),
                    figure.encode(),
                    say("intervals"),
                )
                for figure in _intervals(view, study)
            ],
        ),
    ]
    if (said := comparisons(view, study)).rows:
        chapters.append(Chapter(f"What the paper says, one comparison at a time{where}", (), [said]))
    return chapters


def _dots(view: StudyView, study: Study) -> str:
    rows = {row_name(row): (row[0], [100 * v for v in view.values(row).values()]) for row in study.rows}
    baseline = view.sample(REAL)
    return dots(rows, f"{metric_name(study.headline)}, %", 100 * baseline.mean if baseline else None)


def _intervals(view: StudyView, study: Study) -> list[str]:
    panels = {
        f"points over {row_name(base)}": {
            row_name(row): (row[0], found)
            for row in study.rows
            if row != base and (found := view.difference(row, base)) is not None
        }
        for base in BASELINES
    }
    shown = {title: rows for title, rows in panels.items() if rows}
    return [intervals(shown, f"points of {metric_name(study.headline)}")] if shown else []


def _along_axes(view: StudyView, study: Study) -> list[Chapter]:
    return [
        Chapter(
            f"By {axis_name(axis)}",
            (),
            [along(axis, view, study)],
            [_over(axis, view, study)] if _positive_numbers(study.axes[axis]) else [],
        )
        for axis in study.axes
    ]


def _positive_numbers(values: Sequence[Value]) -> bool:
    try:
        return len(values) > 1 and all(float(value) > 0 and value is not True for value in values)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False


def _over(axis: str, view: StudyView, study: Study) -> Figure:
    numbers = sorted((float(value), value) for value in study.axes[axis])  # type: ignore[arg-type]
    at = {number: with_value(view, study, axis, value) for number, value in numbers}

    def series(row: Row) -> list[Series]:
        found = {value: one.values(row) for value, one in at.items()}
        return [
            [(value, 100 * metrics[seed]) for value, metrics in found.items() if seed in metrics]
            for seed in study.design.seeds
        ]

    figure = bands(
        {f"{metric_name(study.headline)}, %": panels_by_scale(study, series)},
        axis_name(axis),
        log_x=True,
    )
    name = "learning-rates" if axis == RATE else axis.replace("_", "-")
    return Figure(name, figure.encode(), say("band", where="", seeds=len(study.design.seeds)))


def _taken(view: StudyView, study: Study) -> Chapter:
    points = {
        row: [
            (one.outcome.cpu_seconds / 60, 100 * one.outcome.metrics[study.headline])
            for one in found
            if one.outcome and one.outcome.cpu_seconds
        ]
        for row, found in view.rows.items()
    }
    shown = {row_name(row): (row.latent, found) for row, found in points.items() if found}
    drawn = against(shown, "CPU minutes of a training", f"{metric_name(study.headline)}, %")
    figure = Figure("cost", drawn.encode(), say("against"))
    return Chapter("What a training takes", tables=[costs(view, study)], figures=[figure] if shown else [])


def _networks(study: Study) -> Chapter | None:
    table = sizes(study)
    return Chapter("Exported networks", (say("networks"),), [table]) if table else None


def _commands(study: Study) -> Chapter | None:
    first: dict[str, Training] = {}
    for training in study.trainings:
        first.setdefault(training_name(training), training)
    commands = [(name, command_of(training)) for name, training in first.items()]
    return Chapter("How to train each row again", (say("commands"),), commands=commands) if commands else None


def command_of(training: Training) -> str:
    """Return the command of a training as a user would type it, without the paths of where it ran."""
    words = list(training.command)
    start = next((i for i, word in enumerate(words) if word == "train"), 0)
    words = ["bitfactor", *words[start:]]
    stands_for = {"--data": "DIR", "--out": training.cell.name}
    for i, word in enumerate(words[:-1]):
        words[i + 1] = stands_for.get(word, words[i + 1])
    return shlex.join(words)


def _file(name: str, setting: str) -> str:
    return f"{name}-{setting}" if setting else name
