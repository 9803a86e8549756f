"""A plan: what trainings are to decide, written down in a TOML file before the first of them."""

import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from bitfactor.common.checks import check_fields, described, expect_one_of, expect_that
from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.files import made_directory, write_json
from bitfactor.common.result import plain
from bitfactor.recipes import RECIPES, recipe_named
from bitfactor.recipes.own import OwnModel, option_values, with_options, with_own_model
from bitfactor.study.grid import Value
from bitfactor.training import Recipe

T = TypeVar("T")
_ROW = ("latent", "scale")
_OWN = ("seed", "real", "holdout", "epochs", "steps")  # what the plan's own keys say


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How each row is trained: with so many seeds, for so many epochs or steps."""

    seeds: int
    epochs: int | None = None
    steps: int | None = None

    @property
    def length(self) -> dict[str, Value]:
        """Epochs or steps, as an option."""
        return {"steps": self.steps} if self.epochs is None else {"epochs": self.epochs}


@dataclass(frozen=True, kw_only=True)
class Search(Budget):
    """The values of each option from which each row gets its best, on validation images.

    A row that lists values of its own for one of the options searches these instead.
    """

    axes: Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a plan file says; the guide tells what each key means."""

    question: str
    recipe: str
    rows: Mapping[str, Mapping[str, Value]]
    search: Search
    test: Budget
    comparisons: tuple[tuple[str, str], ...]
    smallest_points: float
    model: str | None = None
    equal: Literal["steps", "time"] = "steps"
    options: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan; what it cannot mean is an InputError that names the file and the key."""
        try:
            stored = _tuples(tomllib.loads(path.read_text("utf-8-sig")))
        except OSError as error:
            found = error.strerror or str(error)
            raise InputError(path, expected="a plan in TOML", found=found, fix="name another file") from error
        except ValueError as error:
            found = str(error).splitlines()[0]
            raise InputError(path, expected="a plan in TOML", found=found, fix="correct it") from error
        for name, kind in {"search": Search, "test": Budget}.items():
            if name in stored:
                stored[name] = _made(kind, stored[name], f"{path}: {name}")
        plan = _made(cls, stored, str(path))
        _expect_sound(plan, path)
        return plan

    @cached_property
    def base(self) -> Recipe:
        """The recipe, with the user's own network if there is one."""
        base = recipe_named(self.recipe)
        return base if self.model is None else with_own_model(base, asdict(OwnModel.at(self.model)))

    def fixed(self, row: str) -> dict[str, Value]:
        """Return the options of a row that are not searched."""
        return {name: value for name, value in self.rows[row].items() if name not in self.search.axes}

    def searched(self, row: str) -> dict[str, tuple[Value, ...]]:
        """Return the values of each axis for a row: its own, else those of all rows."""
        own: Mapping[str, Any] = self.rows[row]
        return {name: own.get(name, values) for name, values in self.search.axes.items()}

    def meant(self, row: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of `options` that mean something to a row."""
        idle = with_options(self.base, {**self.options, **self.fixed(row)}).idle()
        return {name: value for name, value in options.items() if name not in idle}

    @property
    def sha256(self) -> str:
        """Hash of what it says, whatever comments and blanks the file has."""
        return hashlib.sha256(json.dumps(plain(self)).encode()).hexdigest()

    def begin(self, path: Path, out: Path) -> None:
        """Write the plan of the file `path` into `out`; InputError if that was begun with another one."""
        file, now = out / "plan.json", plain(self)
        if not file.exists():
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                found, fix = "something else", "choose another --out"
                raise InputError(out, expected="a new directory, or one of a plan", found=found, fix=fix)
            write_json(made_directory(out) / file.name, {"sha256": self.sha256, "plan": now})
            return
        try:
            before = json.loads(file.read_text())["plan"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            fix = "restore it, or choose another --out"
            raise InputError(file, expected="the plan of this study", found=str(error), fix=fix) from error
        for name, value in now.items():
            old, new = (json.dumps(one) for one in (before.get(name), value))
            if old != new:
                fix = "restore it, or choose another --out: a plan holds until its end"
                raise InputError(f"{path}: {name}", expected=f"{old}, as in {file}", found=new, fix=fix)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _made(kind: type[T], values: Any, where: str) -> T:
    """Return `kind` of the keys of a table; InputError if one is unknown, missing or of another type."""
    _expect_table(where, values)
    hints, known = get_type_hints(kind), {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    _expect_known(where, values, known)
    for name, one in known.items():
        if name not in values and one.default is one.default_factory is MISSING:
            raise _missing(f"{where}: {name}", described(hints[name]))
    made = kind(**values)
    check_fields(made, f"{where}: ")
    return made


def _missing(where: str, expected: str) -> InputError:
    return InputError(where, expected=expected, found="no such key", fix="add it")


def _expect_table(where: str, value: object) -> None:
    expect_that(isinstance(value, Mapping), where, expected="a table", found=repr(value))


def _expect_known(where: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            fix = near_matches(name, known)
            raise InputError(f"{where}: {name}", expected="a known key", found="none of this name", fix=fix)


def _expect_sound(plan: Plan, path: Path) -> None:
    expect_one_of(f"{path}: recipe", plan.recipe, RECIPES)
    expect_that(
        plan.smallest_points > 0, f"{path}: smallest_points", expected="above 0", found=plan.smallest_points
    )
    for name, budget, least in (("search", plan.search, 1), ("test", plan.test, 2)):
        expected, found = f"{least} or more", budget.seeds
        expect_that(budget.seeds >= least, f"{path}: {name}: seeds", expected=expected, found=found)
        found = sum(one is not None for one in (budget.epochs, budget.steps))
        expected, fix = "one of epochs and steps", "say how long trainings are"
        expect_that(found == 1, f"{path}: {name}", expected=expected, found=found or "none", fix=fix)
    _expect_pairs(plan, f"{path}: comparisons")
    homes = _homes(plan, path)
    for name, row in plan.rows.items():
        tried = [{option: value} for option, values in plan.searched(name).items() for value in values]
        of_row = {**homes, **dict.fromkeys(row, f"rows.{name}")}
        for more in (*tried, plan.search.length, plan.test.length):
            _try(plan, {**plan.options, **plan.fixed(name), **more}, path, of_row)
            _expect_warm_up(plan, name, more, path)
        for option in row:
            if option not in _ROW and option not in plan.meant(name, row):
                raise _without_effect(f"{path}: rows.{name}: {option}", [name])
    for option, home in homes.items():
        if home in ("options", "search.axes") and not any(plan.meant(row, {option: 0}) for row in plan.rows):
            raise _without_effect(f"{path}: {home}: {option}", plan.rows)


def _expect_pairs(plan: Plan, where: str) -> None:
    expect_that(bool(plan.comparisons), where, expected="pairs of rows", found="none")
    for pair in plan.comparisons:
        for name in pair:
            expect_one_of(where, name, plan.rows)
        expect_that(pair[0] != pair[1], where, expected="two rows", found=f"{pair[0]} twice")
    for ours, theirs in plan.comparisons:
        times = sum({*pair} == {ours, theirs} for pair in plan.comparisons)
        expect_that(times == 1, where, expected="each pair once", found=f"{ours}, {theirs} twice")


def _homes(plan: Plan, path: Path) -> dict[str, str]:
    """Return the table of each option of all rows; InputError if one is unknown or stands twice."""
    known = [name for name in option_values(plan.base) if name not in _OWN]
    of_all = [name for name in known if name not in _ROW]
    homes: dict[str, str] = {}
    expect_that(bool(plan.search.axes), f"{path}: search.axes", expected="options and values", found="none")
    for table, options in (("options", plan.options), ("search.axes", plan.search.axes)):
        _expect_known(f"{path}: {table}", options, of_all)
        _expect_once(f"{path}: {table}", options, homes)
        homes |= dict.fromkeys(options, table)
    for name, values in plan.search.axes.items():
        _expect_values(f"{path}: search.axes: {name}", values)
    for name, row in plan.rows.items():
        where = f"{path}: rows.{name}"
        expected = "a name of letters, digits and _ . -"
        expect_that(re.fullmatch(r"\w[\w.-]*", name) is not None, where, expected=expected, found=name)
        _expect_table(where, row)
        for key in _ROW:
            if key not in row:
                raise _missing(f"{where}: {key}", f"a {key}")
        _expect_known(where, row, known)
        _expect_once(where, plan.fixed(name), homes)
        for option in row.keys() & plan.search.axes.keys():
            _expect_values(f"{where}: {option}", row[option])
    return homes


def _expect_values(where: str, values: object) -> None:
    sound = isinstance(values, tuple) and 0 < len(values) == len({*values})
    expect_that(sound, where, expected="a list of values to search, each once", found=values)


def _expect_once(where: str, options: Collection[str], homes: Mapping[str, str]) -> None:
    for name in options:
        if name in homes:
            expected, fix = "each option in one table", "leave one out"
            raise InputError(f"{where}: {name}", expected=expected, found=f"it in {homes[name]} too", fix=fix)


def _try(plan: Plan, options: Mapping[str, Any], path: Path, homes: Mapping[str, str]) -> None:
    """Let the recipe take options; its InputError names the file and the table too."""
    try:
        with_options(plan.base, options)
    except InputError as error:
        name = str(error).partition(": expected ")[0].removeprefix("--").replace("-", "_")
        where = f"{path}: {homes[name]}: {name}" if name in homes else f"{path}: {name}"
        raise InputError(where, expected=error.expected, found=error.found, fix=error.fix) from error


def _expect_warm_up(plan: Plan, row: str, length: Mapping[str, Any], path: Path) -> None:
    """Raise InputError where a stage of so many epochs is shorter than its warm-up."""
    if "epochs" not in length:
        return
    recipe = with_options(plan.base, {**plan.options, **plan.fixed(row), **length})
    warm, first = recipe.optimization.warmup_epochs, recipe.first_stage
    for stage in (first, recipe.optimization.epochs - first):
        where, expected = f"{path}: epochs", f"{warm:g} or more in each stage, as its warm-up takes"
        fits, fix = stage <= 0 or stage >= warm, "train longer, or lower warmup_epochs"
        expect_that(fits, where, expected=expected, found=stage, fix=fix)


def _without_effect(where: str, rows: Collection[str]) -> InputError:
    expected, found = "a row that it changes something for", ", ".join(rows)
    return InputError(where, expected=expected, found=found, fix="leave it out")
