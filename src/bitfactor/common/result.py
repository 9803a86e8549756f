"""What a public function returns, and tables of text."""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Result:
    """Base of the dataclasses that public functions return.

    `print` shows what a person wants to read (a subclass defines `__str__`), and so does a notebook.
    `to_dict` gives plain types: what the command of the same name prints with `--json`.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain types."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: plain(value) for name, value in values.items()}

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict())

    def _repr_html_(self) -> str:
        import html  # here, for a quick import of the rest

        return f"<pre>{html.escape(str(self))}</pre>"


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records and mappings as dicts, sequences as lists, paths as strings."""
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Return lines with aligned columns; the columns numbered in `right` are aligned to the right."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    rule = ["-" * width for width in widths]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join(line(cells) for cells in (head, rule, *rows))
