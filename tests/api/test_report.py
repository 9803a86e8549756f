"""Where a page may go, and what it says of a run."""

import shutil

import pytest

import bitfactor
from bitfactor.common.errors import InputError


@pytest.mark.parametrize("part", ["test", "validation"])
def test_the_page_says_what_was_evaluated_on(run, tmp_path, part):
    shutil.copytree(run, tmp_path / "run")
    record = tmp_path / "run" / "recipe.json"
    record.write_text(record.read_text().replace(" test images", f" {part} images"))
    page = bitfactor.report(tmp_path / "run").output.read_text()
    assert f"360 {part} images" in page.split("<h2>")[0]


@pytest.mark.parametrize(
    ("output", "form", "said"),
    [
        (".", "html", "expected a file to write, found a directory"),
        ("x.md", "html", "expected a name for html, found .md; pass format markdown"),
        ("x.html", "csv", "expected a name for csv, found .html; pass format html"),
        ("x.pdf", "html", "expected a name in .html, found .pdf; rename it"),
    ],
)
def test_a_name_that_contradicts_the_format_is_refused(tmp_path, monkeypatch, output, form, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        bitfactor.report(tmp_path, output, format=form)
    assert list(tmp_path.iterdir()) == []
