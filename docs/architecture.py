"""Write the rooms of the package and who imports whom into docs/architecture.md, from the code.

python docs/architecture.py
"""

import importlib
import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
_TABLE = re.compile(r"^\| room .*?\n(?=\n)", re.DOTALL | re.MULTILINE)


def rooms() -> dict[str, str]:
    """Return the rooms, as the layers of pyproject.toml have them from top to bottom, with their docstrings.

    The last layer is left out: every room uses `common`.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    *layers, _ = contracts[0]["layers"]
    names = [name.strip() for layer in layers for name in layer.split("|")]
    return {name: _purpose(name) for name in names}


def _purpose(name: str) -> str:
    sentence, *_ = re.split(r"[.:;]\s", (importlib.import_module(name).__doc__ or "").strip())
    return sentence.rstrip(".").replace('"', "'").replace("`", "")


def imports(names: set[str]) -> set[tuple[str, str]]:
    """Return (importer, imported) between rooms, without those that follow from others."""
    graph = grimp.build_graph("bitfactor")
    pairs = {
        (_room(module), _room(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    below: dict[str, set[str]] = {name: set() for name in names}
    for above, imported in pairs:
        if above != imported and {above, imported} <= names:
            below[above].add(imported)
    return {
        (above, imported)
        for above in below
        for imported in below[above]
        if not any(imported in _reached(below, other) for other in below[above])
    }


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _reached(below: dict[str, set[str]], start: str) -> set[str]:
    found, waiting = set[str](), [start]
    while waiting:
        new = below[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def table() -> str:
    """Return the table of the rooms."""
    purposes = rooms()
    below = imports(set(purposes))
    lines = ["| room | what it is | what it builds on |", "|---|---|---|"]
    for name, purpose in purposes.items():
        used = ", ".join(_short(imported) for above, imported in sorted(below) if above == name)
        lines.append(f"| `{_short(name)}` | {purpose} | {used} |")
    return "\n".join(lines) + "\n"


def _short(room: str) -> str:
    return room.removeprefix("bitfactor.")


def written() -> str:
    """Return the table that stands in the page."""
    found = _TABLE.search(PAGE.read_text())
    assert found is not None, f"no table in {PAGE}"
    return found.group()


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(), count=1))
