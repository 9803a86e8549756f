"""The flags that a command's dataclass stands for, and what is wrong with the words of a command line."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

from bitfactor.common.checks import choices_in, described
from bitfactor.common.errors import InputError

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

    Example
    -------
    >>> [flag.name for flag in flags_of(bench.Arguments)][:3]
    ['model', '--against', '--isa']
    """
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        annotation, marks = _unwrapped(hints[field.name])
        value = default if default is MISSING else getattr(default, field.name)
        part = type(value) if is_dataclass(value) else annotation
        if is_dataclass(part):
            yield from flags_of(part, value)
        elif tyro.conf.Suppress not in marks:
            missing = field.default is MISSING and field.default_factory is MISSING
            yield _flag(
                field.name, annotation, marks, value, missing if value is MISSING else value is tyro.MISSING
            )


def _flag(name: str, annotation: Any, marks: Sequence[Any], value: Any, required: bool) -> Flag:
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
    names |= {_off(flag.name): flag.name for flag in flags if not flag.takes_value}
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for argument in arguments:
        if is_flag(argument):
            name, equals, value = argument.partition("=")
            name = name if len(name) == 2 else name.replace("_", "-")
            words = found.setdefault(names.get(name, name), [])
            words += [value] if equals else []
        else:
            words.append(argument)
    return found


def is_flag(word: str) -> bool:
    """Return whether a word of a command line names a flag; a negative value does not.

    >>> [is_flag(word) for word in ("--lr", "-o", "-1", "-")]
    [True, True, False, False]
    """
    return re.match(r"--\w|-[A-Za-z]", word) is not None


def _off(name: str) -> str:
    return name.replace("--", "--no-", 1)


def expect_known(command: str, arguments: Sequence[str], flags: Sequence[Flag]) -> None:
    """Raise InputError where a word of the command line is a flag that the command does not have."""
    names = {flag.name for flag in flags} | {"--help", "-h"}
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
    """Return what to say about a flag whose words are not what it takes."""
    choices = [str(one) for one in choices_in(flag.annotation)]
    wrong = [word for word in words if word not in choices] if choices else words
    close = difflib.get_close_matches(wrong[0], choices) if wrong else []
    hint = f"did you mean {' or '.join(close)}?" if close else f"see `bitfactor {command} --help`"
    found = repr(" ".join(wrong)) if wrong else "nothing after it"
    name = flag.name.upper() if flag.positional else flag.name
    return InputError(name, expected=described(flag.annotation), found=found, fix=hint)


def left_out(command: str, flag: Flag) -> InputError:
    """Return what to say about a flag that has to be there."""
    name = flag.name.upper() if flag.positional else flag.name
    return InputError(
        name, expected=described(flag.annotation), found="nothing", fix=f"see `bitfactor {command} --help`"
    )


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
        return left_out(command, min(missing, key=lambda flag: flag.positional))
    plain = " ".join(re.sub(r"[│╭╮╰╯─|+-]{2,}|[│╭╮╰╯─]", " ", text).split())
    return InputError(
        f"bitfactor {command}", expected="its own flags", found=plain, fix=f"see `bitfactor {command} --help`"
    )
