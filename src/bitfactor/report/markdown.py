"""A document as Markdown, with its images in a folder beside it."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bitfactor.atomic import replacing
from bitfactor.report.document import Chapter, Document, Figure, Table


def write_markdown(document: Document, path: Path) -> None:
    """Write `path`, and each figure into the folder of the same name without its ending.

    Raises
    ------
    InputError
        If they cannot be written.
    """
    folder = path.with_suffix("")
    for figure in (figure for chapter in document.chapters for figure in chapter.figures):
        with replacing(folder / _file(figure)) as temporary:
            temporary.write_bytes(figure.image)
    with replacing(path) as temporary:
        temporary.write_text(markdown(document, folder.name), encoding="utf-8")


def markdown(document: Document, folder: str) -> str:
    """Return the text; its images are expected in `folder`."""
    blocks = [
        f"# {document.title}",
        "\n".join(f"- {sentence}" for sentence in document.finding),
        _table(["", ""], document.facts, (0, 1)),
        *(block for chapter in document.chapters for block in _chapter(chapter, folder)),
    ]
    return "\n\n".join(blocks) + "\n"


def _chapter(chapter: Chapter, folder: str) -> Iterator[str]:
    yield f"## {chapter.title}"
    yield from chapter.text
    for table in chapter.tables:
        yield _table(_head(table), table.rows, table.words)
        if table.caption:
            yield table.caption
    for figure in chapter.figures:
        yield f"![{figure.name}]({folder}/{_file(figure)})"
        yield figure.caption
    if chapter.commands:
        yield "\n".join(f"    {command}  # {name}" for name, command in chapter.commands)


def _head(table: Table) -> list[str]:
    """Return the head with the titles of the groups in front: Markdown has no cells over several columns."""
    titles = [title for title, columns in table.groups for _ in range(columns)] or [""] * len(table.head)
    return [f"{title}: {name}" if title else name for title, name in zip(titles, table.head, strict=True)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int]) -> str:
    rule = ["---" if i in words else "---:" for i in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, rule, *rows)
    )


def _file(figure: Figure) -> str:
    return f"{figure.name}.{figure.kind}"
