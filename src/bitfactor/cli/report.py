"""`bitfactor report RUN -o FILE.html`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import nn

from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.bench import bench
from bitfactor.cli.evaluate import evaluate_file, evaluate_run
from bitfactor.convert import summary
from bitfactor.data import Digits
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.report import Page, Section, curves, gallery, histograms
from bitfactor.training import Recipe, Run, restore

_SHOWN = 48


@dataclass(frozen=True)
class Arguments:
    """Write one page with a run's curves, scales, weights and predictions.

    Exported files that stand in the run's directory are measured too.
    """

    run: tyro.conf.Positional[Path]
    """Directory of a run."""
    output: Output
    """HTML file to write."""


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    options = parse(Arguments, "report", arguments)
    run = Run(options.run)
    recipe = recipe_of(run)
    model = restore(recipe, run)
    data = recipe.data(None)
    result = evaluate_run(run)
    sections = [
        _outcome(result, model, recipe),
        *(_exported(path, result) for path in sorted(run.path.glob("*.safetensors"))),
        _training(run),
        *_layers(model),
        _predictions(result, data),
        _settings(recipe),
    ]
    lead = f"Latent {recipe.binarization.latent}, scale {recipe.binarization.scale}; recipe {recipe.name}."
    Page(f"bitfactor: {run.path}", lead, sections).write(options.output)
    print(options.output)


def _outcome(result: dict[str, Any], model: nn.Module, recipe: Recipe) -> Section:
    sizes = summary(model, (1, *recipe.input_shape))
    return Section(
        "Outcome",
        rows=[
            ("held-out accuracy", f"{result['accuracy']:.2%} ({result['correct']} of {result['total']})"),
            ("share of multiply-adds that are binary", f"{sizes.binary_share:.1%}"),
            ("bytes of the float network", f"{sizes.float_bytes:,}"),
            ("bytes while training, factors included", f"{sizes.trained_bytes:,}"),
        ],
    )


def _exported(path: Path, in_torch: dict[str, Any]) -> Section:
    result = evaluate_file(path)
    same = sum(a == b for a, b in zip(in_torch["predictions"], result["predictions"], strict=True))
    engines = bench(path, ("torch",), None, 200)
    return Section(
        f"Exported: {path.name}",
        f"One bit per binary weight; timed on one thread, one picture at a time, on {engines['machine']}.",
        [
            ("accuracy", f"{result['accuracy']:.2%}"),
            ("same prediction as torch", f"{same} of {result['total']}"),
            ("bytes", f"{path.stat().st_size:,}"),
            *((f"time, {e['name']}", f"{e['median_ms']:.3f} ms (median)") for e in engines["engines"]),
        ],
    )


def _training(run: Run) -> Section:
    rows = run.history()
    if not rows:
        raise InputError(run.log, expected="a finished epoch", found="none yet", fix="train on")
    panels = {
        "loss (training)": {"loss": [row["loss"] for row in rows]},
        "accuracy (held out)": {"accuracy": [row["accuracy"] for row in rows]},
    }
    return Section("Training", figure=curves(panels, [row["epoch"] for row in rows], "epoch"))


def _layers(model: nn.Module) -> list[Section]:
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, BinaryLayer)}
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


def _predictions(result: dict[str, Any], data: Digits) -> Section:
    found, expected = np.array(result["predictions"]), data.test[1].numpy()
    chosen = np.argsort(found == expected, kind="stable")[:_SHOWN]
    pictures = data.test[0][chosen, 0].numpy()
    names = np.array(data.labels)
    figure = gallery(pictures, names[found[chosen]].tolist(), names[expected[chosen]].tolist())
    return Section("Predictions", "Held-out pictures, the mistakes first.", figure=figure)


def _settings(recipe: Recipe) -> Section:
    settings = recipe.settings()
    values = {**settings["binarization"], **settings["optimization"]}
    return Section("Settings", rows=[(name.replace("_", " "), str(value)) for name, value in values.items()])
