"""Where a page may go, and what it says of a run."""

import json
import shutil

import numpy as np
import pytest

import bitfactor
from bitfactor.api.report import run_document
from bitfactor.common.errors import InputError
from bitfactor.data import Digits

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


def test_a_run_begins_with_what_it_is_for_and_ends_with_what_is_for_researchers(tmp_path):
    small = {"epochs": 2, "eval_interval": 2, "limit": 256, "widths": (8, 16), "blocks": (1, 1)}
    run = bitfactor.train("digits", out=tmp_path / "a", **small)
    bitfactor.train("digits", out=tmp_path / "b", real=True, **small)
    bitfactor.train("digits", out=tmp_path / "c", real=True, **{**small, "widths": (8, 8)})
    bitfactor.train("digits", out=tmp_path / "d", real=True, **{**small, "epochs": 1, "eval_interval": 1})
    made = run_document(run.path, None)
    titles = [chapter.title for chapter in made.chapters]
    assert titles[:4] == ["Outcome", "Most confident mistakes", "Training", "Size"]
    assert titles.index("For researchers: inside the network") == 4 < titles.index("Scaling factors")
    assert [figure.name for chapter in made.chapters for figure in chapter.figures][:3] == [
        "confusion",
        "mistakes",
        "training",
    ]
    ((_, accuracy), _, (name, baseline)) = made.chapters[0].tables[0].rows
    assert name == "full-precision baseline, b"
    assert baseline.endswith("%")
    assert accuracy.endswith("right)")
    assert ["test_loss" in row for row in run.history] == [False, True]
    assert all("loss" in row for row in run.history)


def test_mistakes_are_shown_the_most_confident_first(tmp_path, monkeypatch):
    run = bitfactor.train("digits", out=tmp_path / "a", epochs=1, limit=64, widths=(8,), blocks=(1,))
    outcome = run.evaluate()
    network = run.model()
    scores = network(Digits.load().test[0]).detach().double().softmax(1).numpy()
    assert np.allclose(outcome.confidence, scores.max(1), atol=1e-5)
    shown = []
    monkeypatch.setattr(
        "bitfactor.api.report.gallery", lambda images, found, truth: shown.extend(found) or ""
    )
    run_document(run.path, None)
    sure = [int(one.rpartition(" ")[2].rstrip("%")) for one in shown]
    assert sure == sorted(sure, reverse=True)
    assert sure[0] == round(100 * max(outcome.confidence[outcome.found != outcome.expected]))
