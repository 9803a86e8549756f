"""Top-1 of exported CIFAR-10 networks on images they were trained with, beside the test images: the gap.

python docs/results/gap.py DATA FILE ...
"""

import sys
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from bitfactor.data.readers.files import Holdout
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.runtime import Session


def accuracies(data: Path, files: list[Path], holdout: Holdout) -> list[float]:
    """Return the top-1 of each network: on the test images, or with "validation" the last 5,000 of training.

    A network of the study's tests was trained with all 50,000.
    """
    recipe = with_options(recipe_named("cifar10-resnet18"), {"holdout": holdout})
    batches = [tuple(map(np.asarray, batch)) for batch in recipe.data(data).test_batches(500)]
    sessions = [Session(file) for file in files]
    return [
        100 * mean(np.mean(session(inputs).argmax(1) == target) for inputs, target in batches)
        for session in sessions
    ]


def main() -> None:
    data, *files = map(Path, sys.argv[1:])
    trained, test = (accuracies(data, files, holdout) for holdout in ("validation", "test"))
    for name, values in (
        ("trained with", trained),
        ("test", test),
        ("gap", [one - other for one, other in zip(trained, test, strict=True)]),
    ):
        print(f"{name:12} {mean(values):.2f} ± {stdev(values) if len(values) > 1 else 0:.2f} ({len(values)})")


if __name__ == "__main__":
    main()
