"""A function's arguments as flags, a command line as its call, and what is wrong with the words of one.

`bitfactor freeze` calls `bitfactor.freeze`. Arguments that Python takes by place are words at their place
(`output` is -o), the others are flags. The docstring is the help.
"""

import difflib
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, make_dataclass
from io import StringIO
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bitfactor.cli import COMMANDS
from bitfactor.common.checks import choices_in, described, expect_that
from bitfactor.common.errors import InputError

T = TypeVar("T")

# What users of other tools type, and what it is called here: the first of the names that the command has.
HABITS: dict[str, tuple[str, ...]] = {
    "lr": ("learning-rate",),
    "bs": ("batch-size",),
    "batchsize": ("batch-size",),
    "batch": ("batch-size",),
    "wd": ("weight-decay",),
    "decay": ("weight-decay",),
    "num-epochs": ("epochs",),
    "n-epochs": ("epochs",),
    "dataset": ("data",),
    "data-dir": ("data",),
    "gpu": ("device",),
    "cuda": ("device",),
    "o": ("out", "output"),
    "output": ("out",),
    "output-dir": ("out", "output"),
    "out": ("output",),
    "optim": ("optimizer",),
    "method": ("latent",),
    "decomposition": ("latent",),
    "float": ("real",),
}
# What there is no flag for, and why.
WITHOUT_FLAG = {
    "resume": "the same command resumes",
    "workers": "images are loaded by as many workers as there are cores",
    "num-workers": "images are loaded by as many workers as there are cores",
    "gpu": "training uses a GPU where torch has one, exported files run on the CPU",
    "cuda": "training uses a GPU where torch has one, exported files run on the CPU",
    "device": "training uses a GPU where torch has one, exported files run on the CPU",
}


def _box(words: list[str]) -> tuple[float, ...]:
    try:
        left, top, width, height = (float(part) for part in words[0].split(","))
    except ValueError:
        left = top = width = height = math.nan
    if not all(map(math.isfinite, (left, top, width, height))) or width <= 0 or height <= 0:
        raise InputError(
            "--box",
            expected="left, top, width and height in pixels, as in 40,10,120,300",
            found=repr(words[0]),
            fix="give four values with commas between, the last two above 0",
        )
    return left, top, width, height


# Arguments whose words are not those of their type; all others are read by their annotation.
_TYPES: dict[str, Any] = {
    "box": Annotated[
        str | None,
        PrimitiveConstructorSpec[Any](
            nargs=1,
            metavar="X,Y,W,H",
            instance_from_str=_box,
            is_instance=lambda value: value is None or isinstance(value, tuple),
            str_from_instance=lambda value: [str(value)],
        ),
    ],
    "vary": Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction],
}
_FILE = {"metavar": "FILE|NAME"}
_LOOKS: dict[str, dict[str, Any]] = {
    "model": _FILE,
    "output": {"aliases": ("-o",)},
    "run": _FILE,
    "size": {"metavar": "H W"},
    "start_from": {"name": "from", "metavar": "RUN"},
    "subject": _FILE,
    "vary": {"metavar": "FLAG VALUE..."},
}
_NO_FLAG = ("progress", "on_log", "callbacks")
_HELP = ("-h", "--help", "--help-all")
# What --help shows of a command that has more flags than MANY; --help-all shows the rest.
MANY = 15
_USUAL = (
    *("out", "data", "from", "device", "dry-run", "model", "example", "input", "keep-real", "real"),
    *("latent", "scale", "seed", "seeds", "jobs", "vary", "minutes", "epochs", "batch-size", "learning-rate"),
)


def run(function: Callable[..., Any], command: str, words: Sequence[str]) -> int:
    """Call a function with the words of a command line, print what it returns, and return the exit status.

    That is 1 where the result has problems. A function of `words` reads them itself.
    """
    if [*inspect.signature(function).parameters] == ["words"]:
        return function(words) or 0
    options = parse(options_of(function), command, words)
    result = function(**chosen(options))
    print_result(result, as_json=options.json)
    return int(bool(getattr(result, "problems", ())))


def print_result(result: Any, *, as_json: bool) -> None:
    """Print what a library function returned: for people, or as JSON."""
    print(json.dumps(result.to_dict(), indent=2) if as_json else result)


def options_of(function: Callable[..., Any], leave_out: Collection[str] = ()) -> Any:
    """Return a dataclass with a field for each argument of a function that a flag stands for, and `json`."""
    text, helps = documented(function)
    made: list[Any] = []
    for name, one in inspect.signature(function).parameters.items():
        if name in leave_out or name in _NO_FLAG or one.kind is one.VAR_KEYWORD:
            continue
        kind = _TYPES.get(
            name, one.annotation if is_dataclass(one.annotation) else _flag_type(one.annotation)
        )
        by_place = one.kind is one.POSITIONAL_OR_KEYWORD and name != "output"
        settings = tyro.conf.arg(help=helps.get(name), **_LOOKS.get(name, {}))
        kind = (
            Annotated[kind, tyro.conf.OmitArgPrefixes]
            if is_dataclass(kind)
            else Annotated[kind, settings, *[tyro.conf.Positional] * by_place]
        )
        default = () if one.default is None and is_tuple(kind) else one.default
        made.append((name, kind) if default is one.empty else (name, kind, field(default=default)))
    made.append(("json", Annotated[bool, tyro.conf.arg(help="Print JSON.")], field(default=False)))
    return make_dataclass(function.__name__, made, frozen=True, kw_only=True, namespace={"__doc__": text})


def chosen(options: Any, kind: Any = None) -> dict[str, Any]:
    """Return what of the fields of `kind`, a function's arguments, is not as it is by default."""
    values = {one.name: (getattr(options, one.name), one.default) for one in fields(kind or options)}
    return {name: value for name, (value, usual) in values.items() if name != "json" and value != usual}


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a function, and of each of its parameters."""
    text, *sections = re.split(r"\n\n([A-Z]\w+)\n-+\n", inspect.getdoc(function) or "")
    parameters = dict(zip(sections[::2], sections[1::2], strict=True)).get("Parameters", "")
    entries = re.findall(r"^(\w.*)\n((?:    .*\n?|\n(?=    ))+)", parameters, re.MULTILINE)
    return text, {
        name: " ".join(inspect.cleandoc(lines).split())
        for names, lines in entries
        for name in names.split(", ")
    }


def _flag_type(annotation: Any) -> Any:
    """Return what tyro reads for an argument: a path for what may be one, tuples for sequences."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    several = [part for part in parts if get_origin(part) in (Sequence, Iterable)]
    if several:
        return tuple[_flag_type(get_args(several[0])[0]), ...]  # type: ignore[misc]
    if any(get_origin(part) is PathLike for part in parts):
        return Path | None if type(None) in parts else Path
    return annotation


def is_tuple(kind: Any) -> bool:
    """Return whether several words may follow a flag of this type."""
    plain = _unwrapped(kind)[0]
    return get_origin(plain) is tuple and get_args(plain)[-1] is Ellipsis


class _Printed(StringIO):
    """What would go to stdout, in characters that it can show."""

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"


def parse(kind: type[T], command: str, words: Sequence[str]) -> T:
    """Read the words of a command line into the dataclass `kind`; raises InputError where it cannot."""
    expect_known(command, words, list(flags_of(kind)))
    parsed, unknown = parse_known(kind, command, words)
    if unknown:
        raise InputError(
            f"bitfactor {command}",
            expected="nothing more than its arguments and flags",
            found=" ".join(unknown),
            fix=f"see `bitfactor {command} --help`",
        )
    return parsed


def parse_known(kind: type[T], command: str, words: Sequence[str]) -> tuple[T, list[str]]:
    """Read as `parse` does, and return the words of flags that `kind` does not have, too."""
    helps = any(word in _HELP for word in words)
    hidden = 0 if not helps or "--help-all" in words else _beyond_usual(kind)
    read: Any = tyro.cli
    printed = _Printed()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            parsed: tuple[T, list[str]] = read(
                _usual(kind) if hidden else kind,
                prog=f"bitfactor {command}",
                args=["--help"] if helps else list(words),
                config=(tyro.conf.FlagCreatePairsOff,) if helps else (),
                return_unknown_args=True,
            )
            return parsed
    except SystemExit as stop:
        if not stop.code:
            print(forward(printed.getvalue()), end="")
            if hidden:
                print(f"{hidden} more flags: bitfactor {command} --help-all")
            print(f"example: bitfactor {COMMANDS[command.split()[0]].example}")
            raise
        error = stop.__context__
        while error is not None and not isinstance(error, InputError):
            error = error.__context__
        raise (error or complaint(command, words, list(flags_of(kind)), printed.getvalue())) from None


def _beyond_usual(kind: Any) -> int:
    """Return how many flags help leaves out at first: none of a command that has few."""
    flags = [flag for flag in flags_of(kind) if not flag.positional]
    return 0 if len(flags) <= MANY else sum(flag.name[2:] not in _USUAL for flag in flags)


def _usual(kind: Any, default: Any = MISSING) -> Any:
    """Return the dataclass with all flags hidden but the usual ones; of `default`, an instance."""
    hints = get_type_hints(kind, include_extras=True)
    made = []
    for one in fields(kind):
        annotation, marks = _unwrapped(hints[one.name])
        value = one.default if default is MISSING else getattr(default, one.name)
        if is_dataclass(annotation):
            value = _usual(annotation, value)
            annotation, marks = (
                value if isinstance(value, type) else type(value),
                (tyro.conf.OmitArgPrefixes,),
            )
        elif not ((flag := _flag(one.name, annotation, marks, False)).positional or flag.name[2:] in _USUAL):
            marks = (*marks, tyro.conf.Suppress)
        given = {} if value is MISSING or isinstance(value, type) else {"default": value}
        made.append((one.name, Annotated[(annotation, *marks)] if marks else annotation, field(**given)))
    text = {"__doc__": (kind.__doc__ or "").partition("\n\n")[0]}
    usual = make_dataclass(kind.__name__, made, bases=(kind,), frozen=True, kw_only=True, namespace=text)
    values = {one.name: getattr(default, one.name) for one in fields(kind)} if default is not MISSING else {}
    return usual if default is MISSING else usual(**values)


_NONE = "{None}|"


def forward(text: str) -> str:
    """Return help in which a flag that is on reads forward: `--[no-]real-ends`, and not `--no-real-ends`.

    Nor does it say of a flag that may be left out that its value may be `{None}`, or is None by default.
    """
    text = re.sub(r"\(default:[\s│|]*(None)?\)", lambda m: re.sub(r"[^\s│|]", " ", m[0]), text)
    text = re.sub(r"^[│|] +[│|]\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^.*\{None\}\|\S+",
        lambda m: m[0].replace(_NONE, "") + " " * len(_NONE) * m[0].count(_NONE),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^([│| ]+)--no-([a-z-]+)( {3,})",
        lambda m: f"{m[1]}--[no-]{m[2]}{m[3][2:]}",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"(\(default:[\s│|]*)True\)", r"\1on)  ", text)
    return re.sub(r"(\(default:[\s│|]*)False\)", r"\1off)  ", text)


@dataclass(frozen=True)
class Flag:
    """A flag, `--batch-size`, or where `positional` a word at its place; `aliases` are short names."""

    name: str
    annotation: Any
    required: bool
    positional: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def takes_value(self) -> bool:
        """Whether words follow."""
        return self.annotation is not bool


def flags_of(kind: Any, default: Any = MISSING) -> Iterator[Flag]:
    """Yield the flags of a dataclass; those of its fields that are dataclasses are its own.

    `default` is an instance whose values the flags start from.
    """
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        annotation, marks = _unwrapped(hints[one.name])
        value = one.default if default is MISSING else getattr(default, one.name)
        if is_dataclass(annotation):
            yield from flags_of(annotation, value)
        elif tyro.conf.Suppress not in marks:
            yield _flag(one.name, annotation, marks, value is MISSING and one.default_factory is MISSING)


def _flag(name: str, annotation: Any, marks: Sequence[Any], required: bool) -> Flag:
    settings = [mark for mark in marks if hasattr(mark, "aliases")]
    aliases = tuple(alias for mark in settings for alias in mark.aliases or ())
    name = next((mark.name for mark in settings if mark.name), name).replace("_", "-")
    if tyro.conf.Positional in marks:
        return Flag(name, annotation, required, positional=True)
    return Flag(f"--{name}", annotation, required, aliases=aliases)


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return an annotation without what `Annotated` adds, and that; the origin of a generic dataclass."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        plain, more = _unwrapped(inner)
        return plain, (*marks, *more)
    return annotation, ()


def given(arguments: Sequence[str], flags: Sequence[Flag]) -> Mapping[str, list[str]]:
    """Return the words after each flag on a command line, under the flag's own name or as it was typed."""
    names = {name: flag.name for flag in flags for name in (flag.name, *flag.aliases)}
    names |= {flag.name.replace("--", "--no-", 1): flag.name for flag in flags if not flag.takes_value}
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for argument in arguments:
        if is_flag(argument):
            name, equals, value = argument.partition("=")
            name = name if len(name) == 2 else name.replace("_", "-")
            words = found[names.get(name, name)] = []  # of two the last one holds
            words += [value] if equals else []
        else:
            words.append(argument)
    return found


def expect_joined(arguments: Sequence[str], flags: Sequence[Flag]) -> None:
    """Raise InputError where a flag of several values stands twice, as only the last one would hold."""
    several = [flag for flag in flags if is_tuple(flag.annotation)]
    once = {flag.name for flag in several if get_origin(get_args(flag.annotation)[0]) is not tuple}
    names = [name for word in arguments if is_flag(word) for name in given([word], flags)]
    for name in once:
        found, fix = f"{names.count(name)} times", f"join the values: {name} A B"
        expect_that(names.count(name) < 2, name, expected="each flag once", found=found, fix=fix)


def is_flag(word: str) -> bool:
    """Return whether a word of a command line names a flag; a negative value does not."""
    return re.match(r"--\w|-[A-Za-z]", word) is not None


def expect_known(command: str, arguments: Sequence[str], flags: Sequence[Flag]) -> None:
    """Raise InputError where a word of the command line is a flag that the command does not have."""
    names = {flag.name for flag in flags} | {*_HELP}
    for name in given(arguments, flags):
        if name not in names:
            raise InputError(
                name,
                expected=f"a flag of `bitfactor {command}`",
                found="one that it does not have",
                fix=_hint(command, name, [*{flag.name: flag for flag in flags if not flag.positional}]),
            )


def _hint(command: str, word: str, known: Sequence[str]) -> str:
    name = word.lstrip("-")
    usual = [f"--{one}" for one in HABITS.get(name, ()) if f"--{one}" in known]
    if usual:
        return f"did you mean {usual[0]}?"
    if name in WITHOUT_FLAG:
        return WITHOUT_FLAG[name]
    close = difflib.get_close_matches(word, known, cutoff=0.7)
    if not close:
        close = [one for one in known if one.endswith(f"-{name}") or one.startswith(f"--{name}-")][:3]
    return f"did you mean {' or '.join(close)}?" if close else f"see `bitfactor {command} --help`"


def wrong_value(command: str, flag: Flag, words: Sequence[str]) -> InputError:
    """Return what to say about a flag whose words are not what it takes, or that has none."""
    choices = [str(one) for one in choices_in(flag.annotation)]
    wrong = [word for word in words if word not in choices] if choices else words
    close = difflib.get_close_matches(wrong[0], choices) if wrong else []
    hint = f"did you mean {' or '.join(close)}?" if close else f"see `bitfactor {command} --help`"
    found = repr(" ".join(wrong)) if wrong else "nothing"
    name = flag.name.upper() if flag.positional else flag.name
    return InputError(name, expected=described(flag.annotation), found=found, fix=hint)


def complaint(command: str, arguments: Sequence[str], flags: Sequence[Flag], text: str) -> InputError:
    """Return what is wrong with a command line that tyro refused with `text`, as one sentence."""
    words = given(arguments, flags)
    names = {flag.name: flag for flag in flags}
    named = re.search(r"(?<![\w-])--?[A-Za-z][\w-]*", text)
    wrong = names.get(named.group().replace("_", "-").replace("--no-", "--")) if named else None
    if wrong is not None and wrong.name in words:
        return wrong_value(command, wrong, words[wrong.name])
    choice = re.search(r"invalid choice '([^']*)'", text)
    positional = [flag for flag in flags if flag.positional and choices_in(flag.annotation)]
    if choice and positional:
        return wrong_value(command, positional[0], [choice.group(1)])
    missing = [flag for flag in flags if flag.required and (flag.positional or flag.name not in words)]
    if missing and re.match(r"\W*(Required|Missing)", text):
        return wrong_value(command, max(missing, key=lambda flag: flag.positional), [])
    plain = " ".join(re.sub(r"[│╭╮╰╯─|+-]{2,}|[│╭╮╰╯─]", " ", text).split())
    return InputError(
        f"bitfactor {command}", expected="its own flags", found=plain, fix=f"see `bitfactor {command} --help`"
    )
