"""Prints what an install of the package with its commands asks for."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
print(*project["dependencies"], *project["optional-dependencies"]["cli"])
