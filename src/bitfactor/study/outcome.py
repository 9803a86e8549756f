"""What is kept of a trained cell: its network, its layers, its figures."""

import resource

import torch
from torch import Tensor, nn

from bitfactor.common.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.recipes.exporting import export_run
from bitfactor.study.directory import CellDirectory, machine, revision
from bitfactor.study.grid import Histogram, Layer, Outcome
from bitfactor.training import restore
from bitfactor.training.metrics.latents import binary_layers
from bitfactor.training.run import versions

_REACH, _WEIGHT_BINS, _ALPHA_BINS = 3.0, 40, 20
_VALUES = 64  # of a spectrum that are kept
_BOOKKEEPING = frozenset(("epoch", "step", "loss", "learning_rate", "flipped", "seconds"))


def finish(cell: CellDirectory, *, resumed: bool) -> None:
    """Export the network of a training that is done, and write down what came out."""
    recipe, rows = recipe_of(cell.run), cell.run.history()
    reason = _export(cell)
    outcome = Outcome(
        headline=recipe.task.headline,
        metrics={name: value for name, value in rows[-1].items() if name not in _BOOKKEEPING},
        seconds=round(sum(row["seconds"] for row in rows), 1),
        cpu_seconds=round(_cpu_seconds(), 1),
        resumed=resumed,
        epochs=rows[-1]["epoch"],
        file=None if reason else cell.network.name,
        bytes=None if reason else cell.network.stat().st_size,
        not_exported=reason,
        host=machine(),
        versions=versions(),
        revision=revision(),
    )
    cell.finish(outcome, describe_layers(restore(recipe, cell.run)))


def _export(cell: CellDirectory) -> str | None:
    """Export, and return why that cannot be, if so: a full-precision baseline has no binary weights."""
    try:
        export_run(cell.run, cell.network)
    except InputError as error:
        return str(error)
    return None


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@torch.no_grad()
def describe_layers(model: nn.Module) -> dict[str, Layer]:
    """Return each binary layer by its name."""
    seen: set[int] = set()
    return {name: _describe(layer, seen) for name, layer in binary_layers(model).items()}


def _describe(layer: BinaryLayer, seen: set[int]) -> Layer:
    W: Tensor = layer.latent()
    alpha = layer.alpha().float()
    reach = min(_REACH, float(W.abs().max()))
    factors = {name: f for name, f in layer.latent.matrices().items() if f.data_ptr() not in seen}
    seen |= {factor.data_ptr() for factor in factors.values()}
    return Layer(
        alpha=_histogram(alpha, _ALPHA_BINS),
        weight=_histogram(W, _WEIGHT_BINS, reach),
        std=_short(float(W.std(correction=0))),
        outside=_short(float((W.abs() > 1).float().mean())),
        spectra={name: _spectrum(factor) for name, factor in factors.items()},
        negative=_short(float((alpha < 0).float().mean())),
        magnitude=_short(float(alpha.abs().mean())),
        analytic=_short(float(W.abs().mean())),
    )


def _histogram(values: Tensor, bins: int, reach: float | None = None) -> Histogram:
    within = None if reach is None else (-reach, reach)
    counts, edges = torch.histogram(values.cpu().flatten(), bins, range=within)
    return Histogram(
        [_short(edge) for edge in edges.tolist()],
        [int(n) for n in counts],
        0 if reach is None else int((-reach > values).sum()),
        0 if reach is None else int((reach < values).sum()),
    )


def _spectrum(factor: Tensor) -> list[float]:
    values: Tensor = torch.linalg.svdvals(factor.double())
    kept = torch.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().long()
    return [_short(value) for value in values[kept].tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
