"""What is kept of a trained cell: its network, its layers, its figures."""

import resource
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.errors import InputError
from bitfactor.metrics.latents import binary_layers
from bitfactor.nn import BinaryLayer
from bitfactor.recipes import recipe_of
from bitfactor.recipes.exporting import export_run
from bitfactor.study.directory import CellDirectory, machine, revision, write_json
from bitfactor.training import Run, restore
from bitfactor.training.run import versions

_REACH, _WEIGHT_BINS, _ALPHA_BINS = 3.0, 40, 20
_VALUES = 64  # of a spectrum that are kept


@torch.no_grad()
def describe_layers(model: nn.Module) -> dict[str, Any]:
    """Return what figures 2 and 3 of the paper show, for each binary layer, as plain types.

    alpha and weight are histograms: `edges`, one more than `counts`. That of the weight before its sign goes
    as far as the weights do, at most from -3 to 3, with the numbers of those `below` and `above`.
    `share_outside` is the fraction of them with |W| > 1, `std` their standard deviation. `spectra` holds
    the singular values of each factor, largest first, evenly thinned out where there are many; of a factor
    that several layers share, in the first.
    """
    seen: set[int] = set()
    return {name: _describe(layer, seen) for name, layer in binary_layers(model).items()}


def _describe(layer: BinaryLayer, seen: set[int]) -> dict[str, Any]:
    W: Tensor = layer.latent()
    reach = min(_REACH, float(W.abs().max()))
    factors = {name: f for name, f in layer.latent.matrices().items() if f.data_ptr() not in seen}
    seen |= {factor.data_ptr() for factor in factors.values()}
    return {
        "alpha": _histogram(layer.alpha().float(), _ALPHA_BINS),
        "weight": {
            **_histogram(W, _WEIGHT_BINS, (-reach, reach)),
            "below": int((-reach > W).sum()),
            "above": int((reach < W).sum()),
        },
        "share_outside": _short(float((W.abs() > 1).float().mean())),
        "std": _short(float(W.std(correction=0))),
        "spectra": {name: _spectrum(factor) for name, factor in factors.items()},
    }


def _histogram(values: Tensor, bins: int, reach: tuple[float, float] | None = None) -> dict[str, list[float]]:
    counts, edges = torch.histogram(values.cpu().flatten(), bins, range=reach)
    return {"edges": [_short(edge) for edge in edges.tolist()], "counts": [int(n) for n in counts]}


def _spectrum(factor: Tensor) -> list[float]:
    values: Tensor = torch.linalg.svdvals(factor.double())
    kept = torch.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().long()
    return [_short(value) for value in values[kept].tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


_BOOKKEEPING = frozenset(("epoch", "step", "loss", "learning_rate", "flipped", "seconds"))


def finish(cell: CellDirectory, *, resumed: bool) -> None:
    """Export the network of a training that is done, and write down what came out.

    `seconds` are those of all epochs. `cpu_seconds` are this process's: where the training was `resumed`,
    what was spent before is missing from them.
    """
    recipe, rows = recipe_of(cell.run), cell.run.history()
    reason = _export(cell.run, cell.network)
    write_json(cell.path / "layers.json", describe_layers(restore(recipe, cell.run)), indent=None)
    outcome = {
        "headline": recipe.task.headline,
        "metrics": {name: value for name, value in rows[-1].items() if name not in _BOOKKEEPING},
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "cpu_seconds": round(_cpu_seconds(), 1),
        "resumed": resumed,
        "epochs": rows[-1]["epoch"],
        "file": None if reason else cell.network.name,
        "bytes": None if reason else cell.network.stat().st_size,
        "not_exported": reason,
        "host": machine(),
        "versions": versions(),
        "revision": revision(),
    }
    write_json(cell.path / "outcome.json", outcome)


def _export(run: Run, path: Path) -> str | None:
    """Export, and return why that cannot be, if so: a full-precision baseline has no binary weights."""
    try:
        export_run(run, path)
    except InputError as error:
        return str(error)
    return None


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
