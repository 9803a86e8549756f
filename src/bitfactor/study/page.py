"""The document that a study becomes; and chapters on what goes on inside trainings, for runs as well."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

from bitfactor.study.documents import Chapter, Document, Figure
from bitfactor.study.figures import Series, against, bands, distributions, dots, intervals, spectra
from bitfactor.study.grid import REAL, Row, Study, Training, Value, shown_options, text_of
from bitfactor.study.statistics import RATE, StudyView, axis_name, row_name, setting_name, views, with_value
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
    weights,
)
from bitfactor.training.metrics.latents import Histogram, LayerRecord

_COLUMNS = 4  # layers that a figure shows
Layers = Mapping[str, LayerRecord]


def inside(view: StudyView, study: Study) -> list[Chapter]:
    """Return the chapters for researchers for which there is something to show."""
    chapters = (flips, scaling_factors, latent_weights, factor_spectra)
    found = [made for chapter in chapters if (made := chapter(view, study)) is not None]
    return [Chapter("For researchers: inside the network", [say("inside")]), *found] if found else []


def training(view: StudyView, study: Study) -> Chapter | None:
    """Return the test metric and the loss by epoch."""
    metric = study.headline
    if not any(one.curve(metric) for found in view.rows.values() for one in found):
        return None
    rows = {
        f"{metric_name(metric)}, %": panels_by_scale(study, _logged(view, metric, 100)),
        "loss in training": panels_by_scale(study, _logged(view, "loss", 1)),
    }
    caption = say("band", where=_at(view, study), seeds=len(study.design.seeds))
    return Chapter("Training", figures=[Figure("training", bands(rows, "epoch").encode(), caption)])


def flips(view: StudyView, study: Study) -> Chapter | None:
    """Return the fraction of weights that change their sign, by epoch."""
    panels = panels_by_scale(study, _logged(view, "flipped", 100), baseline=False)
    if not any(panels.values()):
        return None
    caption = say("band", where=_at(view, study), seeds=len(study.design.seeds))
    figure = bands({"flipped, % of the weights": panels}, "epoch", log_y=True)
    return Chapter("Flips", [say("flips")], figures=[Figure("flips", figure.encode(), caption)])


def scaling_factors(view: StudyView, study: Study) -> Chapter | None:
    """Return the distributions of alpha, of each scale, with the latent that has most of them."""
    found = {
        latent: {scale: layers for scale in study.scales if (layers := _layers(view, Row(latent, scale)))}
        for latent in study.latents
    }
    latent = max(found, key=lambda name: (len(found[name]), name == "holistic"), default="")
    rows = {scale: (latent, layers) for scale, layers in found.get(latent, {}).items()}
    if not rows:
        return None
    caption = say("layers", where=_at(view, study))
    return Chapter(
        "Scaling factors",
        [say("alphas", latent=row_name((latent,)))],
        figures=[drawn("alpha", rows, "alpha", caption)],
    )


def latent_weights(view: StudyView, study: Study) -> Chapter | None:
    """Return the distributions of the weights before the sign, of each latent with one scale."""
    scale = _scale(study)
    rows = {
        row_name((latent,)): (latent, found)
        for latent in study.latents
        if (found := _layers(view, Row(latent, scale)))
    }
    if not rows:
        return None
    parts = [(name, [layer.weight for layer in found.values()]) for name, (_, found) in rows.items()]
    fractions = [f"{name} {_beyond(histograms):.1%}" for name, histograms in parts]
    caption = say("beyond", where=_at(view, study), fractions=fractions)
    return Chapter(
        "Weights before the sign",
        [say("weights", scale=scale)],
        [weights(view, study)],
        [drawn("weights", rows, "weight", caption)],
    )


def factor_spectra(view: StudyView, study: Study) -> Chapter | None:
    """Return the singular values of the factors of each latent that has some, with one scale."""
    scale = _scale(study)
    found = {latent: _layers(view, Row(latent, scale), decomposed=True) for latent in study.latents}
    rows = {
        row_name((latent,)): {name: layer.spectra for name, layer in layers.items()}
        for latent, layers in found.items()
        if layers
    }
    if not rows:
        return None
    return Chapter(
        "Spectra of the factors",
        [say("spectra", scale=scale)],
        figures=[Figure("spectra", spectra(rows).encode(), say("layers", where=_at(view, study)))],
    )


def panels_by_scale(
    study: Study, series: Callable[[Row], Sequence[Series]], *, baseline: bool = True
) -> dict[str, dict[str, Sequence[Series]]]:
    """Return {title: {latent: series}}, a panel per scale, the full-precision baseline in each."""
    panels: dict[str, dict[str, Sequence[Series]]] = {}
    for scale in study.scales:
        rows = [Row(latent, scale) for latent in study.latents] + ([REAL] if baseline else [])
        lines = {row.latent: [one for one in series(row) if one] for row in rows}
        panels[f"{scale} alpha"] = {latent: found for latent, found in lines.items() if found}
    if baseline and not study.scales:
        panels[row_name(REAL)] = {REAL.latent: series(REAL)}
    return panels


def _logged(view: StudyView, name: str, factor: float) -> Callable[[Row], list[Series]]:
    return lambda row: [[(x, factor * y) for x, y in one.curve(name)] for one in view.rows[row]]


def _scale(study: Study) -> str:
    return "learned" if "learned" in study.scales else next(iter(study.scales), "")


def _beyond(histograms: Iterable[Histogram]) -> float:
    counts = [(found.below + found.above, sum(found.counts)) for found in histograms]
    outside, inside = sum(beyond for beyond, _ in counts), sum(within for _, within in counts)
    return outside / max(outside + inside, 1)


def _layers(view: StudyView, row: Row, *, decomposed: bool = False) -> dict[str, LayerRecord]:
    """Return layers of the first training of a row that has them, with `decomposed` those with factors."""
    layers = next((one.layers for one in view.rows.get(row, ()) if one.layers), {})
    return some({name: layer for name, layer in layers.items() if layer.spectra or not decomposed})


def some(layers: Layers) -> dict[str, LayerRecord]:
    """Return as many layers as a figure shows, from the bottom to the top."""
    names, count = list(layers), min(_COLUMNS, len(layers))
    chosen = [names[round(i * (len(names) - 1) / max(count - 1, 1))] for i in range(count)]
    return {name: layers[name] for name in chosen}


_PARTS: Mapping[str, tuple[str, Sequence[float]]] = {"alpha": ("alpha", (0,)), "weight": ("W", (-1, 1))}


def drawn(
    name: str, rows: Mapping[str, tuple[str, Layers]], part: Literal["alpha", "weight"], caption: str
) -> Figure:
    """Return the figure of a distribution in layers, {title of the row: (latent, layers)}."""
    label, marks = _PARTS[part]
    found = {
        title: (latent, {layer: getattr(one, part) for layer, one in layers.items()})
        for title, (latent, layers) in rows.items()
    }
    return Figure(name, distributions(found, label, marks).encode(), caption)


def _at(view: StudyView, study: Study) -> str:
    rate = ["each row at its best learning rate"] if RATE in study.axes else []
    return ", ".join([*rate, *([setting_name(view.setting)] if view.setting else [])])


def document(study: Study, examples: Sequence[Figure] = ()) -> Document:
    """Return the page of a study; `examples` are images with what the best network found in them."""
    all_views = views(study)
    first = all_views[0]
    chapters = [
        Chapter("What is missing", (say("missing"),), [table]) if (table := unfinished(study)) else None,
        *(chapter for view in all_views for chapter in _compared(view, study)),
        *_along_axes(first, study),
        training(first, study),
        Chapter("Poses", (say("poses"),), figures=examples) if examples else None,
        Chapter("Exported networks", (say("networks"),), [table]) if (table := sizes(study)) else None,
        *inside(first, study),
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


def _compared(view: StudyView, study: Study) -> list[Chapter]:
    if not any(view.values(row) for row in (*study.rows, REAL)):
        return []
    where = f" at {setting_name(view.setting)}" if view.setting else ""
    name = "".join(f"-{text_of(value)}" for _, value in view.setting)
    chapters = [
        Chapter(
            f"Accuracy{where}",
            (),
            [results(view, study)],
            [Figure(f"results{name}", _dots(view, study).encode(), say("dots"))],
        ),
        Chapter(
            f"Differences to a free weight{where}",
            (),
            [table] if (table := differences(view, study)).groups[1:] else [],
            [
                Figure(f"differences{name}", figure.encode(), say("intervals"))
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

    rows = {f"{metric_name(study.headline)}, %": panels_by_scale(study, series)}
    figure = bands(rows, axis_name(axis), log_x=True)
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
    figures = list[Figure]()
    if shown:
        drawn = against(shown, "CPU minutes of a training", f"{metric_name(study.headline)}, %")
        figures = [Figure("cost", drawn.encode(), say("against"))]
    return Chapter("What a training takes", tables=[costs(view, study)], figures=figures)


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
    files = [Path(after).name for word, after in pairwise(words[:start]) if word == "--import"]
    words = ["bitfactor", *chain.from_iterable(("--import", file) for file in files), *words[start:]]
    stands_for = {"--data": "DIR", "--out": training.cell.name}
    for i, word in enumerate(words[:-1]):
        words[i + 1] = stands_for.get(word, words[i + 1])
    return shlex.join(words)
