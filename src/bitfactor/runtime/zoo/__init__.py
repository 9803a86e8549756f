"""Trained networks that come with the package: for each a file, NAME.safetensors, and its card, NAME.json."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.result import Result

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Speed:
    """How many times as fast as `against` it is: one image at a time, one thread, both in turns."""

    against: str
    ratio: float
    machine: str


@dataclass(frozen=True)
class Card(Result):
    """What is known of the network called `name`; prints as lines.

    `accuracy` is its `metric`, a fraction, on `test_set`, measured with the file itself. `command` trains it,
    and `log` has a row for each epoch. `comparison` tells how other latents do.

    Example
    -------
    >>> Card.of("digits").seed
    0
    """

    name: str
    description: str
    data: str
    licence: str
    test_set: str
    metric: str
    accuracy: float
    bytes: int
    sha256: str
    speed: Speed
    command: str
    seed: int
    versions: dict[str, str]
    log: list[dict[str, Any]]
    comparison: str

    @classmethod
    def of(cls, name: str) -> Self:
        """Read the card of the network called `name`.

        Raises
        ------
        InputError
            If there is none; the message lists near matches.
        """
        values = json.loads(file_of(name).with_suffix(".json").read_text())
        return cls(**{**values, "name": name, "speed": Speed(**values["speed"])})

    @property
    def measure(self) -> str:
        """Its metric, as the field writes it: accuracy, PCK@0.2."""
        name, *threshold = self.metric.split("/")[:2]
        return f"{name.upper()}@{threshold[0]}" if threshold else name

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "file": str(file_of(self.name))}

    def __str__(self) -> str:
        speed, first, last = self.speed, self.log[0]["loss"], self.log[-1]["loss"]
        minutes = sum(row["seconds"] for row in self.log) / 60
        lines = {
            "network": f"{self.name}: {self.description}",
            "file": f"{file_of(self.name)}, {self.bytes:,} bytes",
            "sha256": self.sha256,
            "accuracy": f"{self.measure} {self.accuracy:.2%} on {self.test_set}",
            "speed": f"{speed.ratio:.1f}x {speed.against}, one thread, on {speed.machine}",
            "data": self.data,
            "licence": self.licence,
            "command": self.command,
            "versions": ", ".join(f"{part} {version}" for part, version in self.versions.items()),
            "epochs": f"{len(self.log)} in {minutes:,.1f} minutes, loss {first:.3f} to {last:.3f}",
            "compared": self.comparison,
        }
        return "\n".join(f"{label:9} {text}" for label, text in lines.items())


def names() -> list[str]:
    """Return the names of all networks."""
    return sorted(path.stem for path in _FOLDER.glob("*.safetensors"))


@checked
def file_of(name: str) -> Path:
    """Return the file of the network called `name`.

    Raises
    ------
    InputError
        If there is none; the message lists near matches.
    """
    if name not in names():
        raise InputError(
            name or repr(name),
            expected="a file, a run's directory, or the name of a network of `bitfactor zoo`",
            found="neither",
            fix=near_matches(str(name), names()),
        )
    return _FOLDER / f"{name}.safetensors"


def locate(text: str | os.PathLike[str]) -> Path:
    """Return the path that a user means by `text`: one that is there, or else a network's name.

    Raises
    ------
    InputError
        If it is neither, and can be no path to a file: it has no directory and no ending.

    Example
    -------
    >>> locate("digits").name
    'digits.safetensors'
    """
    if not isinstance(text, str | os.PathLike):
        raise InputError("text", expected="a path or a name", found=repr(text), fix="pass that")
    path = Path(text)
    if text and (path.exists() or path.suffix or os.path.dirname(text)):
        return path
    return file_of(str(text))
