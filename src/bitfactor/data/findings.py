"""What a look through a data set found."""

from dataclasses import asdict, dataclass, field
from typing import Any

from bitfactor.result import Result
from bitfactor.table import text_table

_SHOWN = 10


@dataclass
class Findings(Result):
    """What there is and what is wrong with it.

    `problems` and `notes` map a kind to what is concerned: problems want repair before a run, notes are
    good to know. `sizes` are least, median and greatest height and width in pixels.
    """

    layout: str
    classes: int = 0
    images: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    directory: str = ""

    def problem(self, kind: str, what: str) -> None:
        """Add a problem."""
        self.problems.setdefault(kind, []).append(what)

    def note(self, kind: str, what: str) -> None:
        """Add a note."""
        self.notes.setdefault(kind, []).append(what)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        rows = [("layout", self.layout), ("classes", str(self.classes))]
        rows += [(f"images, {part}", f"{count:,}") for part, count in self.images.items()]
        rows += [
            (side, f"{low} to {high}, median {middle}") for side, (low, middle, high) in self.sizes.items()
        ]
        rows += [(mode, f"{count:,}") for mode, count in self.modes.items()]
        lines = [text_table((self.directory, ""), rows)]
        for title, kinds in (("problem", self.problems), ("note", self.notes)):
            for kind, concerned in kinds.items():
                lines += ["", f"{title}: {kind} ({len(concerned)})"]
                lines += [f"  {what}" for what in concerned[:_SHOWN]]
                if len(concerned) > _SHOWN:
                    lines.append(f"  ... and {len(concerned) - _SHOWN} more; --json lists all")
        return "\n".join(lines if self.problems else [*lines, "", "no problems"])
