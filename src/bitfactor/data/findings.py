"""What a look through a data set found."""

from dataclasses import dataclass, field


@dataclass
class Findings:
    """What there is and what is wrong with it.

    `problems` and `notes` map a kind to what is concerned: problems want repair before a run, notes are
    good to know. `sizes` are least, median and greatest height and width in pixels.
    """

    layout: str
    classes: int = 0
    pictures: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def problem(self, kind: str, what: str) -> None:
        """Add a problem."""
        self.problems.setdefault(kind, []).append(what)

    def note(self, kind: str, what: str) -> None:
        """Add a note."""
        self.notes.setdefault(kind, []).append(what)
