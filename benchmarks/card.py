"""Measure what a network of the zoo claims, and write its file and card.

    python benchmarks/card.py RUN --name digits --data-name TEXT --licence TEXT --test-set TEXT [--data DIR]

The run is exported; accuracy is that of the file, speed is the ratio to torch from one interleaved run.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

import bitfactor
from bitfactor.common.files import replacing
from bitfactor.recipes import recipe_named, recipe_of
from bitfactor.recipes.runs import export_run
from bitfactor.runtime import zoo
from bitfactor.training import Recipe, Run
from bitfactor.training.run import versions


@dataclass(frozen=True)
class Arguments:
    """Write NAME.safetensors and NAME.json into the zoo."""

    run: tyro.conf.Positional[Path]
    """Directory of the run."""
    name: str
    """Name of the network."""
    data_name: str
    """What it was trained on."""
    licence: str
    """Terms of the data."""
    test_set: str
    """What it was measured on."""
    metric: str = "accuracy"
    """What of the JSON of `bitfactor evaluate`; keys with / between."""
    data: Path | None = None
    """Directory of the data."""
    comparison: str = ""
    """How other latents do at equal tuning."""
    description: str = ""
    """What it is; what the recipe says if left out."""
    earlier: Path | None = None
    """Directory of the run that it started from."""


def flags_of(recipe: Recipe) -> list[str]:
    """Return the flags that make the recipe of its name this one."""
    settings, usual = recipe.settings(), recipe_named(recipe.name).settings()
    flags = []
    for group in ("model", "data", "binarization", "optimization"):
        for name, value in settings[group].items():
            if value != usual[group][name]:
                words = value if isinstance(value, list | tuple) else [] if value is True else [value]
                flags += [f"--{name.replace('_', '-')}", *map(str, words)]
    return flags


def command_of(run: Run, data: bool, out: str, start: str = "") -> str:
    """Return the command that trains a run, from the run in the directory `start` if that is given."""
    recipe = recipe_of(run)
    others = [*["--from", start] * bool(start), *["--data", "DIR"] * data, "--out", out]
    return " ".join(["bitfactor train", recipe.name, *flags_of(recipe), *others])


def measured(value: Any, metric: str) -> float:
    """Return what is at the keys of `metric`."""
    for key in metric.split("/"):
        value = value[key]
    return float(value)


def speed_of(file: Path) -> zoo.Speed:
    """Time the file against torch in float32."""
    found = bitfactor.bench(file, against=("torch",))
    ours, *others = found.engines
    other = next(engine for engine in others if "float32" in engine["name"])
    return zoo.Speed(other["name"], round(other["minimum_ms"] / ours["minimum_ms"], 2), found.machine)


def write_card(options: Arguments) -> zoo.Card:
    """Export, measure, write; returns the card."""
    run, data = Run(options.run), options.data is not None
    recipe, folder = recipe_of(run), Path(zoo.__file__).parent
    earlier = options.earlier and Run(options.earlier)
    commands = [command_of(earlier, data, "EARLIER")] if earlier else []
    commands.append(command_of(run, data, "RUN", "EARLIER" if earlier else ""))
    file = folder / f"{options.name}.safetensors"
    export_run(run, file)
    card = zoo.Card(
        name=options.name,
        description=options.description or recipe.description,
        data=options.data_name,
        licence=options.licence,
        test_set=options.test_set,
        metric=options.metric,
        accuracy=measured(bitfactor.evaluate(file, data=options.data).to_dict(), options.metric),
        bytes=file.stat().st_size,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        speed=speed_of(file),
        command=" && ".join(commands),
        seed=recipe.optimization.seed,
        versions=versions(),
        log=[*(earlier.history() if earlier else []), *run.history()],
        comparison=options.comparison,
    )
    with replacing(folder / f"{options.name}.json") as temporary:
        temporary.write_text(json.dumps(asdict(card), indent=1) + "\n")
    return card


if __name__ == "__main__":
    print(json.dumps(asdict(write_card(tyro.cli(Arguments))), indent=2))
