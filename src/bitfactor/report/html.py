"""One self-contained HTML page."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, select_autoescape

from bitfactor.atomic import replacing


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
        environment = Environment(
            loader=PackageLoader("bitfactor.report"),
            autoescape=select_autoescape(["html", "j2"]),
            trim_blocks=True,
        )
        return environment.get_template("page.html.j2").render(page=self)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to `path`, whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")
