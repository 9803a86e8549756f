"""A result becomes JSON and prints itself."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitfactor.common.result import Result


@dataclass(frozen=True)
class Part:
    name: str


@dataclass(frozen=True)
class Outcome(Result):
    path: Path
    scores: np.ndarray
    parts: tuple[Part, ...]
    inner: Result | None = None

    def __str__(self):
        return f"<{self.path}>"


def test_a_result_becomes_json_and_shows_itself():
    inner = Outcome(Path("b"), np.float32([0.5]), ())
    outcome = Outcome(Path("a"), np.int64([1, 2]), (Part("x"),), inner)
    assert json.loads(outcome.to_json()) == {
        "path": "a",
        "scores": [1, 2],
        "parts": [{"name": "x"}],
        "inner": {"path": "b", "scores": [0.5], "parts": [], "inner": None},
    }
    assert outcome._repr_html_() == "<pre>&lt;a&gt;</pre>"
