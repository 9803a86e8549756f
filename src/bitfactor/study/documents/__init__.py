"""Documents of text, tables and figures, drawn and written. Knows nothing of models or data."""

import base64
import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from bitfactor.common.files import replacing, write_file
from bitfactor.format import Skeleton
from bitfactor.pose import transform, warp
from bitfactor.pose.draw import draw_skeleton

__all__ = ["Chapter", "Document", "Figure", "Table", "facts"]


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


class Prose:
    """The texts of a template: each of its macros is one, with what it is about as arguments."""

    def __init__(self, template: str) -> None:
        self._template = template

    @cached_property
    def _macros(self) -> Any:
        loader = PackageLoader("bitfactor.study.documents")
        return Environment(loader=loader, undefined=StrictUndefined).get_template(self._template).module

    def __call__(self, name: str, **about: object) -> str:
        return " ".join(getattr(self._macros, name)(**about).split())


def write_html(document: Document, path: Path) -> None:
    """Write a document as one page that needs nothing else."""
    loader = PackageLoader("bitfactor.study.documents")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    page = environment.get_template("document.html.j2").render(document=document)
    write_file(path, page)


def write_csv(table: Table, path: Path) -> None:
    """Write the head and the rows of a table; what is None is left empty."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([table.head, *table.rows])


def write_markdown(document: Document, path: Path) -> None:
    """Write `path`, and each figure into the folder of the same name without its ending."""
    folder = path.with_suffix("")
    for figure in (figure for chapter in document.chapters for figure in chapter.figures):
        write_file(folder / _file(figure), figure.image)
    blocks = [
        f"# {document.title}",
        "\n".join(f"- {sentence}" for sentence in document.finding),
        _table(facts(document.facts)) if document.facts else "",
        *(block for chapter in document.chapters for block in _chapter(chapter, folder.name)),
    ]
    write_file(path, "\n\n".join(filter(None, blocks)) + "\n")


def write_latex(document: Document, path: Path) -> None:
    """Write the tables of a document in the style of the package booktabs, for a text to include."""
    origin = [("Where the figures come from", facts(document.facts))]
    tables = [(chapter.title, table) for chapter in document.chapters for table in chapter.tables]
    parts = [(title, table) for title, table in [*tables, *origin] if table.rows]
    text = "\n\n".join(_latex(title, table) for title, table in parts)
    write_file(path, f"% written by bitfactor; needs \\usepackage{{booktabs}}\n{text}\n")


def _latex(title: str, table: Table) -> str:
    columns = len(table.head) or len(table.rows[0])
    places = "".join("l" if i in table.words else "r" for i in range(columns))
    groups = [rf"\multicolumn{{{n}}}{{c}}{{{_escaped(name)}}}" for name, n in table.groups]
    heads = [*([groups] if groups else []), *([list(map(_escaped, table.head))] if table.head else [])]
    rows = [list(map(_escaped, row)) for row in table.rows]
    caption = _escaped(f"{title}. {table.caption}".strip())
    return "\n".join(
        [
            rf"\begin{{table}}\centering\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{places}}}",
            r"\toprule",
            *(" & ".join(cells) + r" \\" for cells in heads),
            *([r"\midrule"] if heads else []),
            *(" & ".join(cells) + r" \\" for cells in rows),
            r"\bottomrule",
            r"\end{tabular}\end{table}",
        ]
    )


_IN_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
}


def _escaped(cell: object) -> str:
    text = " ".join(str(cell).split())
    signs = [_IN_LATEX.get(sign, sign if ord(sign) < 256 else f"U+{ord(sign):04X}") for sign in text]
    if signs[:1] in (["["], ["*"]):  # which would be an option of the end of the row before
        signs[0] = f"{{{signs[0]}}}"
    return "".join(signs)


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


_SIDE = 220  # pixels of a shown crop


@dataclass(frozen=True)
class Person:
    """A person in an image (H, W, 3), RGB, whom `matrix` (2, 3) takes to a crop of `size` pixels.

    Keypoints found and true, (J, 2), are in pixels of the crop; a true one that is not known is NaN.
    """

    image: NDArray[np.uint8]
    matrix: NDArray[np.float64]
    size: int
    skeleton: Skeleton
    found: NDArray[np.float64]
    confidence: NDArray[np.float64]
    true: NDArray[np.float64]
    caption: str


def instances(name: str, shown: Sequence[Person]) -> list[Figure]:
    """Return a small figure of each person: what was found beside what is true."""
    return [
        Figure(f"{name}-{i}", _jpeg(_sides(person)), person.caption, "jpg", small=True)
        for i, person in enumerate(shown, 1)
    ]


def montages(name: str, parts: Mapping[str, Sequence[Person]], said: str) -> list[Figure]:
    """Return a figure of each part: its instances in a row, what was found beside what is true."""
    return [
        Figure(
            f"{name}-{title.lower().replace(' ', '-')}",
            _jpeg(np.hstack([_sides(person) for person in shown])),
            f"{title}{said}",
            "jpg",
        )
        for title, shown in parts.items()
    ]


def _sides(person: Person) -> NDArray[np.uint8]:
    zoom = _SIDE / person.size
    enlarge = np.array([[zoom, 0, (zoom - 1) / 2], [0, zoom, (zoom - 1) / 2]])
    matrix = enlarge @ np.concatenate([person.matrix, [[0, 0, 1]]])
    crop = warp(person.image, matrix, _SIDE)
    sure = np.ones(len(person.true))
    sides = [
        draw_skeleton(crop, transform(keypoints, enlarge), confidence, person.skeleton)
        for keypoints, confidence in ((person.found, person.confidence), (person.true, sure))
    ]
    return np.hstack(sides)


def _jpeg(image: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes())
