"""Where a page may go, and what it says of a run."""

import json
import shutil

import pytest

import bitfactor
from bitfactor.common.errors import InputError

pytestmark = pytest.mark.usefixtures("undrawn")


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


@pytest.mark.parametrize("form", ["html", "markdown", "latex", "csv"])
def test_figures_say_where_they_come_from(run, tmp_path, form):
    shutil.copytree(run, tmp_path / "run")
    text = bitfactor.report(tmp_path / "run", format=form).output.read_text().replace(r"\_", "_")
    record = json.loads((run / "recipe.json").read_text())
    for said in (
        "360 test images",
        record["data_identity"]["fingerprint"],
        record["revision"],
        f"torch {record['versions']['torch']}",
        record["machine"],
        "clipped",
        "0.005",
    ):
        assert said in text
    names = ("learning_rate", "factor_rate", "weight_estimator", "limit", "hash_of_code")
    assert all(name in text or name.replace("_", " ") in text for name in names)
