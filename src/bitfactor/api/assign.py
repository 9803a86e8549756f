"""Which layers of a network to turn binary: what one bit costs in loss, and what it saves in time, here."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.api.bench import interleaved
from bitfactor.binarization import binarize_
from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.machine import cpu_name
from bitfactor.common.result import Result, text_table
from bitfactor.exporter import export
from bitfactor.nn.model import copied
from bitfactor.runtime import Precision, Session

Batches = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LayerCost:
    """`added_loss` is what one bit adds where this layer alone is binary, `saved_ms` what it saves there."""

    name: str
    added_loss: float
    saved_ms: float


@dataclass(frozen=True)
class Mix:
    """A network some of whose layers are binary; `keep_real` names the others, for `binarize_`.

    `loss` is that before training, `milliseconds` the least for one sample, `bytes` those of the file.
    """

    binary: tuple[str, ...]
    keep_real: tuple[str, ...]
    loss: float
    milliseconds: float
    bytes: int


@dataclass(frozen=True)
class Assignment(Result):
    """What `assign` found: the layers in the order in which they turn binary, and networks on that way."""

    layers: tuple[LayerCost, ...]
    mixes: tuple[Mix, ...]
    machine: str
    precision: str

    @property
    def front(self) -> tuple[Mix, ...]:
        """The networks that no other one beats in loss and in time."""
        return tuple(
            one
            for one in self.mixes
            if not any(
                (other.loss, other.milliseconds) != (one.loss, one.milliseconds)
                and other.loss <= one.loss
                and other.milliseconds <= one.milliseconds
                for other in self.mixes
            )
        )

    def __str__(self) -> str:
        head = ["layer", "added loss", "saved ms"]
        layers = [[one.name, f"{one.added_loss:+.4f}", f"{one.saved_ms:+.4f}"] for one in self.layers]
        front = self.front
        mixes = [
            [
                str(len(one.binary)),
                f"{one.loss:.4f}",
                f"{one.milliseconds:.4f}",
                f"{one.bytes:,}",
                "yes" if one in front else "no",
            ]
            for one in self.mixes
        ]
        of_layers = text_table(head, layers, right={1, 2})
        of_mixes = text_table(
            ["binary layers", "loss", "ms", "bytes", "on the front"], mixes, right={0, 1, 2, 3}
        )
        other = "float32" if self.precision == "highest" else f"precision {self.precision}"
        return (
            f"{of_layers}\n\n{of_mixes}\n{self.machine}, other layers in {other}; losses are before training"
        )


@checked
def assign(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    precision: Precision = "low",
    most_mixes: int = 8,
    runs: int = 100,
    threads: int = 1,
    isa: str | None = None,
) -> Assignment:
    """Say which layers of a trained full-precision network to turn binary on this machine.

    Each layer turns binary alone, on a copy with a free weight; BatchNorm takes the statistics of `batches`
    again. Those with the least loss for the time that they save turn first; those that save none come last.
    On that way networks of more and more binary layers are exported and timed.

    Parameters
    ----------
    batches
        Inputs (N, ...) and targets, of training images: some hundred tell layers apart.
    loss
        Of outputs and targets, a mean over the batch.
    precision
        Of the layers that stay real, see `Session`.
    most_mixes
        How many networks are timed, two or more: none of its layers binary, all of them, and between.
    runs, threads, isa
        Timed runs of each, and how `Session` runs them.

    Raises
    ------
    InputError
        If no layer can turn binary, there are no batches, or the model or the loss does not take them. If the
        network cannot be exported.

    Example
    -------
    >>> found = bitfactor.assign(model, [(images, labels)])
    >>> bitfactor.binarize_(model, latent="none", keep_real=found.front[1].keep_real)
    """
    given = list(batches)
    expect_that(len(given) > 0, "batches", expected="one or more", found="none")
    samples = len(given[0][0])
    expect_that(samples >= 2, "batches", expected="two samples or more in the first", found=samples)
    expect_that(runs >= 1, "runs", expected="1 or more", found=runs)
    expect_that(most_mixes >= 2, "most_mixes", expected="2 or more", found=str(most_mixes))
    plan = binarize_(model, latent="none", example=given[0][0][:2], dry_run=True)
    names = [layer.name for layer in plan.binary]
    mixed = partial(_mixed, model, names, given)
    least = _first_loss(mixed([]), given, loss)
    added = {name: _loss(mixed([name]), given, loss) - least for name in names}
    with TemporaryDirectory() as folder:
        timed = partial(_session, given[0][0], Path(folder), precision, threads, isa)
        spent = [_spent(timed(mixed(some))[0], names, runs) for some in ([], names)]
        saved = {name: spent[0][name] - spent[1][name] for name in names}
        order = sorted(names, key=lambda name: _worth(added[name], saved[name]))
        counts = np.unique(np.linspace(0, len(order), most_mixes).round().astype(int)).tolist()
        chosen = [order[:count] for count in counts]
        models = [mixed(binary) for binary in chosen]
        sessions = [timed(one) for one in models]
        x = given[0][0][:1].detach().numpy()
        turns = {str(i): partial(session, x) for i, (session, _) in enumerate(sessions)}
        mixes = []
        rows = zip(chosen, models, sessions, interleaved(turns, runs), strict=True)
        for binary, one, (_, size), times in rows:
            keep = tuple(name for name in names if name not in binary)
            mixes.append(Mix(tuple(binary), keep, _loss(one, given, loss), times["minimum_ms"], size))
    layers = tuple(LayerCost(name, added[name], saved[name]) for name in order)
    return Assignment(layers, tuple(mixes), cpu_name(), precision)


def _worth(added: float, saved: float) -> tuple[bool, float]:
    return saved <= 0, max(added, 0.0) / saved if saved > 0 else -saved


def _mixed(model: nn.Module, names: Sequence[str], batches: Batches, binary: Sequence[str]) -> nn.Module:
    """Return a copy with these layers binary, whose statistics are those of the batches."""
    mixed = copied(model).cpu().eval()
    if binary:
        keep = [name for name in names if name not in binary]
        binarize_(mixed, latent="none", scale="analytic", keep_real=keep, example=batches[0][0][:2])
        _follow(mixed, [x for x, _ in batches])
    return mixed.eval()


@torch.no_grad()
def _follow(model: nn.Module, inputs: Sequence[Tensor]) -> None:
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.train()
    for x in inputs:
        with suppress(ValueError) if len(x) == 1 else nullcontext():  # which a BatchNorm of features refuses
            model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


@torch.no_grad()
def _loss(model: nn.Module, batches: Batches, loss: Callable[[Tensor, Tensor], Tensor]) -> float:
    total = sum(float(loss(model(x), target)) * len(x) for x, target in batches)
    return total / sum(len(x) for x, _ in batches)


def _first_loss(model: nn.Module, batches: Batches, loss: Callable[[Tensor, Tensor], Tensor]) -> float:
    try:
        return _loss(model, batches, loss)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise InputError(
            "batches",
            expected="inputs for the model, and targets for the loss of its outputs",
            found=f"{type(error).__name__}: {error}",
            fix="change them, or pass the loss that takes them",
        ) from error


def _session(
    x: Tensor, folder: Path, precision: Precision, threads: int, isa: str | None, model: nn.Module
) -> tuple[Session, int]:
    """Return a network as it runs, and the bytes of its file."""
    path = folder / "net.safetensors"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* has no input_spec")  # nobody keeps this file
        export(model, path, x[:2], calibration=x, binary=False, overwrite=True)
    return Session(path, precision=precision, threads=threads, isa=isa), path.stat().st_size


def _spent(session: Session, names: Sequence[str], runs: int) -> dict[str, float]:
    """Return the milliseconds of the kernels that each of the layers is in."""
    profile = session.profile(runs=runs)
    return {name: 1e3 * sum(one.minimum for one in profile.layers if name in one.names) for name in names}
