"""The page of a training, or of a study."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from bitfactor.api.bench import BenchReport, bench
from bitfactor.api.evaluate import ClassEvaluation, classify, confusion_drawing, images_of
from bitfactor.api.network import Network, network_at
from bitfactor.api.poses import examples, find_keypoints, instances_of, pose_chapters
from bitfactor.binarization import summary
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_output
from bitfactor.common.result import Result, plain
from bitfactor.data.readers.evaluation_set import EvaluationSet
from bitfactor.format import load
from bitfactor.recipes import recipe_of
from bitfactor.study import REAL, Cell, Study, StudyDirectory, is_study, read_study
from bitfactor.study.documents import (
    Chapter,
    Document,
    Figure,
    Prose,
    Table,
    facts,
    montages,
    write_csv,
    write_html,
    write_latex,
    write_markdown,
)
from bitfactor.study.figures import by_depth, curves, gallery, svg
from bitfactor.study.grid import Design, Outcome, Training
from bitfactor.study.page import document, inside, origins
from bitfactor.study.statistics import claims, row_name, setting_name, views, without_rate
from bitfactor.study.tables import caution, finding, means, metric_name, trainings, with_options
from bitfactor.training import Classification, PoseEstimation, Recipe, Run, restore
from bitfactor.training.metrics.latents import LayerRecord, describe_layers

_RUNS = 50
_PEOPLE = 4


def summary_of(study: Study) -> dict[str, object]:
    """Return sentences, rows and comparisons at each setting, with fractions in place of percent."""
    all_views = views(study)
    return {
        "finding": [*finding(all_views[0], study), *caution(study)],
        "metric": study.headline,
        "settings": [
            {
                "setting": setting_name(view.setting),
                "rows": [
                    {
                        "row": row_name(row),
                        "learning_rate": view.chosen(row).get("learning_rate"),
                        "chosen": view.chosen(row),
                        "by_seed": view.values(row),
                        **(asdict(found) if (found := view.sample(row)) else {}),
                    }
                    for row in (*study.rows, REAL)
                ],
                "comparisons": [
                    {
                        "row": row_name(claim.ours),
                        "over": row_name(claim.theirs),
                        "verdict": claim.verdict,
                        **(asdict(claim.found) if claim.found else {}),
                    }
                    for claim in claims(view, study)
                ],
            }
            for view in all_views
        ],
        "missing": len(study.missing()),
        "unfinished": len(study.trainings) - len(study.finished),
    }


def with_speed(study: Study) -> Study:
    """Time the exported networks, unless that has been done, and keep the figures in the directory."""
    files = _files(study)
    known: Mapping[str, Any] = study.speed["cells"] if study.speed else {}
    if all(known.get(name, {}).get("bytes") == file.stat().st_size for name, file in files.items()):
        return study
    measured, status = {}, Console(stderr=True, highlight=False)
    for name, file in files.items():
        status.print(f"timing {name}")
        measured[name] = bench(file, against=("torch",), runs=_RUNS)
        for warning in measured[name].warnings:
            status.print(warning)
    speed = {
        "machine": next(iter(measured.values())).machine,
        "runs": _RUNS,
        "cells": {name: _sizes(files[name], found) for name, found in measured.items()},
    }
    try:
        StudyDirectory(study.path).write_speed(speed)
    except InputError as error:  # the next report times them again
        status.print(str(error))
    return replace(study, speed=speed)


def _sizes(file: Path, found: BenchReport) -> dict[str, Any]:
    ours, *others = found.engines
    torch = next(engine for engine in others if "float32" in engine["name"])
    return {
        "bytes": file.stat().st_size,
        "float_bytes": load(file).report["float_bytes"],
        "torch_times": torch["minimum_ms"] / ours["minimum_ms"],
        "engines": list(found.engines),
        "warnings": found.warnings,
    }


def _files(study: Study) -> dict[str, Path]:
    """Return the exported network of a training of each row, at one learning rate, by the training's name."""
    files: dict[object, tuple[str, Path]] = {}
    for one in study.finished:
        if one.network is not None:
            files.setdefault((one.cell.row, without_rate(one.setting)), (one.cell.name, one.network))
    return dict(files.values())


def _examples(study: Study, data: Path | None) -> list[Figure]:
    """Return instances whom the best binary network does best, in the middle and worst with."""
    networks = {
        one.network: one for one in study.finished if one.cell.row != REAL and one.network is not None
    }
    if data is None or not networks:
        return []
    best = max(networks, key=lambda path: networks[path].metric(study.headline) or 0.0)
    network = network_at(best)
    if not network.finds_keypoints:
        return []
    instances = instances_of(network, data)
    parts, name = examples(instances, find_keypoints(instances), _PEOPLE), networks[best].cell.name
    return montages("poses", parts, f": {name}.")


_SHOWN = 24

say = Prose("run.j2")
"""What is said of a run, by name."""


def log_table(path: Path) -> Table:
    """Return the log of a run, a row for each epoch, with its options; what it does not have is None."""
    run = Run(path)
    run.settings()
    rows = _finished(run)
    names = list(dict.fromkeys(name for row in rows for name in row))
    recipe = recipe_of(run)
    chosen = recipe.optimization.learning_rate  # which each row has as it was by then
    log = Table([*names, "chosen_learning_rate"], [[*map(row.get, names), chosen] for row in rows])
    training = _study_of(run, recipe, {}).trainings[0]
    return with_options([log], [training], log.head)


def run_document(path: Path, data: Path | None) -> Document:
    """Return the page of a run: that of a study of one, with its steps, its predictions and its files."""
    run = Run(path)
    recipe = recipe_of(run)
    model = restore(recipe, run)
    study = _study_of(run, recipe, run.layer_records() or describe_layers(model))
    shown = inside(views(study)[0], study)
    first = _with_images(run, recipe, data)
    chapters = [
        *first,
        _training(run, recipe),
        _size_chapter(model, recipe),
        *shown,
        *_steps(run),
        _settings(recipe),
    ]
    outcome = study.trainings[0].outcome
    metrics = [(metric_name(name), value) for name, value in outcome.metrics.items()] if outcome else []
    lead = say("lead", binarization=recipe.binarization, recipe=recipe.name, metrics=metrics)
    return Document(f"bitfactor: {run.path}", [lead], [*origins(study.trainings).items()], chapters)


def _study_of(run: Run, recipe: Recipe, layers: Mapping[str, LayerRecord]) -> Study:
    """Return a run as a study of one training."""
    chosen, rows, headline = recipe.binarization, _finished(run), recipe.task.headline
    axes = {} if recipe.real else {name: chosen.words(name) for name in ("latent", "scale")}
    cell = Cell(axes, recipe.optimization.seed, recipe.real)
    binary = [row for row in rows if row["epoch"] > recipe.first_stage]
    found = [row[headline] for row in binary if headline in row]
    metrics = {headline: found[-1]} if found else {}
    outcome = Outcome(headline, metrics, seconds=sum(row["seconds"] for row in rows))
    values = {name: [axes[name]] if name in axes else [] for name in ("latent", "scale")}
    design = Design(recipe.name, {}, values, [cell.seed], recipe.real)
    return Study(run.path, design, [Training(cell, (), (), rows, outcome, layers, record=run.record())])


def _finished(run: Run) -> list[dict[str, Any]]:
    rows = run.history()
    if not rows:
        raise InputError(run.log, expected="a finished epoch", found="none yet", fix="train on")
    return rows


def _with_images(run: Run, recipe: Recipe, data: Path | None) -> list[Chapter]:
    """Return what an evaluation gives: how good the network is, and on which images it errs."""
    network = network_at(run.path)
    if isinstance(recipe.task, PoseEstimation):
        instances = instances_of(network, data)
        found, *people = pose_chapters(instances, find_keypoints(instances), _PEOPLE)
        rows = list(_baselines(run, recipe))
        return [replace(found, tables=[*found.tables, facts(rows)] if rows else found.tables), *people]
    if not isinstance(recipe.task, Classification):
        return []
    images = images_of(network, data)
    outcome = classify(network, images)
    files = [_exported(path, images, outcome) for path in sorted(run.path.glob("*.safetensors"))]
    beside = list(_baselines(run, recipe))
    return [_outcome(outcome, beside), _mistakes(network, images, outcome), *files]


def _baselines(run: Run, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the runs in full precision beside this one, alike but for that, and how good they are."""
    own, headline = run.record().get("data_identity") or {}, recipe.task.headline
    ours = _alike(run.settings())
    for file in sorted(run.path.resolve().parent.glob("*/recipe.json")):
        with suppress(OSError, ValueError, LookupError, InputError):  # a run that is damaged is none
            other = Run(file.parent)
            record = other.record()
            settings = record["settings"]
            if recipe.real or not settings["real"] or _alike(settings) != ours:
                continue
            if other.history()[-1]["epoch"] < settings["optimization"]["epochs"]:
                continue
            if all(record["data_identity"][name] == own[name] for name in ("fingerprint", "evaluated")):
                value = [row[headline] for row in other.history() if headline in row][-1]
                yield f"full-precision baseline, {file.parent.name}", f"{value:.2%}"


def _alike(settings: Mapping[str, Any]) -> list[Any]:
    """Return what a binary network and its baseline have in common: network, images and length."""
    plan = settings["optimization"]
    lengths = [plan.get(name) for name in ("epochs", "steps", "batch_size", "limit")]
    return [settings["recipe"], settings["model"], settings.get("data"), lengths]


def _training(run: Run, recipe: Recipe) -> Chapter:
    """Return the curves of training and evaluation."""
    rows, headline = run.history(), recipe.task.headline

    def points(name: str, factor: float = 1) -> list[tuple[float, float]]:
        return [(row["epoch"], factor * row[name]) for row in rows if name in row]

    panels = {
        "loss": {"training": points("loss"), "evaluation": points("test_loss")},
        f"{metric_name(headline)}, %": {"evaluation": points(headline, 100)},
    }
    some = {label: {name: line for name, line in lines.items() if line} for label, lines in panels.items()}
    drawn = curves({label: lines for label, lines in some.items() if lines}, "epoch")
    text = say("training", evaluated="evaluation" in some["loss"])
    return Chapter("Training", [text] if text else [], figures=[Figure("training", drawn.encode())])


def _outcome(outcome: ClassEvaluation, beside: Sequence[tuple[str, str]]) -> Chapter:
    rows = [("accuracy", f"{outcome.accuracy:.2%} of {outcome.images} ({outcome.correct} right)")]
    if outcome.top5 is not None:
        rows.append(("right class among the best five", f"{outcome.top5:.2%}"))
    rows += beside
    drawn = svg(confusion_drawing(outcome.confusion, outcome.labels))
    confusion = Figure("confusion", drawn.encode(), say("confusion"))
    return Chapter("Outcome", [" ".join(outcome.noted())], [facts(rows)], [confusion])


def _size_chapter(model: nn.Module, recipe: Recipe) -> Chapter:
    sizes = summary(model, (1, *recipe.input_shape))
    rows = [
        ("fraction of multiply-adds that are binary", f"{sizes.binary_fraction:.1%}"),
        ("bytes of the float network", f"{sizes.float_bytes:,}"),
        ("bytes while training, factors included", f"{sizes.trained_bytes:,}"),
    ]
    return Chapter("Size", tables=[facts(rows)])


def _exported(path: Path, images: EvaluationSet, in_torch: ClassEvaluation) -> Chapter:
    outcome = classify(network_at(path), images)
    same = int((in_torch.found == outcome.found).sum())
    engines = bench(path, against=("torch",))
    rows = [
        ("accuracy", f"{outcome.accuracy:.2%}"),
        ("same prediction as torch", f"{same} of {len(outcome.found)}"),
        ("bytes", f"{path.stat().st_size:,}"),
        *((f"latency, {e['name']}", f"{e['minimum_ms']:.3f} ms (minimum)") for e in engines.engines),
    ]
    text = [say("exported", machine=engines.machine), *engines.warnings]
    return Chapter(f"Exported: {path.name}", text, [facts(rows)])


_MEASURES = {
    "flipped": "signs flipped",
    "change": "change / rate",
    "descent": "cosine",
    "gradient": "gradient",
    "outside": "beyond the clip",
    "condition": "condition",
}


def _steps(run: Run) -> list[Chapter]:
    rows = run.movement()
    if not rows:
        return []
    steps = sorted({row["step"] for row in rows})
    drawn = {
        title: {
            layer: [row[name] for row in rows if row["layer"] == layer]
            for layer in dict.fromkeys(row["layer"] for row in rows)
        }
        for name, title in _MEASURES.items()
    }
    logarithmic = {_MEASURES[name] for name in ("flipped", "gradient", "condition")}
    shown = [steps[0], steps[len(steps) // 2], steps[-1]]
    means = [
        [step, *(f"{mean(row[name] for row in rows if row['step'] == step):.3g}" for name in _MEASURES)]
        for step in dict.fromkeys(shown)
    ]
    return [
        Chapter(
            "What a step does to W",
            [say("steps")],
            [Table(["step", *_MEASURES.values()], means)],
            [Figure("steps", by_depth(drawn, steps, "step", logarithmic).encode())],
        )
    ]


def _mistakes(network: Network, images: EvaluationSet, outcome: ClassEvaluation) -> Chapter:
    """Return the mistakes that the network is most sure of, as images."""
    wrong = np.flatnonzero(outcome.found != outcome.expected)
    chosen = wrong[np.argsort(-outcome.confidence[wrong], kind="stable")][:_SHOWN]
    text = say("mistakes", wrong=len(wrong), shown=len(chosen), images=outcome.images)
    if not len(chosen):
        return Chapter("Most confident mistakes", [text])
    sure = zip(outcome.found[chosen], outcome.confidence[chosen], strict=True)
    found = [f"{outcome.labels[label]} {confidence:.0%}" for label, confidence in sure]
    truth = [outcome.labels[label] for label in outcome.expected[chosen]]
    drawn = gallery(_shown(network, images, chosen), found, truth)
    return Chapter("Most confident mistakes", [text], figures=[Figure("mistakes", drawn.encode())])


def _shown(network: Network, images: EvaluationSet, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return images (N, H, W) or (N, H, W, 3) of 0..1, in the order of `chosen`."""
    wanted, found, first = set(chosen.tolist()), dict[int, NDArray[np.float32]](), 0
    for inputs, _ in images.batches():
        found |= {first + i: inputs[i] for i in range(len(inputs)) if first + i in wanted}
        first += len(inputs)
    spec = network.input_spec
    assert spec is not None  # it was evaluated
    inputs = np.stack([found[i] for i in chosen.tolist()]).transpose(0, 2, 3, 1)
    shown = (inputs * np.array(spec.std) + np.array(spec.mean)).clip(0, 1)
    return np.asarray(shown if shown.shape[-1] == 3 else shown[..., 0], np.float32)


def _settings(recipe: Recipe) -> Chapter:
    settings = recipe.settings()
    values = {
        name: value
        for group in ("model", "data", "binarization", "optimization")
        for name, value in settings[group].items()
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in values.items()]
    return Chapter("Settings", tables=[facts(rows)])


Format = Literal["html", "markdown", "latex", "csv", "parquet"]

_SUFFIXES: dict[Format, str] = {
    "html": ".html",
    "markdown": ".md",
    "latex": ".tex",
    "csv": ".csv",
    "parquet": ".parquet",
}
_WRITERS = {"html": write_html, "markdown": write_markdown, "latex": write_latex}


@dataclass(frozen=True)
class Report(Result):
    """The file that was written; of a study, `found` is what was found, as plain types."""

    output: Path
    found: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"output": str(self.output), **plain(self.found)}

    def __str__(self) -> str:
        return str(self.output)


@checked
def report(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    format: Format = "html",
    data: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Report:
    """Write a page about a run, or about a study: the paper's tables and figures from what was measured.

    Exported files that stand in the directory are timed too; what those of a study weigh and take is kept
    in its speed.json.

    Parameters
    ----------
    directory
        Directory of a run or of a study, or a study as one file, which an earlier report wrote as parquet.
    output
        File to write; report.html (or .md, .tex, .csv, .parquet) in the directory if left out.
    format
        One page; Markdown with a folder of figures beside it; latex, its tables with booktabs. Csv has a line
        for each epoch of a run or each training of a study, and a second file of means. Parquet has all of a
        study in one file, except its networks.
    data
        Directory of the data: for runs of recipes that need one, and for studies of poses to show examples.
    overwrite
        Replace a file that bitfactor did not write.

    Raises
    ------
    InputError
        If the directory is neither a run nor a study, or the file cannot be written.

    Example
    -------
    >>> print(bitfactor.report("runs/t"))
    runs/t/report.html
    """
    source, images = Path(directory), None if data is None else Path(data)
    folder = source.parent if source.is_file() else source
    target = folder / f"report{_SUFFIXES[format]}" if output is None else Path(output)
    others = {suffix: name for name, suffix in _SUFFIXES.items() if name != format}
    if target.suffix in others:
        expected, fix = f"a name for {format}", f"pass format {others[target.suffix]}"
        raise InputError(target, expected=expected, found=target.suffix, fix=fix)
    for place in (target, _means_beside(target)) if format == "csv" and is_study(source) else (target,):
        expect_output(place, [_SUFFIXES[format]], overwrite=overwrite or output is None)
    figures = target.with_suffix("")
    if format == "markdown" and output is not None and not overwrite and figures.exists():
        expected, fix = "no folder of that name, for the figures", "choose another name, or pass --overwrite"
        raise InputError(figures, expected=expected, found="one", fix=fix)
    if is_study(source):
        study = read_study(source)
        _write_study(study, target, format, images)
        return Report(target, summary_of(study))
    if format == "parquet":
        raise InputError(
            "format", expected="html, markdown, latex or csv for a run", found=format, fix="name one"
        )
    if format == "csv":
        write_csv(log_table(source), target)
    else:
        _WRITERS[format](run_document(source, images), target)
    return Report(target)


def _means_beside(path: Path) -> Path:
    return path.with_stem(f"{path.stem}-means")


def _write_study(study: Study, target: Path, format: Format, images: Path | None) -> None:
    if format == "csv":
        write_csv(trainings(study), target)
        write_csv(means(study), _means_beside(target))
    elif format == "parquet":
        from bitfactor.study.table import write_table  # pyarrow is only needed here

        write_table(with_speed(study), target)
    else:
        _WRITERS[format](document(with_speed(study), _examples(study, images)), target)
