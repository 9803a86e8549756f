"""`bitfactor evaluate RUN` and `bitfactor evaluate FILE`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json
from bitfactor.data import Digits
from bitfactor.errors import InputError
from bitfactor.recipes import recipe_named, recipe_of
from bitfactor.runtime import Session
from bitfactor.training import Recipe, Run, restore


@dataclass(frozen=True)
class Arguments:
    """Measure the accuracy on the held-out data: of a run in torch, or of an exported file in the runtime."""

    path: tyro.conf.Positional[Path]
    """Directory of a run, or exported file."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the share of held-out pictures that are classified right."""
    options = parse(Arguments, "evaluate", arguments)
    result = evaluate_run(Run(options.path)) if options.path.is_dir() else evaluate_file(options.path)
    if options.json:
        print_json(result)
    else:
        print(f"{options.path}: {result['accuracy']:.2%} ({result['correct']} of {result['total']} right)")


def evaluate_run(run: Run) -> dict[str, Any]:
    """Classify the held-out data in torch; returns accuracy, correct, total and the predicted classes."""
    recipe = recipe_of(run)
    data, model = recipe.data(None), restore(recipe, run)
    with torch.inference_mode():
        scores = torch.cat([model(inputs) for inputs, _ in data.test_batches(256)])
    return _result(scores.numpy(), data)


def evaluate_file(path: Path) -> dict[str, Any]:
    """Classify the held-out data of the file's recipe in the runtime; returns what `evaluate_run` returns."""
    session = Session(path)
    data = _recipe_of_file(session, path).data(None)
    return _result(np.asarray(session(data.test[0].numpy())), data)


def _recipe_of_file(session: Session, path: Path) -> Recipe:
    name = session.model.provenance.get("recipe")
    if name is None:
        raise InputError(
            path,
            expected="a file exported from a run",
            found="one that names no recipe, so its test data is not known",
            fix="export it with `bitfactor export RUN`",
        )
    return recipe_named(name)


def _result(scores: NDArray[Any], data: Digits) -> dict[str, Any]:
    predictions, labels = scores.argmax(1), data.test[1].numpy()
    correct = int((predictions == labels).sum())
    return {
        "accuracy": correct / len(labels),
        "correct": correct,
        "total": len(labels),
        "predictions": predictions.tolist(),
    }
