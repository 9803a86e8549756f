"""The document that a study becomes."""

import shlex
from collections.abc import Mapping, Sequence

from bitfactor.report.document import Chapter, Document, Figure
from bitfactor.report.study import inside
from bitfactor.report.study.comparison import (
    RATE,
    View,
    axis_name,
    row_name,
    setting_name,
    view_at,
    views,
)
from bitfactor.report.study.directory import REAL, Cell, Row, Study
from bitfactor.report.study.figures import Series, bands, dots, intervals
from bitfactor.report.study.finding import by_rate, caution, finding
from bitfactor.report.study.tables import (
    BASELINES,
    along,
    comparisons,
    costs,
    differences,
    metric_name,
    results,
    sizes,
    unfinished,
)

_PARTS = {"validation": "a validation part of the training data", "test": "the test data"}


def document(study: Study, examples: Sequence[Figure] = ()) -> Document:
    """Return the page of a study; `examples` are images with what the best network found in them."""
    all_views = views(study)
    first = all_views[0]
    chapters = [
        _unfinished(study),
        *(chapter for view in all_views for chapter in _compared(view, study)),
        *_along_axes(first, study),
        inside.training(first, study),
        inside.flips(first, study),
        inside.scaling_factors(first, study),
        inside.latent_weights(first, study),
        inside.factor_spectra(first, study),
        Chapter("Poses", ("Found on the left, true on the right.",), figures=examples) if examples else None,
        _networks(study),
        Chapter("What a training takes", tables=[costs(first, study)]) if study.finished else None,
        _commands(study),
    ]
    return Document(
        f"{study.record['recipe']}: what the decomposition of binary weights does",
        [*finding(first, study), *by_rate(first, study), *caution(study)],
        _facts(study),
        [chapter for chapter in chapters if chapter is not None],
    )


def _facts(study: Study) -> list[tuple[str, str]]:
    record = study.record
    outcomes = [cell.outcome for cell in study.finished if cell.outcome]
    seconds = sum(outcome["seconds"] for outcome in outcomes)
    used = [outcome["cpu_seconds"] for outcome in outcomes if "cpu_seconds" in outcome]
    machines = dict.fromkeys(outcome.get("host") or record.get("machine") for outcome in outcomes)
    time = f"{_hours(seconds)} by the clock, summed over the trainings"
    facts = [
        ("recipe", str(record["recipe"])),
        ("rows", f"{len(study.rows)}: {', '.join(study.latents)} by {', '.join(study.scales)}"),
        ("seeds", ", ".join(map(str, study.seeds))),
        *((axis_name(name), ", ".join(map(str, values))) for name, values in study.axes.items()),
        ("other flags", _flags(record.get("arguments", {}))),
        ("measured on", _PARTS.get(study.holdout or "", "the test set")),
        ("trainings finished", f"{len(study.finished)} of {len(study.cells) + len(study.missing())}"),
        ("time", time + (f"; {_hours(sum(used))} of CPU time" if used else "")),
        ("machine", ", ".join(filter(None, machines)) or str(record.get("machine", "unknown"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items())),
        ("revision", str(record.get("revision") or "unknown")),
        ("started", str(record.get("started", "unknown"))),
    ]
    return [(name, value) for name, value in facts if value]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"


def _flags(arguments: Mapping[str, object]) -> str:
    return " ".join(
        f"--{name}" if value is True else f"--{name} {value}" for name, value in arguments.items()
    )


def _unfinished(study: Study) -> Chapter | None:
    table = unfinished(study)
    text = "Shown is what there is; the same call of bitfactor ablate resumes where it stopped."
    return Chapter("What is missing", (text,), [table]) if table else None


def _compared(view: View, study: Study) -> list[Chapter]:
    if not any(view.values(row, study.headline) for row in (*study.rows, REAL)):
        return []
    where = f" at {setting_name(view.setting)}" if view.setting else ""
    name = "-".join(str(value) for _, value in view.setting)
    chapters = [
        Chapter(
            f"Accuracy{where}",
            (),
            [results(view, study)],
            [
                Figure(
                    _file("results", name),
                    _dots(view, study).encode(),
                    "A mark per seed; the bar is their mean.",
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
                    "Mean of the paired differences, with its 95 % interval.",
                )
                for figure in _intervals(view, study)
            ],
        ),
    ]
    if (said := comparisons(view, study)).rows:
        chapters.append(Chapter(f"What the paper says, one comparison at a time{where}", (), [said]))
    return chapters


def _dots(view: View, study: Study) -> str:
    rows = {
        row_name(row): (row[0], [100 * v for v in view.values(row, study.headline).values()])
        for row in study.rows
    }
    baseline = view.sample(REAL, study.headline)
    return dots(rows, f"{metric_name(study.headline)}, %", 100 * baseline.mean if baseline else None)


def _intervals(view: View, study: Study) -> list[str]:
    panels = {
        f"points over {row_name(base)}": {
            row_name(row): (row[0], found)
            for row in study.rows
            if row != base and (found := view.difference(row, base, study.headline)) is not None
        }
        for base in BASELINES
    }
    shown = {title: rows for title, rows in panels.items() if rows}
    return [intervals(shown, f"points of {metric_name(study.headline)}")] if shown else []


def _along_axes(view: View, study: Study) -> list[Chapter]:
    return [
        Chapter(
            f"By {axis_name(axis)}",
            (),
            [along(axis, view, study)],
            [_rates(view, study)] if axis == RATE else [],
        )
        for axis in study.axes
    ]


def _rates(view: View, study: Study) -> Figure:
    at = {rate: view_at(study, (*view.setting, (RATE, rate))) for rate in sorted(study.axes[RATE])}

    def series(row: Row) -> list[Series]:
        found = {rate: one.values(row, study.headline) for rate, one in at.items()}
        return [
            [(rate, 100 * values[seed]) for rate, values in found.items() if seed in values]
            for seed in study.seeds
        ]

    figure = bands(
        {f"{metric_name(study.headline)}, %": inside.panels_by_scale(study, series)},
        "learning rate",
        log_x=True,
    )
    return Figure("learning-rates", figure.encode(), "Mean over the seeds, and the band that they span.")


def _networks(study: Study) -> Chapter | None:
    table = sizes(study)
    text = (
        "One bit per binary weight; the factors are gone. All latents and scales export the same graph, so "
        "their files take the same time: what differs between those rows is the noise of the measurement."
    )
    return Chapter("Exported networks", (text,), [table]) if table else None


def _commands(study: Study) -> Chapter | None:
    first: dict[object, Cell] = {}
    for cell in study.cells:
        first.setdefault((cell.row, cell.setting), cell)
    text = "The first seed of each row; the others differ in --seed. DIR is the directory of the data."
    commands = [
        (", ".join(filter(None, (row_name(cell.row), setting_name(cell.setting)))), command_of(cell))
        for cell in first.values()
    ]
    return Chapter("How to train each row again", (text,), commands=commands) if commands else None


def command_of(cell: Cell) -> str:
    """Return the command of a training as a user would type it, without the paths of where it ran."""
    words = list(cell.command)
    start = next((i for i, word in enumerate(words) if word == "train"), 0)
    words = ["bitfactor", *words[start:]]
    stands_for = {"--data": "DIR", "--out": cell.name}
    for i, word in enumerate(words[:-1]):
        words[i + 1] = stands_for.get(word, words[i + 1])
    return shlex.join(words)


def _file(name: str, setting: str) -> str:
    return f"{name}-{setting}" if setting else name
