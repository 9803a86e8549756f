"""A table of text."""

from collections.abc import Sequence


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()
) -> str:
    """Return lines with aligned columns; the columns numbered in `right` are aligned to the right.

    >>> print(text_table(["layer", "bits"], [["conv1", "32"]], right=frozenset({1})))
    layer  bits
    -----  ----
    conv1    32
    """
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
