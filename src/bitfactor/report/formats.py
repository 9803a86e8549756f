"""A document as HTML or as Markdown with its images beside it, a table as CSV; and prose for them."""

import base64
import csv
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bitfactor.atomic import replacing
from bitfactor.report.document import Chapter, Document, Figure, Table, facts


class Prose:
    """The texts of a template: each of its macros is one, with what it is about as arguments.

    >>> Prose("study.j2")("seeds", n=1, errors=None)
    'One seed only: there is no deviation and no interval, and differences may be chance.'
    """

    def __init__(self, template: str) -> None:
        self._template = template

    @cached_property
    def _macros(self) -> Any:
        loader = PackageLoader("bitfactor.report")
        return Environment(loader=loader, undefined=StrictUndefined).get_template(self._template).module

    def __call__(self, name: str, **about: object) -> str:
        return " ".join(getattr(self._macros, name)(**about).split())


def write_html(document: Document, path: Path) -> None:
    """Write a document as one page that needs nothing else.

    Raises
    ------
    InputError
        If it cannot be written, as for the other formats.
    """
    loader = PackageLoader("bitfactor.report")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    page = environment.get_template("document.html.j2").render(document=document)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def write_csv(table: Table, path: Path) -> None:
    """Write the head and the rows of a table; what is None is left empty."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([table.head, *table.rows])


def write_markdown(document: Document, path: Path) -> None:
    """Write `path`, and each figure into the folder of the same name without its ending."""
    folder = path.with_suffix("")
    for figure in (figure for chapter in document.chapters for figure in chapter.figures):
        with replacing(folder / _file(figure)) as temporary:
            temporary.write_bytes(figure.image)
    blocks = [
        f"# {document.title}",
        "\n".join(f"- {sentence}" for sentence in document.finding),
        _table(facts(document.facts)) if document.facts else "",
        *(block for chapter in document.chapters for block in _chapter(chapter, folder.name)),
    ]
    with replacing(path) as temporary:
        temporary.write_text("\n\n".join(filter(None, blocks)) + "\n", encoding="utf-8")


def _chapter(chapter: Chapter, folder: str) -> Iterator[str]:
    yield f"## {chapter.title}"
    yield from chapter.text
    for table in chapter.tables:
        yield _table(table)
        yield table.caption
    for figure in chapter.figures:
        yield f"![{figure.name}]({folder}/{_file(figure)})"
        yield figure.caption
    yield "\n".join(f"    {command}  # {name}" for name, command in chapter.commands)


def _table(table: Table) -> str:
    columns = len(table.head) or len(table.rows[0])
    rule = ["---" if i in table.words else "---:" for i in range(columns)]
    lines = (_head(table) or [""] * columns, rule, *table.rows)
    cells = [[str(cell).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _head(table: Table) -> Sequence[str]:
    """Return the head with the titles of the groups in front: Markdown has no cells over several columns."""
    titles = [title for title, columns in table.groups for _ in range(columns)] or [""] * len(table.head)
    return [f"{title}: {name}" if title else name for title, name in zip(titles, table.head, strict=True)]


def _file(figure: Figure) -> str:
    return f"{figure.name}.{figure.kind}"
