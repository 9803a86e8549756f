"""`bitfactor zoo` and `bitfactor zoo NAME`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_result, print_table
from bitfactor.runtime.zoo import Card, names


@dataclass(frozen=True)
class Arguments:
    """List the trained networks that come with the package, or tell all that is known of one.

    A network's name stands for its file in `predict`, `evaluate`, `bench` and `inspect`.
    """

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """A network."""
    json: bool = False
    """Print JSON, with the log of the training."""


def main(arguments: Sequence[str]) -> None:
    """Print the list, or a card."""
    options = parse(Arguments, "zoo", arguments)
    if options.name is not None:
        print_result(Card.of(options.name), as_json=options.json)
        return
    cards = [Card.of(name) for name in names()]
    if options.json:
        print_json([card.to_dict() for card in cards])
        return
    rows = [
        (c.name, c.score, f"{c.bytes:,}", f"{c.speed.ratio:.1f} x {c.speed.against}", c.description)
        for c in cards
    ]
    print_table(("network", "test set", "bytes", "speed", "what it is"), rows)
