"""One self-contained HTML page."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, select_autoescape

from bitfactor.atomic import replacing
from bitfactor.report.document import Document


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, then a table of (name, value) rows or a figure (SVG text) or both."""

    title: str
    text: str = ""
    rows: Sequence[tuple[str, str]] = ()
    figure: str = ""


@dataclass(frozen=True)
class Page:
    """A title, a lead and sections.

    Example
    -------
    >>> Page("A run", "What it did.", [Section("Outcome", rows=[("accuracy", "98 %")])]).write("run.html")
    """

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """Return the page."""
        return _rendered("page.html.j2", page=self)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to `path`, whole or not at all."""
        _write(path, self.html())


def write_document(document: Document, path: str | os.PathLike[str]) -> None:
    """Write a document as a page to `path`, whole or not at all."""
    _write(path, _rendered("document.html.j2", document=document))


def _rendered(template: str, **values: object) -> str:
    environment = Environment(
        loader=PackageLoader("bitfactor.report"),
        autoescape=select_autoescape(["html", "j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    return environment.get_template(template).render(values)


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
