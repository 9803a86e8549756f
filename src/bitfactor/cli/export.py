"""`bitfactor export RUN -o FILE`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

import bitfactor
from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.output import print_json
from bitfactor.recipes import recipe_of
from bitfactor.training import Run, restore


@dataclass(frozen=True)
class Arguments:
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears."""

    run: tyro.conf.Positional[Path]
    """Directory of a run."""
    output: Output
    """File to write."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Export and print the report."""
    options = parse(Arguments, "export", arguments)
    run = Run(options.run)
    recipe = recipe_of(run)
    data = recipe.data(None)
    report = bitfactor.export(
        restore(recipe, run),
        options.output,
        data.test[0][:2],
        input_spec=data.input_spec,
        labels=data.labels,
        provenance={"recipe": recipe.name, "bitfactor": bitfactor.__version__},
    )
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
