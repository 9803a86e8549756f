"""Hooks of mkdocs: links that leave docs/ lead to pages made of the repository's files; formulas are MathML.

Pages stay as a code host shows them. README.md is the home page. A page for each other file that is linked
is made beside it, under repository/. Formulas become MathML, which browsers draw without a script.
"""

import posixpath
import re
from html import unescape
from pathlib import Path

from griffe import Extension
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
_LINK = re.compile(
    r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)|(?<=srcset=\")[^\"]+|(?<=src=\")[^\"]+|^\[[^\]]+\]: (?!http)(\S+)"
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".toml": "toml", ".yml": "yaml", ".cff": "yaml"}


class Examples(Extension):
    """Docstrings say Example, which the reader of docstrings calls Examples."""

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example\n-{7}$", "Examples\n--------", obj.docstring.value, flags=re.M
            )


def _place(source):
    """Return where a file of the repository stands on the site."""
    if source == "README.md":
        return "index.md"
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    return f"repository/{source}" if source.endswith(".md") else f"repository/{source}.md"


def _targets(source, text):
    folder = posixpath.dirname(source)
    return {posixpath.normpath(posixpath.join(folder, match[0])) for match in _LINK.finditer(text)}


def _has_links(source):
    return source.endswith(".md") or (ROOT / source).is_dir()


def _text(source):
    """Return the page of a file: itself, if it is one, else its text; of a folder, its files."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if one.is_file())
        return f"# {source}\n\n" + "".join(f"- [{name}]({path.name}/{name})\n" for name in names)
    text = path.read_text()
    if _has_links(source):
        return text
    return f"# {source}\n\n````{_LANGUAGES.get(Path(source).suffix, 'text')}\n{text}\n````\n"


def on_files(files, config):
    """Add the home page, and a page for each file that a page links outside of docs/."""
    sources = {file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()}
    waiting = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", *sources.values()]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        text = _text(source)
        if not source.startswith("docs/"):
            sources[_place(source)] = source
            files.append(File.generated(config, _place(source), content=text))
        if _has_links(source):
            linked = {t for t in _targets(source, text) - seen if not t.startswith("docs/")}
            seen |= linked
            waiting += [target for target in linked if (ROOT / target).exists()]
    config["sources"] = sources
    return files


def on_page_markdown(markdown, page, config, files):
    """Make links those of the site."""
    source = config["sources"][page.file.src_uri]
    folder, here = posixpath.dirname(source), posixpath.dirname(page.file.src_uri)

    def linked(match):
        target = posixpath.normpath(posixpath.join(folder, match[0]))
        return posixpath.relpath(_place(target), here or ".") if (ROOT / target).exists() else match[0]

    return _LINK.sub(linked, markdown) if _has_links(source) else markdown


def on_page_content(html, page, config, files):
    """Make formulas MathML."""
    display = {"div": "block", "span": "inline"}
    return _FORMULA.sub(lambda found: convert(unescape(found[2]), display=display[found[1]]), html)
