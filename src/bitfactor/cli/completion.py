"""Completion of commands and flags in a shell: `bitfactor completion bash`."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import shtab

from bitfactor.cli import COMMANDS, function_of
from bitfactor.cli.flags import Flag, flags_of, is_tuple, options_of
from bitfactor.common.checks import choices_in
from bitfactor.common.errors import InputError
from bitfactor.common.result import Result


@dataclass(frozen=True)
class Script(Result):
    """A script, and the shell that is to read it."""

    shell: str
    text: str

    def __str__(self) -> str:
        return self.text


def completion(shell: Literal["bash", "zsh", "tcsh"]) -> Script:
    """Print a script with which a shell completes commands, recipes, flags and their values.

    For bash, write it to ~/.local/share/bash-completion/completions/bitfactor; for zsh, to a file _bitfactor
    in a directory of $fpath.

    Parameters
    ----------
    shell
        The shell that is to read it.
    """
    parser = argparse.ArgumentParser("bitfactor")
    parsers = parser.add_subparsers()
    for name, command in COMMANDS.items():
        one = parsers.add_parser(name, help=command.purpose)
        for flag in {flag.name: flag for flag in _flags(name)}.values():
            _add(one, flag)
    return Script(shell, shtab.complete(parser, shell=shell))


def _flags(command: str) -> Iterator[Flag]:
    """Yield the flags of a command, of any recipe where it takes one; none where torch is missing."""
    try:
        function = function_of(command)
    except InputError:
        return
    if command not in ("train", "summary", "ablate"):
        yield from flags_of(options_of(function))
        return
    from bitfactor.cli.recipe import flags_of_all  # torch

    yield from flags_of_all(command)


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    """Give a parser the flag, which completes to its choices, or else to files."""
    choices = [str(choice) for choice in choices_in(flag.annotation)] or None
    if flag.takes_value:
        several = "*" if is_tuple(flag.annotation) else None
        action = parser.add_argument(flag.name, *flag.aliases, choices=choices, nargs=several)
        if choices is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    else:
        parser.add_argument(flag.name, action=argparse.BooleanOptionalAction)
