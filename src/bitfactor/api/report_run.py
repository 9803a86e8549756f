"""The page of one training."""

from pathlib import Path

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
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.report import Page, Section, curves, gallery, histograms
from bitfactor.training import Classification, Recipe, Run, restore

_SHOWN = 48


def write_run_page(path: Path, output: Path, data: Path | None) -> None:
    """Write one page with a run's curves, scales, weights and predictions.

    Raises
    ------
    InputError
        If `path` holds no run, or its data cannot be read.
    """
    run = Run(path)
    recipe = recipe_of(run)
    model = restore(recipe, run)
    sections = [_sizes(model, recipe), _training(run, recipe), *_layers(model), _settings(recipe)]
    if isinstance(recipe.task, Classification):
        sections = _with_predictions(sections, run, data)
    lead = f"Latent {recipe.binarization.latent}, scale {recipe.binarization.scale}; recipe {recipe.name}."
    Page(f"bitfactor: {run.path}", lead, sections).write(output)


def _with_predictions(sections: list[Section], run: Run, data: Path | None) -> list[Section]:
    """Put around the sections what an evaluation gives."""
    network = network_at(run.path)
    images = images_of(network, data)
    outcome = classify(network, images)
    files = [_exported(path, images, outcome) for path in sorted(run.path.glob("*.safetensors"))]
    return [_outcome(outcome), *files, *sections, _predictions(network, images, outcome)]


def _outcome(outcome: ClassEvaluation) -> Section:
    rows = [("accuracy", f"{outcome.accuracy:.2%} of {outcome.images} ({outcome.correct} right)")]
    if outcome.top5 is not None:
        rows.append(("right class among the best five", f"{outcome.top5:.2%}"))
    return Section("Outcome", " ".join(outcome.noted()), rows)


def _sizes(model: nn.Module, recipe: Recipe) -> Section:
    sizes = summary(model, (1, *recipe.input_shape))
    return Section(
        "Size",
        rows=[
            ("fraction of multiply-adds that are binary", f"{sizes.binary_share:.1%}"),
            ("bytes of the float network", f"{sizes.float_bytes:,}"),
            ("bytes while training, factors included", f"{sizes.trained_bytes:,}"),
        ],
    )


def _exported(path: Path, images: EvaluationSet, in_torch: ClassEvaluation) -> Section:
    outcome = classify(network_at(path), images)
    same = int((in_torch.found == outcome.found).sum())
    engines = bench(path, against=("torch",))
    return Section(
        f"Exported: {path.name}",
        f"One bit per binary weight; timed on one thread, one image at a time, on {engines.machine}.",
        [
            ("accuracy", f"{outcome.accuracy:.2%}"),
            ("same prediction as torch", f"{same} of {len(outcome.found)}"),
            ("bytes", f"{path.stat().st_size:,}"),
            *((f"time, {e['name']}", f"{e['median_ms']:.3f} ms (median)") for e in engines.engines),
        ],
    )


def _training(run: Run, recipe: Recipe) -> Section:
    headline = recipe.task.headline
    rows = [row for row in run.history() if headline in row]
    if not rows:
        raise InputError(run.log, expected="a finished epoch", found="none yet", fix="train on")
    panels = {
        "loss (training)": {"loss": [row["loss"] for row in rows]},
        f"{headline} (test set)": {headline: [row[headline] for row in rows]},
    }
    return Section("Training", figure=curves(panels, [row["epoch"] for row in rows], "epoch"))


def _layers(model: nn.Module) -> list[Section]:
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, BinaryLayer)}
    if not layers:
        return []
    with torch.no_grad():
        alpha = {name: layer.alpha().numpy() for name, layer in layers.items()}
        weight = {name: layer.latent().numpy() for name, layer in layers.items()}
    negative = np.mean(np.concatenate([values.ravel() for values in alpha.values()]) < 0)
    return [
        Section(
            "Scaling factors",
            "alpha of each binary layer, one value per output channel (figure 2 of the paper); "
            f"{negative:.0%} are negative.",
            figure=histograms(alpha, "alpha", marks=(0,)),
        ),
        Section(
            "Weights before the sign",
            "The real-valued weight that the decomposition gives (figure 3 of the paper); with |W| <= 1, "
            "between the lines if there are others, it receives a gradient.",
            figure=histograms(weight, "W", marks=(-1, 1)),
        ),
    ]


def _predictions(network: Network, images: EvaluationSet, outcome: ClassEvaluation) -> Section:
    chosen = np.argsort(outcome.found == outcome.expected, kind="stable")[:_SHOWN]
    names = np.array(outcome.labels)
    shown = _shown(network, images, chosen)
    figure = gallery(shown, names[outcome.found[chosen]].tolist(), names[outcome.expected[chosen]].tolist())
    return Section("Predictions", f"Of {outcome.images}, the mistakes first.", figure=figure)


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


def _settings(recipe: Recipe) -> Section:
    settings = recipe.settings()
    values = {
        name: value
        for group in ("model", "data", "binarization", "optimization")
        for name, value in settings[group].items()
    }
    return Section("Settings", rows=[(name.replace("_", " "), str(value)) for name, value in values.items()])
