"""What every evaluation says."""

from dataclasses import dataclass
from pathlib import Path

from bitfactor.result import Result


@dataclass(frozen=True)
class Evaluation(Result):
    """`images` says which images the network at `path` was evaluated on and how many, `notes` what else is to
    be known of them.
    """

    path: Path
    images: str
    notes: tuple[str, ...]

    def noted(self) -> list[str]:
        """Return the notes as lines."""
        return [f"note: {note}" for note in self.notes]
