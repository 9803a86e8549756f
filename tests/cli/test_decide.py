"""A plan is carried out by one command: searched, tested, decided; and refused where it cannot be meant."""

import json

import pytest
from scipy import stats
from tests.study import made_up

import bitfactor
from bitfactor.cli import main
from bitfactor.training import Run

PLAN = """
question = "Does Tucker train a better network than a free weight?"
recipe = "digits"
comparisons = [["tucker", "none"], ["fast", "none"]]
smallest_points = 1.0

[options]
batch_size = 8
limit = 64

[rows.none]
latent = "none"
scale = "learned"

[rows.tucker]
latent = "tucker"
scale = "learned"

[rows.fast]
latent = "tucker"
scale = "learned"
widths = [16, 16]
learning_rate = [0.01, 0.02, 2.0]

[search]
seeds = 1
epochs = 1

[search.axes]
learning_rate = [0.01, 0.02]
factor_rate = [1.0, "1/rank"]

[test]
seeds = 3
epochs = 2
"""


@pytest.fixture
def plan(tmp_path):
    """Write a plan, one text of it replaced by another."""

    def plan(old="", new=""):
        assert old in PLAN
        file = tmp_path / "plan.toml"
        file.write_text(PLAN.replace(old, new, 1) if old else PLAN)
        return file

    return plan


@pytest.fixture
def steps(monkeypatch, toy_cells):
    """Trainings take milliseconds; a step of Tucker takes twice as long as a free weight's."""

    def try_recipe(recipe, **_):
        trial = made_up.try_recipe(recipe)
        seconds = {"none": 0.1, "tucker": 0.2}[recipe.binarization.latent]
        return type(trial)(**{**vars(trial), "seconds": seconds})

    monkeypatch.setattr("bitfactor.study.run.dry_run", try_recipe)


def trained(out):
    return {file: file.read_text() for file in out.glob("*/*/cells/*/starts")}


@pytest.mark.usefixtures("toy_cells")
def test_a_plan_is_searched_tested_decided_and_not_repeated(plan, tmp_path, call):
    out = tmp_path / "out"
    printed = call("decide", plan(), "--out", out)
    assert (out / "result.md").read_text() in printed
    result = json.loads((out / "result.json").read_text())
    rows = {row["row"]: row for row in result["rows"]}
    assert [*rows] == ["none", "tucker", "fast"]
    assert rows["none"]["chosen"] == {"learning_rate": 0.02}
    assert rows["tucker"]["chosen"] == {"learning_rate": 0.02, "factor_rate": 1.0}
    assert rows["fast"]["chosen"] == {"learning_rate": 0.02, "factor_rate": 1.0}
    edge = "The best learning_rate of {} is the least or the largest tried. Search further."
    assert [edge.format(row) in printed for row in rows] == [True, True, False]
    assert {row: one["edges"] for row, one in rows.items()} == {
        "none": ["learning_rate"],
        "tucker": ["learning_rate"],
        "fast": [],
    }
    assert rows["none"]["by_seed"] == pytest.approx({"0": 0.7, "1": 0.71, "2": 0.72})
    settings = Run(out / "test/fast/cells/tucker-learned-seed2").settings()
    assert settings["model"]["widths"] == [16, 16]
    assert "The search saw the test images" in printed

    values = [list(row["by_seed"].values()) for row in rows.values()]
    deviation = (sum(stats.tvar(one) for one in values) / 3) ** 0.5
    half = stats.t.ppf(0.975, 6) * deviation * (2 / 3) ** 0.5
    for one in result["comparisons"]:
        assert one["difference"]["mean"] == pytest.approx(0)
        assert one["difference"]["high"] == pytest.approx(half)
        assert (one["certain"], one["verdict"]) == (False, "undecided")
    assert "| none | 71.00 ± 1.00 | 3 | learning rate 0.02 |" in printed
    assert (
        f"| tucker over none | +0.00 [−{100 * half:.2f}, +{100 * half:.2f}] | 1 | no | undecided |" in printed
    )

    before = trained(out)
    assert len(before) == 2 + 4 + 4 + 3 * 3  # those at a rate of 2 leave none
    again = bitfactor.decide(plan(), out=out, progress=False)
    assert trained(out) == before
    assert again.to_dict() == result


@pytest.mark.usefixtures("steps")
def test_at_equal_time_a_slower_row_takes_fewer_steps(plan, tmp_path, call):
    out = tmp_path / "out"
    file = plan('recipe = "digits"', 'recipe = "digits"\nequal = "time"')
    printed = call("decide", file, "--out", out)
    assert "| none | 71.00 ± 1.00 | 3 | learning rate 0.02 | 16 | 0.1 |" in printed
    assert "| 8 | 0.2 |" in printed
    for row, steps in {"none": 16, "tucker": 8, "fast": 8}.items():
        (cell,) = (out / "test" / row / "cells").glob("*-seed0")
        assert Run(cell).settings()["optimization"]["steps"] == steps
    times = out / "step-times.json"
    written = times.stat().st_mtime_ns
    call("decide", file, "--out", out)
    assert times.stat().st_mtime_ns == written


@pytest.mark.usefixtures("steps")
def test_a_dry_run_says_how_long_all_takes_and_writes_nothing(plan, tmp_path, call):
    printed = call("decide", plan(), "--out", tmp_path / "out", "--dry-run", "--jobs", "1")
    assert "21 trainings on cpu" in printed
    assert "test of tucker: Tucker, learned" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toy_cells")
def test_a_plan_that_has_changed_is_refused_but_not_for_its_comments(plan, tmp_path, refused):
    out = tmp_path / "out"
    for file in (plan(), plan("\n", "\n# a comment\n")):
        assert main(["decide", str(file), "--out", str(out)]) == 0
    found = refused("decide", plan("points = 1.0", "points = 0.5"), "--out", out)
    assert "plan.toml: smallest_points: expected 1.0, as in" in found
    assert "found 0.5; restore it" in found
    (out / "plan.json").write_text('{"plan": ')
    assert "plan.json: expected the plan of this study, found Expecting value" in refused(
        "decide", plan(), "--out", out
    )
    marked = plan()
    marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["decide", str(marked), "--out", str(tmp_path / "marked")]) == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes").touch()
    assert "found something else" in refused("decide", plan(), "--out", other)


@pytest.mark.usefixtures("toy_cells")
def test_without_all_its_trainings_nothing_is_decided(plan, tmp_path, capfd):
    file, out = plan("learning_rate = [0.01, 0.02]", "weight_decay = [0.1]"), tmp_path / "out"
    text = file.read_text().replace("learning_rate = [0.01, 0.02, 2.0]", "")
    file.write_text(text.replace("limit = 64", "limit = 64\nlearning_rate = 2.0"))  # it diverges
    assert main(["decide", str(file), "--out", str(out)]) == 2
    assert "no finished training of none-learned" in capfd.readouterr().err.splitlines()[-1]
    assert not (out / "result.md").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("question", "qestion", "qestion: expected a known key"),
        (
            "smallest_points = 1.0",
            "",
            "smallest_points: expected a finite number, found no such key",
        ),
        (
            "smallest_points = 1.0",
            "smallest_points = -1",
            "smallest_points: expected above 0, found -1",
        ),
        (
            "smallest_points = 1.0",
            'smallest_points = "1"',
            "smallest_points: expected a finite number",
        ),
        ('"digits"', '"digit"', "recipe: expected one of digits"),
        ("[test]\n", "[tset]\n", "tset: expected a known key"),
        ("seeds = 3\n", "", "test: seeds: expected an integer, found no such key; add it"),
        ("seeds = 3", "seeds = 1", "test: seeds: expected 2 or more, found 1"),
        ("seeds = 3", "seeds = 3.5", "test: seeds: expected an integer, found 3.5"),
        ("epochs = 2", "epochs = 2\nsteps = 3", "test: expected one of epochs and steps, found 2"),
        ("epochs = 2", "epoch = 2", "test: epoch: expected a known key"),
        ("epochs = 2", "", "test: expected one of epochs and steps, found none"),
        (
            '["fast", "none"]',
            '["fsat", "none"]',
            "comparisons: expected one of none, tucker, fast",
        ),
        ('["fast", "none"]', '["none", "tucker"]', "comparisons: expected each pair once"),
        (
            '["fast", "none"]',
            '["none", "none"]',
            "comparisons: expected two rows, found none twice",
        ),
        ('["fast", "none"]', '"fast"', "comparisons: expected a sequence"),
        (
            "batch_size = 8",
            'batch_size = "8"',
            "options: batch_size: expected an integer, found '8'",
        ),
        ("batch_size", "batchsize", "options: batchsize: expected a known key"),
        ("batch_size = 8", "seed = 8", "options: seed: expected a known key"),
        ("batch_size = 8", "widths = [4]", "rows.fast: widths: expected each option in one table"),
        (
            "limit",
            "learning_rate",
            "search.axes: learning_rate: expected each option in one table",
        ),
        (
            "limit = 64",
            "groups = 'auto'",
            "options: groups: expected a row that it changes something for",
        ),
        (
            "widths = [16, 16]",
            "groups = 'auto'",
            "rows.fast: groups: expected a row that it changes something",
        ),
        (
            'scale = "learned"\n\n[rows.tucker]',
            "[rows.tucker]",
            "rows.none: scale: expected a scale",
        ),
        ('latent = "tucker"', 'latent = "tuker"', "rows.tucker: latent: expected"),
        ("[rows.none]", '[rows."a/b"]', "comparisons: expected one of a/b"),
        ("[rows.fast]", '[rows."a/b"]', "comparisons: expected one of none"),
        ("[0.01, 0.02]", "0.01", "search.axes: learning_rate: expected a list of values"),
        ("[0.01, 0.02, 2.0]", "2.0", "rows.fast: learning_rate: expected a list of values to search"),
        ("2.0", "-2.0", "rows.fast: learning_rate: expected"),
        ("[0.01, 0.02]", "[0.01, 0.01]", "search.axes: learning_rate: expected a list of values"),
        (
            "[0.01, 0.02]",
            '["a"]',
            "search.axes: learning_rate: expected a finite number, found 'a'",
        ),
        (
            "recipe =",
            "equal = 'clock'\nrecipe =",
            "equal: expected one of steps, time, found 'clock'",
        ),
        ("[options]", "[options", "expected a plan in TOML"),
        ("limit = 64", "limit = 64\nwarmup_epochs = 2", "epochs: expected 2 or more in each stage"),
        (
            "widths = [16, 16]",
            "silent_decay = 1e-3",
            "rows.fast: silent_decay: expected a row that it changes something",
        ),
    ],
)
def test_what_a_plan_cannot_mean_is_one_line_that_says_where(plan, tmp_path, refused, old, new, message):
    assert f"plan.toml: {message}" in refused("decide", plan(old, new), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tests_that_could_not_begin_are_refused_before_the_search(plan, tmp_path, refused):
    file = plan("epochs = 2", "steps = 3")
    file.write_text(file.read_text().replace("limit = 64", "limit = 64\nwarmup_epochs = 1"))
    line = refused("decide", file, "--out", tmp_path / "out")
    assert "plan.toml: test of none: --warmup-epochs: expected at most the 0.375 epochs" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_real_trainings_of_a_plan_decide_it(plan, tmp_path, call):
    assert "| tucker over none |" in call("decide", plan(), "--out", tmp_path / "out")
