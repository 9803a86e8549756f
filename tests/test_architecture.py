"""The drawing of the rooms is what the code does."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs" / "architecture.py"


def test_the_drawing_is_that_of_the_code():
    spec = importlib.util.spec_from_file_location("architecture", SCRIPT)
    architecture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(architecture)
    assert architecture.drawn() == architecture.drawing(), "run python docs/architecture.py"
