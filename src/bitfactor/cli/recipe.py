"""Commands whose flags depend on a recipe, or on a network of the user's own; all need torch.

The recipe's name comes before the flags, because it decides which there are and their defaults.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from torch import distributed, nn

from bitfactor.api import ablate as study_api
from bitfactor.api import check as check_api
from bitfactor.api import train as train_api
from bitfactor.binarization import Binarization, Summary, binarize_
from bitfactor.binarization import summary as summary_of
from bitfactor.cli import COMMANDS, TERMINATED
from bitfactor.cli.flags import (
    Flag,
    chosen,
    expect_joined,
    expect_known,
    flags_of,
    given,
    options_of,
    parse,
    parse_known,
    print_result,
    run,
)
from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run
from bitfactor.nn.model import Example
from bitfactor.recipes import RECIPES, recipe_named
from bitfactor.recipes.own import OwnModel, is_spec, own_example, with_options, with_own_model
from bitfactor.study.jobs import Launched, Launcher, launch
from bitfactor.study.run import StudyPlan, begin_study, run_study, try_study
from bitfactor.training import Recipe, TerminatedError, build, is_first


@dataclass(frozen=True)
class OwnNetwork:
    """The network and its input."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FILE.py:NAME")]]
    """A class or function without required arguments, or a module."""
    input: tuple[int, ...] = (3, 224, 224)
    """Shape of one input, such as 3 224 224."""
    example: Annotated[str, tyro.conf.arg(metavar="FILE.py:NAME")] = ""
    """What to call it with instead, for several inputs or integers. It is a batch, a tuple, a dict by name,
    or a function that returns one of them."""

    def __post_init__(self) -> None:
        if not self.input or min(self.input) < 1:
            found = " ".join(map(str, self.input)) or "none"
            raise InputError("--input", expected="sizes of 1 or more", found=found, fix="as in 3 224 224")

    def built(self) -> nn.Module:
        """Build the network."""
        return OwnModel.at(self.model)()

    def batch(self) -> Example:
        """Return the example, or two inputs of noise, (2, *input), the same each time."""
        if self.example:
            return own_example(self.example)
        return torch.randn(2, *self.input, generator=torch.Generator().manual_seed(0))


def check(network: OwnNetwork, binarization: Binarization) -> check_api.Check:
    """Say what of a network turns binary, what stays as it is and why, and whether it runs from a file."""
    model, example = network.built(), network.batch()
    found: check_api.Check = check_api.check(model, example, **asdict(binarization))
    return found


def summary(words: Sequence[str]) -> int:
    """Print the layer table of a recipe, or of a network of the user's own."""
    if words and is_spec(words[0]):
        return run(_own_summary, "summary", words)
    asked = Asked.of("summary", _recipe_summary, words)
    recipe = with_options(asked.recipe, asked.options)
    print_result(summary_of(build(recipe), (1, *recipe.input_shape)), as_json=asked.json)
    return 0


def _recipe_summary() -> None:
    """Show a recipe's layers: binary or full precision, operations by bit width, bytes."""


def _own_summary(network: OwnNetwork, binarization: Binarization) -> Summary:
    """Show a network's layers: binary or full precision, operations by bit width, bytes."""
    model, example = network.built(), network.batch()
    own = example if network.example else None
    binarize_(model, binarization, example=own)
    return summary_of(model, (1, *network.input) if own is None else own)


def train(words: Sequence[str]) -> int:
    """Train, showing progress on stderr, and print the outcome; status 143 where SIGTERM ended it."""
    asked = Asked.of("train", train_api.train, words)
    try:
        outcome = train_api.train(asked.recipe, **asked.arguments, **asked.options)
        if is_first():
            print_result(outcome, as_json=asked.json)
        return 0
    except TerminatedError as stop:
        if is_first():
            Console(stderr=True, highlight=False).print(str(stop), soft_wrap=True)
        return TERMINATED
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


@dataclass(frozen=True)
class Launch:
    """Whether the study is trained by jobs that go on by themselves."""

    launcher: Launcher | None = None
    """Train in jobs that go on by themselves: processes of this machine, or jobs of slurm."""
    tasks: int = 1
    """Jobs of the launcher, which share the trainings."""
    launcher_option: Annotated[
        tuple[tuple[str, str], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME VALUE")
    ] = ()
    """An option of the launcher by submitit's name, of sbatch say: partition gpu, time 600 (minutes)."""


def ablate(words: Sequence[str]) -> int:
    """Train what is not trained yet, showing a table, and print the outcomes; 1 if a training failed."""
    recipe, rest = split_recipe("ablate", words)
    command = f"ablate {recipe.name}"
    kind = _study_flags()
    options, others = parse_known(kind, command, rest)
    expect_known(command, rest, [*flags_of(kind), *flags_of(flags_for(recipe, train_api.train))])
    expect_joined(rest, [*flags_of(kind)])
    if not any(word.partition("=")[0] == "--launcher" for word in words):
        _expect_no_job(options.launch)
    if options.dry_run and options.launch.launcher is not None:
        raise InputError(
            "--dry-run",
            expected="no --launcher, as it times steps here",
            found=options.launch.launcher,
            fix="call it where the jobs are to run",
        )
    study = _planned(recipe, command, options, others)
    if options.dry_run:
        result: Any = try_study(study, options.out)
    elif options.launch.launcher is not None:
        begin_study(study, options.out)
        result = _launched(options.launch, options.out, words)
    else:
        result = run_study(study, options.out)
    print_result(result, as_json=options.json)
    if getattr(result, "interrupted", False):
        return TERMINATED
    return int(bool(getattr(result, "failed", ())))


def _study_flags() -> Any:
    return _joined(options_of(study_api.ablate, _OF_RECIPES), {"launch": Launch()})


def _planned(recipe: Recipe, command: str, options: Any, words: Sequence[str]) -> StudyPlan:
    """Return the study that the flags and the other words ask for."""
    kind = flags_for(recipe, _recipe_summary)
    varied: dict[str, list[str]] = {}
    for flag, *values in options.vary:
        name = flag.lstrip("-").replace("-", "_")
        if name in varied:
            found = f"{flag} twice"
            raise InputError("--vary", expected="each flag once", found=found, fix="join their values")
        turned_off = name.startswith("no_") and {*values} <= {"on", "off"}
        fix = f"--vary {flag.lstrip('-').removeprefix('no-')} on off"
        expect_that(not turned_off, "--vary", expected="an option without no-", found=flag, fix=fix)
        varied[name] = values
    names = [name[2:].replace("-", "_") for name in given(words, list(flags_of(kind)))]
    study_api.expect_apart(names, [*varied, *(["learning_rate"] if options.learning_rate else [])])
    grid = study_api.grid_of(
        options.latent,
        options.scale,
        options.learning_rate,
        {
            name: [_options(kind, command, _as_flag(name, value))[name] for value in values]
            for name, values in varied.items()
        },
        seeds=options.seeds,
        real=options.real,
        jobs=options.jobs,
    )
    fixed = dict(sorted(_options(kind, command, words).items()))
    return StudyPlan(
        recipe,
        fixed,
        grid,
        choices=study_api.choices_of(options.rates_from, grid, fixed),
        data=options.data,
        jobs=options.jobs,
        devices=options.devices,
        halving=options.halving,
        keep_checkpoints=options.keep_checkpoints,
    )


def _as_flag(name: str, value: str) -> list[str]:
    flag = name.replace("_", "-")
    if value in ("on", "off"):
        return [f"--{flag}" if value == "on" else f"--no-{flag}"]
    return [f"--{flag}", *value.split()]


def _launched(asked: Launch, out: Path, words: Sequence[str]) -> Launched:
    assert asked.launcher is not None
    imports = [word for file in files_run() for word in ("--import", file)]
    again = [*imports, "ablate", *words, "--launcher", "None"]
    return launch(again, asked.launcher, asked.tasks, dict(asked.launcher_option), out / asked.launcher)


def _expect_no_job(asked: Launch) -> None:
    for one in fields(asked):
        if getattr(asked, one.name) != one.default:
            flag = f"--{one.name.replace('_', '-')}"
            fix = f"name one, or leave {flag} out"
            raise InputError(flag, expected="a --launcher", found="none", fix=fix)


_OF_RECIPES = ("recipe", "model")  # what the words before the flags say


@dataclass(frozen=True)
class Asked:
    """A recipe, arguments of a function about it, and other values for some of the recipe's options."""

    recipe: Recipe
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    json: bool

    @classmethod
    def of(cls, command: str, function: Callable[..., Any], words: Sequence[str]) -> "Asked":
        """Read a recipe's name and flags, beside those of a function."""
        recipe, rest = split_recipe(command, words)
        kind, name = flags_for(recipe, function), f"{command} {recipe.name}"
        found = parse(kind, name, rest)
        own = chosen(found, options_of(function, _OF_RECIPES))
        return cls(recipe, own, _typed(kind, found, rest), found.json)


def flags_for(recipe: Recipe, function: Callable[..., Any]) -> Any:
    """Return the dataclass of the flags of a function about a recipe, and of what the recipe leaves open."""
    open_parts = {
        "images" if name == "data" else name: _unchecked(part)
        for name, part in recipe.parts().items()
        if is_dataclass(part) and not isinstance(part, OwnModel)
    }
    return _joined(options_of(function, _OF_RECIPES), {**open_parts, "network": OfRecipe(recipe.real)})


@dataclass(frozen=True)
class OfRecipe:
    """What the recipe's network is."""

    real: bool = False
    """Leave the network in full precision: the baseline."""
    own_model: Annotated[str | None, tyro.conf.arg(name="model", metavar="FILE.py:NAME")] = None
    """Train a network of your own in place of the recipe's: a class or function without required arguments,
    or a module. The flags of the recipe's network go; the others stay."""


def flags_of_all(command: str) -> Iterator[Flag]:
    """Yield a recipe's name, and the flags that the command has for any of the recipes."""
    yield Flag("recipe", Literal[(*RECIPES,)], required=True, positional=True)
    if command == "ablate":
        yield from flags_of(_study_flags())
    function = _recipe_summary if command == "summary" else train_api.train
    for name in RECIPES:
        yield from flags_of(flags_for(recipe_named(name), function))


def _joined(kind: Any, parts: Mapping[str, Any]) -> Any:
    """Return a dataclass with the flags of `kind` and those of the parts, whose values are the defaults."""
    made = [
        (name, Annotated[type(part), tyro.conf.OmitArgPrefixes], field(default=part))
        for name, part in parts.items()
    ]
    return make_dataclass(
        kind.__name__, made, bases=(kind,), frozen=True, kw_only=True, namespace={"__doc__": kind.__doc__}
    )


def _unchecked(part: Any) -> Any:
    """Return a part of a recipe that takes any values: whether they go together, the whole recipe says."""
    kind = type(part)
    loose = type(kind.__name__, (kind,), {"__post_init__": lambda self: None, "__doc__": kind.__doc__})
    return loose(**{one.name: getattr(part, one.name) for one in fields(part)})


def _options(kind: Any, command: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a recipe that words name, by name."""
    return _typed(kind, parse(kind, command, words), words)


def _typed(kind: Any, found: Any, words: Sequence[str]) -> dict[str, Any]:
    typed = {name.lstrip("-").replace("-", "_") for name in given(words, list(flags_of(kind)))}
    parts = [value for one in fields(found) if is_dataclass(value := getattr(found, one.name))]
    values = {one.name: getattr(part, one.name) for part in parts for one in fields(part)}
    if values.pop("own_model") is not None:
        raise InputError("--model", expected="one network", found="another too", fix="leave it out")
    return {name: value for name, value in values.items() if name in typed}


def split_recipe(command: str, arguments: Sequence[str]) -> tuple[Recipe, Sequence[str]]:
    """Return the recipe that the first argument names, and the other arguments."""
    if arguments and arguments[0] in ("-h", "--help", "--help-all"):
        purpose, _, example, _ = COMMANDS[command]
        print(f"usage: bitfactor {command} RECIPE [OPTIONS]\n\n{purpose[0].upper()}{purpose[1:]}.\n")
        print(f"Recipes: {', '.join(RECIPES)}\n")
        print(f"`bitfactor {command} RECIPE --help` lists the options, with the recipe's own defaults.")
        print(f"example: bitfactor {example}")
        sys.exit(0)
    if not arguments or arguments[0].startswith("-"):
        raise InputError(
            f"bitfactor {command}",
            expected=f"the name of a recipe first ({', '.join(RECIPES)})",
            found=arguments[0] if arguments else "nothing",
            fix=f"see `bitfactor {command} --help`",
        )
    return _split_model(recipe_named(arguments[0]), arguments[1:])


def _split_model(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, Sequence[str]]:
    """Return the recipe with the network of the user's own that `--model` names, and the other arguments."""
    for i, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        rest = arguments[i + 1 :]
        if flag == "--model" and (equals or rest):
            spec, *rest = [value, *rest] if equals else rest
            return with_own_model(recipe, asdict(OwnModel.at(spec))), [*arguments[:i], *rest]
    return recipe, arguments
