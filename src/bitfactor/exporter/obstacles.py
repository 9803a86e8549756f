"""What of a model the file cannot hold: all places at once, each with the way out."""

from collections.abc import Sequence
from dataclasses import dataclass

from bitfactor.errors import InputError


@dataclass(frozen=True)
class Obstacle:
    """A place in a model: `layer` is the path of its module, `line` the file and line of code, if known.

    What is expected and found there, and what to do, are those of `InputError`.
    """

    layer: str
    line: str
    expected: str
    found: str
    fix: str

    @property
    def where(self) -> str:
        if self.line:
            return f"{self.layer}, {self.line}" if self.layer else self.line
        return f"layer {self.layer}" if self.layer else "the model"

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}; {self.fix}"


class UnsupportedError(InputError):
    """A model that the file cannot hold; `obstacles` are all places because of which it cannot."""

    def __init__(self, model: str, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        first, *others = obstacles
        where, expected, found, fix = first.where, first.expected, first.found, first.fix
        if others:
            where, expected = model, "what the file can hold"
            found = f"{len(obstacles)} places that it cannot"
            fix = "\n".join(["change these, or pass on_unsupported='split':", *grouped(obstacles)])
        super().__init__(where, expected=expected, found=found, fix=fix)


def grouped(obstacles: Sequence[Obstacle]) -> list[str]:
    """Return a line for each kind of obstacle, with all of its places."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for one in obstacles:
        places.setdefault((one.expected, one.found, one.fix), []).append(one.where)
    return [
        f"  {'; '.join(dict.fromkeys(where))}: expected {expected}, found {found}; {fix}"
        for (expected, found, fix), where in places.items()
    ]
