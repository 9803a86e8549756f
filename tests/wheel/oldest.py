"""Constraints for the oldest versions that pyproject.toml allows, but for torch: `make test-oldest`.

python tests/wheel/oldest.py > constraints.txt
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("cli", "pose", "search", "shards", "onnx", "train", "hub")
NEWEST = ("torch",)  # whose own oldest version wants other ones of the rest


def constraints() -> Iterator[str]:
    """Yield NAME==OLDEST.* for each dependency, without those of development."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])):
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
        if found and found[1] not in NEWEST:
            yield f"{found[1]}=={found[2]}.*"


if __name__ == "__main__":
    print("\n".join(sorted({*constraints()})))
