"""Commands that are more than the library function of their name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bitfactor.common.result import text_table
from bitfactor.data.readers import check
from bitfactor.data.readers.check import Findings
from bitfactor.runtime.zoo import Card, names

_WORDS = ("recipe", "network", "metric", "latent", "scale", "what it is")  # columns to the left


@dataclass(frozen=True)
class Listing:
    """A table for people, and records for programs."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[Any]

    def to_dict(self) -> Sequence[Any]:
        """Return the records."""
        return self.records

    def __str__(self) -> str:
        right = frozenset(i for i, column in enumerate(self.columns) if column not in _WORDS)
        return text_table(self.columns, self.rows, right=right)


def check_data(directory: Path) -> Findings:
    """Read all of a data set and list what is wrong with it; the exit status is 1 if anything is.

    Parameters
    ----------
    directory
        Directory of CIFAR batches, of a shards.json, of class directories, or of LSP, MPII or COCO.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as progress:
        task = progress.add_task(str(directory), total=None)
        return check.check_data(
            directory, lambda done, total: progress.update(task, completed=done, total=total)
        )


def recipes() -> Listing:
    """List what can be trained."""
    from bitfactor.recipes import RECIPES  # torch

    found = [build() for build in RECIPES.values()]
    of = {r.name: ("real", "") if r.real else map(r.binarization.words, ("latent", "scale")) for r in found}
    rows = [(r.name, *of[r.name], str(r.optimization.epochs), r.description) for r in found]
    records = [{"description": recipe.description, **recipe.settings()} for recipe in found]
    return Listing(("recipe", "latent", "scale", "epochs", "what it is"), rows, records)


def zoo(name: str | None = None) -> Listing | Card:
    """List the trained networks that come with the package, or tell all that is known of one.

    A network's name stands for its file in `predict`, `evaluate`, `bench` and `inspect`.

    Parameters
    ----------
    name
        A network.
    """
    if name is not None:
        return Card.of(name)
    cards = [Card.of(one) for one in names()]
    rows = [
        (c.name, c.measure, f"{c.accuracy:.2%}", f"{c.bytes:,}", f"{c.speed.ratio:.1f}x", c.description)
        for c in cards
    ]
    head = ("network", "metric", "test set", "bytes", "against float32", "what it is")
    return Listing(head, rows, [card.to_dict() for card in cards])
