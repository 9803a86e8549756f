"""A text with tables and figures, before it is decided how it looks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Table:
    """Rows under a head, the columns `words` to the left; `groups` are (title, columns) above the head.

    A group with an empty title has none; nor has a table with an empty `head` one.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    words: Collection[int] = (0,)


def facts(named: Sequence[tuple[str, str]]) -> Table:
    """Return names and values as a table without a head."""
    return Table((), named, words=(0, 1))


@dataclass(frozen=True)
class Figure:
    """An image with its caption; `name` is that of its file, without an ending.

    Small ones stand side by side.
    """

    name: str
    image: bytes
    caption: str = ""
    kind: Literal["svg", "jpg"] = "svg"
    small: bool = False


@dataclass(frozen=True)
class Chapter:
    """A heading, paragraphs, tables, figures, and commands with a name each."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    commands: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Document:
    """A title, the finding in sentences, facts by name, and chapters.

    Example
    -------
    >>> write_html(Document("A run", ["98 % are right."], [("epochs", "3")], []), Path("run.html"))
    """

    title: str
    finding: Sequence[str]
    facts: Sequence[tuple[str, str]]
    chapters: Sequence[Chapter]
