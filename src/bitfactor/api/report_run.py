"""The page of one training."""

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bitfactor.api.classes import ClassEvaluation, classify
from bitfactor.api.images import images_of
from bitfactor.api.network import Network, network_at
from bitfactor.bench import bench
from bitfactor.convert import summary
from bitfactor.data.evaluation_set import EvaluationSet
from bitfactor.data.identity import remembered
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.report import Chapter, Document, Figure, Table, facts
from bitfactor.report.figures import by_depth, curves, gallery, histograms
from bitfactor.report.formats import Prose
from bitfactor.training import Classification, Recipe, Run, restore

_SHOWN = 48

say = Prose("run.j2")
"""What is said of a run, by name."""


def log_table(path: Path) -> Table:
    """Return the log of a run, a row for each epoch; what it does not have is None.

    Raises
    ------
    InputError
        If `path` holds no run, or no epoch is finished.
    """
    run = Run(path)
    run.settings()
    rows = _finished(run)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(names, [[row.get(name) for name in names] for row in rows])


def run_document(path: Path, data: Path | None) -> Document:
    """Return a run's curves, scales, weights and predictions.

    Raises
    ------
    InputError
        If `path` holds no run, or its data cannot be read.
    """
    run = Run(path)
    recipe = recipe_of(run)
    model = restore(recipe, run)
    inside = [*_steps(run), *_layers(model)]
    chapters = [_sizes(model, recipe), _training(run, recipe), *inside, _settings(recipe)]
    if isinstance(recipe.task, Classification):
        chapters = _with_predictions(chapters, run, data)
    lead = say("lead", binarization=recipe.binarization, recipe=recipe.name)
    return Document(f"bitfactor: {run.path}", [lead], [], chapters)


def _finished(run: Run) -> list[dict[str, Any]]:
    rows = run.history()
    if not rows:
        raise InputError(run.log, expected="a finished epoch", found="none yet", fix="train on")
    return rows


def _with_predictions(chapters: list[Chapter], run: Run, data: Path | None) -> list[Chapter]:
    """Put around the chapters what an evaluation gives."""
    network = network_at(run.path)
    images = images_of(network, data)
    outcome = classify(network, images)
    files = [_exported(path, images, outcome) for path in sorted(run.path.glob("*.safetensors"))]
    return [_outcome(outcome), *files, *chapters, _predictions(network, images, outcome)]


def _outcome(outcome: ClassEvaluation) -> Chapter:
    rows = [("accuracy", f"{outcome.accuracy:.2%} of {outcome.images} ({outcome.correct} right)")]
    if outcome.top5 is not None:
        rows.append(("right class among the best five", f"{outcome.top5:.2%}"))
    return Chapter("Outcome", [" ".join(outcome.noted())], [facts(rows)])


def _sizes(model: nn.Module, recipe: Recipe) -> Chapter:
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
        *((f"latency, {e['name']}", f"{e['median_ms']:.3f} ms (median)") for e in engines.engines),
    ]
    return Chapter(f"Exported: {path.name}", [say("exported", machine=engines.machine)], [facts(rows)])


def _training(run: Run, recipe: Recipe) -> Chapter:
    headline = recipe.task.headline
    rows = [row for row in _finished(run) if headline in row]
    evaluated = (remembered(run.path) or {}).get("evaluated", "")
    part = "validation" if "validation" in evaluated else "test"
    panels = {
        "loss (training)": {"loss": [row["loss"] for row in rows]},
        f"{headline} ({part} set)": {headline: [row[headline] for row in rows]},
    }
    drawn = curves(panels, [row["epoch"] for row in rows], "epoch")
    return Chapter("Training", figures=[Figure("training", drawn.encode())])


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


def _layers(model: nn.Module) -> list[Chapter]:
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, BinaryLayer)}
    if not layers:
        return []
    with torch.no_grad():
        alpha = {name: layer.alpha().numpy() for name, layer in layers.items()}
        weight = {name: layer.latent().numpy() for name, layer in layers.items()}
    negative = np.mean(np.concatenate([values.ravel() for values in alpha.values()]) < 0)
    alphas = Figure("alpha", histograms(alpha, "alpha", marks=(0,)).encode())
    weights = Figure("weights", histograms(weight, "W", marks=(-1, 1)).encode())
    return [
        Chapter("Scaling factors", [say("alphas", negative=negative)], figures=[alphas]),
        Chapter("Weights before the sign", [say("weights")], figures=[weights]),
    ]


def _predictions(network: Network, images: EvaluationSet, outcome: ClassEvaluation) -> Chapter:
    chosen = np.argsort(outcome.found == outcome.expected, kind="stable")[:_SHOWN]
    names = np.array(outcome.labels)
    shown = _shown(network, images, chosen)
    drawn = gallery(shown, names[outcome.found[chosen]].tolist(), names[outcome.expected[chosen]].tolist())
    text = say("predictions", images=outcome.images)
    return Chapter("Predictions", [text], figures=[Figure("predictions", drawn.encode())])


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
    return np.asarray(shown[..., 0] if shown.shape[-1] == 1 else shown, np.float32)


def _settings(recipe: Recipe) -> Chapter:
    settings = recipe.settings()
    values = {
        name: value
        for group in ("model", "data", "binarization", "optimization")
        for name, value in settings[group].items()
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in values.items()]
    return Chapter("Settings", tables=[facts(rows)])
