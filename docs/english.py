"""Sentences that are too long, and phrases that have a better word: python docs/english.py [FILE ...]

Without files: README, CHANGELOG, the pages that are written by hand, and the package's docstrings, those of
fields too: `--help` shows them. A finding is a line, path:line: what, and the sentence. Any is an exit
status of 1.
"""

import ast
import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 25
INSTEAD = {  # phrase: what to say
    r"held[- ]out": "test set, validation set",
    r"pictures?": "image",
    r"processors?": "CPU",
    r"level (with|in)": "equal, the same as",
    r"float twin": "full-precision baseline",
    r"rivals?": "baseline, engine",
    r"pays?": "is better, is worth its cost",
    r"is told": "the error message says",
    r"but for": "except",
    r"of which": "split the sentence",
    r"how many right": "top-1 accuracy",
}
_MADE = ("results/paper/", "results/decompositions/final.md")  # by scripts, from logs
_BLOCK = re.compile(r"```.*?```|\$\$.*?\$\$|<!--.*?-->|<picture>.*?</picture>", re.DOTALL)
_ENDS = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\[(*\"A-Z0-9`])")
_NO_PROSE = re.compile(r"\||#|<|\[[^\]]+\]: |\$ |>>> |[-=]{3,}|\S+ +:|.*\S {3,}\S")  # tables, lists of names


def pages() -> list[Path]:
    """The pages that are written by hand."""
    docs = (path for path in sorted((ROOT / "docs").rglob("*.md")))
    made = tuple(str(ROOT / "docs" / one) for one in _MADE)
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "native/README.md")
    beside = [ROOT / name for name in names]
    return [*beside, *(path for path in docs if not str(path).startswith(made))]


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph or point of a list, with the number of its first line."""
    text = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    first, gathered = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        point = re.match(r"\s*(?:[-*]|\d+\.)\s+(.*)", line)
        ends = not line.strip() or _NO_PROSE.match(line.strip()) or (line.startswith("    ") and not gathered)
        if (ends or point) and gathered:
            yield first, gathered
            gathered = ""
        if not ends:
            first = first if gathered else number
            gathered += " " + (point[1] if point else line.strip())


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The paragraphs of the docstrings of a file's public names, methods and fields too."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        yield from _of_fields(node)
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            continue
        text = ast.get_docstring(node)
        if text and not getattr(node, "name", "").startswith("_"):
            text = re.sub(r"^Example\n-{7}.*?(?=^\w+\n---|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
            # In place of a parameter's name, which stands before an indented line, is a blank line.
            text = re.sub(r"^\S.*(?=\n {4}\S)", "", text, flags=re.MULTILINE)
            line = node.body[0].lineno
            yield from (
                (line + number - 1, words) for number, words in paragraphs(text.replace("\n    ", "\n"))
            )


def _of_fields(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The paragraphs below the fields of a class."""
    for beside in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
        match beside:
            case ast.AnnAssign(), ast.Expr(ast.Constant(str(text)), lineno=line):
                yield from ((line + number - 1, words) for number, words in paragraphs(cleandoc(text)))


def findings(words: str) -> Iterator[str]:
    """What is wrong with a paragraph."""
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`x`", words))
    if words.strip().startswith("Logs:"):  # a list of links, no sentence
        return
    for sentence in _ENDS.split(words.strip()):
        count = sum(bool(re.search(r"\w", word)) for word in sentence.split())
        if count > MOST:
            yield f"{count} words: {sentence}"
        for phrase, better in INSTEAD.items():
            if found := re.search(rf"\b{phrase}\b", sentence, re.IGNORECASE):
                yield f"{found[0]!r} (say: {better}): {sentence}"


def main(names: list[str]) -> int:
    sources = sorted((ROOT / "src/bitfactor").rglob("*.py"))
    files = [Path(name).resolve() for name in names] or [*pages(), *sources]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in files
        for line, words in (docstrings(path) if path.suffix == ".py" else paragraphs(path.read_text()))
        for what in findings(words)
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
