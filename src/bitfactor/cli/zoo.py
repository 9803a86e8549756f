"""`bitfactor zoo` and `bitfactor zoo NAME`: needs no torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_table
from bitfactor.zoo import Card, file_of, names


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
        _print_card(options.name, as_json=options.json)
        return
    cards = {name: Card.of(name) for name in names()}
    if options.json:
        print_json([{"name": name, **asdict(card)} for name, card in cards.items()])
        return
    rows = [
        (
            name,
            _accuracy(card),
            f"{card.bytes:,}",
            f"{card.speed.ratio:.1f} x {card.speed.against}",
            card.description,
        )
        for name, card in cards.items()
    ]
    print_table(("network", "test set", "bytes", "speed", "what it is"), rows)


def _accuracy(card: Card) -> str:
    return f"{card.metric.replace('/', ' ')} {card.accuracy:.2%}"


def _print_card(name: str, *, as_json: bool) -> None:
    path, card = file_of(name), Card.of(name)
    if as_json:
        print_json({"name": name, "file": str(path), **asdict(card)})
        return
    lines = {
        "network": f"{name}: {card.description}",
        "file": f"{path}, {card.bytes:,} bytes",
        "sha256": card.sha256,
        "accuracy": f"{_accuracy(card)} on {card.held_out}",
        "speed": f"{card.speed.ratio:.1f} times {card.speed.against}, one thread, on {card.speed.machine}",
        "data": card.data,
        "licence": card.licence,
        "command": card.command,
        "versions": ", ".join(f"{part} {version}" for part, version in card.versions.items()),
        "epochs": f"{len(card.log)}, loss {card.log[0]['loss']:.3f} to {card.log[-1]['loss']:.3f}",
    }
    for label, text in lines.items():
        print(f"{label:9} {text}")
