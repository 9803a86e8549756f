"""What every command prints with: tables for people, JSON for programs, progress on stderr."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table


class Printable(Protocol):
    """What a library function returns."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        ...


status = Console(stderr=True, highlight=False)


class _Output(Console):
    """Stdout. A reader that has gone is an error, as it is for `print`, and not the end of the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_json(value: Any) -> None:
    """Print `value` as JSON on stdout."""
    print(json.dumps(value, indent=2))


def print_result(result: Printable, *, as_json: bool) -> None:
    """Print what a library function returned: for people, or as JSON."""
    if as_json:
        print_json(result.to_dict())
    else:
        print(result)


def call_and_print(function: Callable[..., Printable], options: Any) -> None:
    """Call a library function with a command's options, which are its arguments, and print the result."""
    values = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "json"}
    print_result(function(**values), as_json=options.json)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table on stdout, its first column to the left and the others to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _Output(highlight=False).print(table)
