"""The paper's tables and figures: which rows they have, and what is made of them. The digits stand in."""

import csv
import json
from dataclasses import replace
from itertools import product

import pytest
from tests.cases import slow_beside

import bitfactor
from bitfactor.api import reproduce as module
from bitfactor.api.reproduce import _recipe
from bitfactor.binarization import binarize_
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.study.paper import EXHIBITS, IMAGENET, IMAGES, MPII, Setting

SMALL = {"blocks": (1, 1), "widths": (8, 16), "epochs": 1, "factor_rate": 0.5}
DIGITS = Setting("digits", "digits", (1_437, 360), SMALL)


@pytest.fixture
def digits(monkeypatch):
    """Tables and figures of images are of the digits."""
    experiment = replace(IMAGES, small=DIGITS)
    stand_in = {name: replace(shown, experiment=experiment) for name, shown in EXHIBITS.items()}
    monkeypatch.setattr(module, "EXHIBITS", stand_in)


@pytest.mark.parametrize(
    ("exhibit", "rows", "best"),
    [("table1", 8, 82.5), ("table2", 7, 55.6), ("table3", 3, 85.8), ("table4", 4, 69.3)],
)
def test_a_table_has_the_papers_rows(exhibit, rows, best):
    methods = EXHIBITS[exhibit].methods
    assert len(methods) == len({method.slug for method in methods}) == rows
    assert max(method.figures[0] for method in methods) == best


def test_the_papers_differences():
    learned = {name: bitfactor.study.Row(name, "learned") for name in ("none", "svd", "holistic")}
    assert MPII.difference(learned["holistic"], learned["none"]) == pytest.approx(3.2)
    assert IMAGENET.difference(learned["svd"], learned["none"]) == pytest.approx(-0.5)
    assert IMAGENET.difference(bitfactor.study.Row("svd", "analytic"), learned["none"]) is None


# Each experiment in each of its settings; what the figures show are rows of the tables.
QUICK = [("table1", True), ("table2", True), ("table3", False), ("table4", False)]
QUICK += [("figure2", False), ("figure3", True), ("figure5", True)]


@pytest.mark.parametrize(("exhibit", "small"), slow_beside(QUICK, product(EXHIBITS, (False, True))))
def test_every_row_is_a_network_that_turns_binary(exhibit, small):
    shown = EXHIBITS[exhibit]
    setting = shown.experiment.small if small else shown.experiment.paper
    for method in shown.methods:
        recipe = _recipe(setting, method, small=small)
        assert recipe.real == method.real
        plan = binarize_(recipe.model(), recipe.binarization, dry_run=True)
        found = {layer.latent for layer in plan.binary}
        assert found <= {method.latent, "tucker"}
        assert method.real or method.latent in found


def test_rows_of_table_4_differ_from_those_of_table_2():
    slugs = {name: {method.slug for method in EXHIBITS[name].methods} for name in ("table2", "table4")}
    assert slugs["table2"] & slugs["table4"] == {"holistic-learned"}


def test_a_table_from_the_rows_to_the_page(trainings, digits, tmp_path, capsys):
    out = tmp_path / "out"
    call = ["reproduce", "table4", "--small", "--out", str(out), "--seeds", "2"]
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in found["rows"]] == ["BNN", "XNOR-Net", "ours", "full precision"]
    assert found["rows"][1]["paper, top-1"] == "51.2"
    assert "±" in found["rows"][1]["here, top-1"]
    assert found["rows"][3]["bytes of the file"] == "–"
    page, text = (out / "table4.html").read_text(), (out / "table4.md").read_text()
    for shown in ("XNOR-Net", "--input-scale", "--activation norm", "--real", "95 % interval"):
        assert shown in page
        assert shown in text
    lines = list(csv.DictReader((out / "table4.csv").open()))
    assert len(lines) == 4 * 2
    before = {path: path.stat().st_mtime_ns for path in out.glob("rows/*/cells/*/*")}
    assert main(call) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("rows/*/cells/*/*")} == before
    figure = bitfactor.reproduce("figure2", out=out, small=True, progress=False)
    assert [path.name for path in sorted(out.glob("rows/*"))].count("holistic-analytic") == 1
    assert "times that of the analytic ones" in figure.page.read_text()
    with pytest.raises(InputError, match="found rows of digits, --small; choose another --out"):
        bitfactor.reproduce("table2", out=out, data=tmp_path, progress=False)


def test_missing_data_stop_at_once(tmp_path):
    for exhibit in ("table1", "table2"):
        with pytest.raises(InputError):
            bitfactor.reproduce(exhibit, out=tmp_path / "out", data=tmp_path / "none", small=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_seeds_are_no_reproduction(tmp_path, dry_run):
    with pytest.raises(InputError, match="seeds: expected 1 or more, found 0"):
        bitfactor.reproduce("table2", out=tmp_path / "out", seeds=0, dry_run=dry_run)


def test_another_directory_is_left_alone(digits, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="expected a new directory, or one of an earlier `reproduce`"):
        bitfactor.reproduce("table4", out=tmp_path, small=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_it_would_take_needs_no_data(digits, tmp_path):
    plan = bitfactor.reproduce("table4", out=tmp_path / "out", small=True, dry_run=True, seeds=3)
    assert plan.hours == pytest.approx(3 * sum(row.hours for row in plan.rows.values()))
    assert {row.steps for row in plan.rows.values()} == {1_437 // 64}
    assert all(row.hours > 0 and row.memory > 0 and row.exaflops > 0 for row in plan.rows.values())
    assert "hours of a GPU" in str(plan)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toy_cells")
def test_one_row_and_what_is_finished_when_it_is_interrupted(digits, tmp_path, monkeypatch, capsys):
    with pytest.raises(InputError, match="did you mean XNOR-Net"):
        bitfactor.reproduce("table4", out=tmp_path, small=True, row="XNORNet")
    found = bitfactor.reproduce("table4", out=tmp_path, small=True, row="XNOR-Net", seeds=1)
    assert [row["row"] for row in found.rows] == ["XNOR-Net"]
    assert capsys.readouterr().err.count("trainings,") == 1

    def stopped(jobs, study, devices):
        assert [job.state for job in jobs].count("finished") == 1
        assert len(jobs) == 4
        return True

    monkeypatch.setattr("bitfactor.study.run._run", stopped)
    with pytest.raises(InputError, match=r"the same call resumes; .*table4.html shows what is finished"):
        bitfactor.reproduce("table4", out=tmp_path, small=True, seeds=1)
    assert "XNOR-Net" in (tmp_path / "table4.md").read_text()
