"""A run's network as a file."""

from pathlib import Path

import torch

import bitfactor
from bitfactor.data.identity import published
from bitfactor.exporter import ExportReport, Real, export
from bitfactor.recipes import provenance_of, recipe_of
from bitfactor.training import Run, restore

_EXAMPLES = 2


def export_run(run: Run, path: Path, *, best: bool = False, real: Real = "float32") -> ExportReport:
    """Write the network of `run` to `path` with all that its run knows of it; see `bitfactor.export`.

    Raises
    ------
    InputError
        If `run` is no run, or as `bitfactor.export`.
    """
    recipe, interface = recipe_of(run), run.interface()
    examples = torch.randn(_EXAMPLES, *recipe.input_shape, generator=torch.Generator().manual_seed(1))
    return export(
        restore(recipe, run, best=best),
        path,
        examples,
        real=real,
        input_spec=interface.input_spec,
        labels=interface.labels,
        skeleton=interface.skeleton,
        provenance={"bitfactor": bitfactor.__version__, **provenance_of(recipe), **published(run.path)},
    )
