"""`bitfactor report RUN -o FILE.html`: the page of one training."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfactor.bench import bench
from bitfactor.cli.evaluate_classification import Outcome, classify
from bitfactor.cli.subject import Subject, subject_at
from bitfactor.convert import summary
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.report import Page, Section, curves, gallery, histograms
from bitfactor.training import Classification, Recipe, Run, restore

_SHOWN = 48
_BATCH = 256


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
    """Put around the sections what is measured on held-out data."""
    subject = subject_at(run.path, data)
    outcome = classify(subject)
    files = [_exported(path, data, outcome) for path in sorted(run.path.glob("*.safetensors"))]
    return [_outcome(outcome), *files, *sections, _predictions(subject, outcome)]


def _outcome(outcome: Outcome) -> Section:
    total = len(outcome.expected)
    return Section(
        "Outcome",
        rows=[
            ("held-out accuracy", f"{outcome.accuracy:.2%} ({outcome.correct} of {total})"),
            ("right class among the best five", f"{outcome.top5:.2%}"),
        ],
    )


def _sizes(model: nn.Module, recipe: Recipe) -> Section:
    sizes = summary(model, (1, *recipe.input_shape))
    return Section(
        "Size",
        rows=[
            ("share of multiply-adds that are binary", f"{sizes.binary_share:.1%}"),
            ("bytes of the float network", f"{sizes.float_bytes:,}"),
            ("bytes while training, factors included", f"{sizes.trained_bytes:,}"),
        ],
    )


def _exported(path: Path, data: Path | None, in_torch: Outcome) -> Section:
    outcome = classify(subject_at(path, data))
    same = int((in_torch.found == outcome.found).sum())
    engines = bench(path, against=("torch",))
    return Section(
        f"Exported: {path.name}",
        f"One bit per binary weight; timed on one thread, one picture at a time, on {engines.machine}.",
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
        f"{headline} (held out)": {headline: [row[headline] for row in rows]},
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
            "The real-valued weight that the decomposition gives (figure 3 of the paper); between the lines, "
            "|W| <= 1, it receives a gradient.",
            figure=histograms(weight, "W", marks=(-1, 1)),
        ),
    ]


def _predictions(subject: Subject, outcome: Outcome) -> Section:
    chosen = np.argsort(outcome.found == outcome.expected, kind="stable")[:_SHOWN]
    names = np.array(outcome.labels)
    pictures = _pictures(subject, chosen)
    figure = gallery(
        pictures, names[outcome.found[chosen]].tolist(), names[outcome.expected[chosen]].tolist()
    )
    return Section("Predictions", "Held-out pictures, the mistakes first.", figure=figure)


def _pictures(subject: Subject, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return held-out pictures (N, H, W) or (N, H, W, 3) of 0..1, in the order of `chosen`."""
    wanted, found, first = set(chosen.tolist()), dict[int, Tensor](), 0
    for inputs, _ in subject.data.test_batches(_BATCH):
        found |= {first + i: inputs[i].cpu() for i in range(len(inputs)) if first + i in wanted}
        first += len(inputs)
    spec = subject.data.input_spec
    pictures = torch.stack([found[i] for i in chosen.tolist()]).permute(0, 2, 3, 1).numpy()
    shown = (pictures * np.array(spec.std) + np.array(spec.mean)).clip(0, 1)
    return np.asarray(shown[..., 0] if shown.shape[-1] == 1 else shown, np.float32)


def _settings(recipe: Recipe) -> Section:
    settings = recipe.settings()
    values = {
        name: value
        for group in ("model", "data", "binarization", "optimization")
        for name, value in settings[group].items()
    }
    return Section("Settings", rows=[(name.replace("_", " "), str(value)) for name, value in values.items()])
