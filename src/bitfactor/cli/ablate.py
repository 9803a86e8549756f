"""`bitfactor ablate RECIPE --out DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bitfactor.api.ablate import LATENTS, SCALES, expect_apart, grid_of, rates_of
from bitfactor.binarization.binarization import ScaleName
from bitfactor.cli import train
from bitfactor.cli.arguments import parse_known
from bitfactor.cli.flags import expect_known, flags_of, is_flag
from bitfactor.cli.output import print_result
from bitfactor.cli.recipe_argument import flags_for, split_recipe
from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run
from bitfactor.recipes.own import from_words
from bitfactor.study import Grid, Value
from bitfactor.study.jobs import Launcher, launch
from bitfactor.study.run import StudyPlan, begin_study, run_study, try_study
from bitfactor.training import Recipe

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


@dataclass(frozen=True)
class Arguments:
    """Train a recipe for every combination of latent, scale, seed and what else varies.

    All flags of `bitfactor train RECIPE` hold for each training. The same command resumes an interrupted
    study, with more values or seeds it adds to it, and several at once share its trainings.
    """

    out: Path
    """Directory of the study."""
    data: Path | None = None
    """Directory of the data, for recipes that need one."""
    latent: tuple[str, ...] = LATENTS
    """Latents to compare."""
    scale: tuple[ScaleName, ...] = SCALES
    """Scales to compare."""
    seeds: int = 2
    """Trainings of each combination: seeds 0, 1, ..."""
    learning_rate: tuple[float, ...] = ()
    """Learning rates to compare; the recipe's own if left out."""
    rates_from: Path | None = None
    """Another study, over --learning-rate: train each row at the rate that was best for it there."""
    vary: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FLAG VALUE...")
    ] = ()
    """Another flag of the recipe, without its dashes, and the values to compare: one word each, or quoted;
    `on` and `off` for a flag without a value."""
    real: bool = False
    """Train the full-precision baseline too, once for each seed."""
    jobs: int | None = None
    """Trainings at a time on the CPU; as many as there are cores, with one thread each, if left out."""
    devices: tuple[str, ...] = ()
    """Where to train, one at a time on each: cuda:0 cuda:1, or on both, cuda:0+cuda:1; all if left out."""
    halving: bool = False
    """In a search (--holdout validation): give up what is not among the best third of its row after 1/9 and
    1/3 of the epochs. Without it, the same command trains those to their end too."""
    launcher: Launcher | None = None
    """Train in jobs that go on by themselves: processes of this machine, or jobs of slurm."""
    tasks: int = 1
    """Jobs of the launcher, which share the trainings."""
    launcher_option: Annotated[
        tuple[tuple[str, str], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME VALUE")
    ] = ()
    """An option of the launcher by submitit's name, of sbatch say: partition gpu, time 600 (minutes)."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of finished trainings; the exported networks are kept in any case."""
    dry_run: bool = False
    """Time a few steps of each row here, say how long the study would take, and write nothing."""
    json: bool = False
    """Print the outcomes as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Train what is not trained yet, showing a table, and print the outcomes; 1 if a training failed."""
    recipe, rest = split_recipe("ablate", arguments)
    options, others = parse_known(Arguments, f"ablate {recipe.name}", rest)
    _, usual = flags_for(recipe, train.Arguments(Path()))
    expect_known(f"ablate {recipe.name}", rest, [*flags_of(Arguments), *flags_of(type(usual), usual)])
    given, grid = _words(others), _grid(options, recipe)
    expect_apart(given, grid)
    fixed = {name: _value(recipe, name, found) for name, found in sorted(given.items())}

    rates = rates_of(options.rates_from, grid)
    study = StudyPlan(
        recipe,
        fixed,
        grid,
        rates,
        options.data,
        options.jobs,
        options.devices,
        options.halving,
        options.keep_checkpoints,
    )
    if not any(word.partition("=")[0] == "--launcher" for word in arguments):
        _expect_no_job(options)
    if options.dry_run and options.launcher is not None:
        raise InputError(
            "--dry-run",
            expected="no --launcher, as it times steps here",
            found=options.launcher,
            fix="call it where the jobs are to run",
        )
    if options.dry_run:
        print_result(try_study(study, options.out), as_json=options.json)
        return 0
    if options.launcher is not None:
        begin_study(study, options.out)
        imports = [word for file in files_run() for word in ("--import", file)]
        words = [*imports, "ablate", *arguments, "--launcher", "None"]
        folder = options.out / options.launcher
        jobs = launch(words, options.launcher, options.tasks, dict(options.launcher_option), folder)
        print_result(jobs, as_json=options.json)
        return 0
    outcome = run_study(study, options.out)
    print_result(outcome, as_json=options.json)
    if outcome.interrupted:
        return _TERMINATED
    return 1 if outcome.failed else 0


def _expect_no_job(options: Arguments) -> None:
    for name in ("tasks", "launcher_option"):
        value = getattr(options, name)
        if value != getattr(Arguments, name):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                flag, expected="a --launcher", found="none", fix=f"name one, or leave {flag} out"
            )


def _grid(options: Arguments, recipe: Recipe) -> Grid:
    vary = {}
    for words in options.vary:
        flag, *values = words or ("vary",)
        name = flag.lstrip("-").replace("-", "_")
        if name in vary:
            raise InputError(
                "--vary", expected="each flag once", found=f"{flag} twice", fix="join their values"
            )
        vary[name] = values
    expect_apart((), Grid(dict.fromkeys(vary, ()), ()))
    return grid_of(
        options.latent,
        options.scale,
        options.learning_rate,
        {name: [_value(recipe, name, [word]) for word in words] for name, words in vary.items()},
        seeds=options.seeds,
        real=options.real,
        jobs=options.jobs,
    )


def _words(flags: Sequence[str]) -> dict[str, list[str]]:
    """Return the words after each flag, by option; of two flags the last one holds."""
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for word in flags:
        if is_flag(word):
            name, equals, value = word[2:].partition("=")
            option = name.replace("-", "_").removeprefix("no_")
            off = ["off"] if option != name.replace("-", "_") else []
            words = found[option] = [value] if equals else off
        else:
            words.append(word)
    return found


def _value(recipe: Recipe, name: str, words: Sequence[str]) -> Value:
    """Return the value that words after a flag stand for; without words it is on."""
    value: Value = from_words(recipe, name, [part for word in words for part in word.split()] or ["on"])
    return value
