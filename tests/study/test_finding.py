"""What a study found: means, paired differences, and when they decide something."""

import csv
import io
import json
import shutil
import statistics
from dataclasses import replace

import pytest

from bitfactor.common.errors import InputError
from bitfactor.study import REAL, read_study
from bitfactor.study.documents import write_csv
from bitfactor.study.page import command_of
from bitfactor.study.statistics import claims, views
from bitfactor.study.tables import (
    along,
    by_rate,
    caution,
    comparisons,
    costs,
    differences,
    finding,
    results,
    trainings,
    unfinished,
    weights,
)

LATENTS, SCALES = ("none", "svd", "tucker", "holistic"), ("analytic", "learned")
EPOCHS = 6
ROWS = [(latent, scale) for latent in LATENTS for scale in SCALES]


def first(path):
    study = read_study(path)
    return views(study)[0], study


def verdicts(path):
    view, study = first(path)
    return {(claim.ours, claim.theirs): claim.verdict for claim in claims(view, study)}


def set_accuracy(study, name, value):
    path = study / "cells" / name / "outcome.json"
    outcome = json.loads(path.read_text())
    outcome["metrics"]["accuracy"] = value
    path.write_text(json.dumps(outcome))


def test_means_and_deviations_are_those_of_the_seeds(study, accuracy):
    table = results(*first(study))
    for (latent, scale), line in zip(ROWS, table.rows, strict=False):
        values = [100 * accuracy(latent, scale, seed) for seed in range(3)]
        assert line[1] == scale
        assert line[2] == f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
        assert line[4] == "3"
    assert table.rows[-1][:3] == ["full precision", "–", "60.40 ± 0.40"]


def test_the_papers_figures_stand_beside(study):
    by_row = {tuple(line[:2]): line[-2:] for line in results(*first(study)).rows}
    assert by_row["holistic", "learned"] == ["55.6", "78.5"]
    assert by_row["SVD", "analytic"] == ["–", "–"]
    assert by_row["full precision", "–"] == ["69.3", "89.2"]


def test_a_study_of_poses_is_compared_with_those_of_the_paper(study):
    for file in study.glob("cells/*/outcome.json"):
        outcome = json.loads(file.read_text())
        outcome["headline"], outcome["metrics"] = "pck", {"pck": outcome["metrics"]["accuracy"]}
        file.write_text(json.dumps(outcome))
    view, found = first(study)
    table = results(view, found)
    assert (table.head[-1], [line[-1] for line in table.rows][-2:]) == ("PCKh", ["82.5", "85.8"])
    assert "other data" in table.caption
    mpii = replace(found, design=replace(found.design, recipe="mpii-hourglass"))
    assert "other data" not in results(view, mpii).caption
    said = " ".join(finding(view, found))
    assert "on MPII" in said
    assert "ImageNet" not in said
    assert len(claims(view, found)) == 12


def test_differences_are_paired_by_seed(study, accuracy):
    set_accuracy(study, "tucker-learned-seed0", accuracy("none", "learned", 0) + 0.01)
    set_accuracy(study, "tucker-learned-seed1", accuracy("none", "learned", 1) + 0.02)
    set_accuracy(study, "tucker-learned-seed2", accuracy("none", "learned", 2) + 0.03)
    line = next(row for row in differences(*first(study)).rows if row[0] == "Tucker, learned")
    assert line[4:] == ["+2.00 [−0.48, +4.48]", "3", "+1.7"]


def test_equal_differences_of_all_seeds_are_as_in_the_paper(study):
    found = verdicts(study)
    svd = ("svd", "learned"), ("none", "learned")
    assert found.pop(svd) == "the other way round"  # the paper has SVD below a free weight here
    assert set(found.values()) == {"as in the paper"}
    assert len(found) == 9


def test_differences_that_vary_are_undecided(study):
    set_accuracy(study, "holistic-learned-seed0", 0.40)
    assert verdicts(study)[("holistic", "learned"), ("tucker", "learned")] == "undecided, other sign"
    assert "the paper's order shows in part" in finding(*first(study))[0].lower()


def test_no_difference_has_no_sign(study, accuracy):
    for seed in range(3):
        set_accuracy(study, f"tucker-learned-seed{seed}", accuracy("svd", "learned", seed))
    assert verdicts(study)[("tucker", "learned"), ("svd", "learned")] == "undecided, no difference"


@pytest.mark.parametrize("better", [True, False])
def test_finding_says_whether_the_order_shows(tmp_path, better, make_study, accuracy):
    study = make_study(tmp_path / "s", latents=("none", "tucker"), scales=("learned",))
    for seed in range(3):
        set_accuracy(
            study, f"tucker-learned-seed{seed}", accuracy("none", "learned", seed) + 0.05 * (better or -1)
        )
    order, means, best, _ = finding(*first(study))
    assert order.startswith("The paper's order shows:" if better else "The paper's order does not show")
    ends = ("none 52.40", "Tucker 57.40") if better else ("Tucker 47.40", "none 52.40")
    assert f"{ends[0]} < {ends[1]}." in means
    assert ("Tucker, learned" if better else "none, learned") in best


def test_one_seed_has_no_interval_and_says_so(tmp_path, make_study):
    view, study = first(make_study(tmp_path / "s", seeds=(0,)))
    assert "±" not in "".join(cell for row in results(view, study).rows for cell in row)
    assert "[" not in "".join(cell for row in differences(view, study).rows for cell in row)
    assert {claim.verdict for claim in claims(view, study)} <= {
        "one seed, sign as in the paper",
        "one seed, other sign",
    }
    assert any(sentence.startswith("One seed only") for sentence in caution(study))
    assert "neither confirmed nor refuted" in finding(view, study)[0]


def test_missing_and_unfinished_trainings_are_named(study, add_cell):
    shutil.rmtree(study / "cells" / "svd-learned-seed1")
    shutil.rmtree(study / "cells" / "real-seed2")
    shutil.rmtree(study / "cells" / "none-learned-seed0")
    add_cell(study, {"latent": "none", "scale": "learned"}, 0, 0.5, epochs=2)
    view, found = first(study)
    assert sorted(unfinished(found).rows) == [
        ("SVD, learned, seed 1", "not begun"),
        ("full precision, seed 2", "not begun"),
        ("none, learned, seed 0", "unfinished, epoch 2"),
    ]
    assert "24 of 27 trainings" in caution(found)[0]
    by_row = {tuple(line[:2]): line[4] for line in results(view, found).rows}
    assert (by_row["SVD", "learned"], by_row["none", "learned"], by_row["none", "analytic"]) == (
        "2",
        "2",
        "3",
    )


def test_study_without_a_finished_training(tmp_path, make_study):
    study = make_study(tmp_path / "s", seeds=(0,))
    shutil.rmtree(study / "cells")
    view, found = first(study)
    assert len(found.missing()) == 9
    assert finding(view, found)[0].startswith("Nothing can be said")
    assert {row[2] for row in results(view, found).rows} == {"–"}


def test_each_row_stands_at_its_best_learning_rate(tmp_path, make_study, accuracy):
    view, study = first(make_study(tmp_path / "s", rates=(0.001, 0.003)))
    assert view.chosen(("none", "learned"))["learning_rate"] == 0.003
    assert view.values(("none", "learned"), "accuracy")[1] == accuracy("none", "learned", 1, 0.003)
    assert view.chosen(("tucker", "learned"))["learning_rate"] == 0.001
    line = along("learning_rate", view, study).rows[0]
    assert line == ["none, analytic", "50.40 ± 0.40", "3", "53.40 ± 0.40", "3"]
    at_low, at_high = by_rate(view, study)
    assert at_low.startswith("At learning rate 0.001: 10 comparisons")
    assert "9 as in the paper and 1 the other way round; 0 undecided" in at_low
    assert "At learning rate 0.003" in at_high
    assert any("flatters" in sentence for sentence in caution(study))


def test_a_rate_with_fewer_seeds_is_not_the_best(tmp_path, make_study):
    study = make_study(tmp_path / "s", rates=(0.001, 0.003))
    shutil.rmtree(study / "cells" / "none-learned-seed1-lr0.003")
    assert first(study)[0].chosen(("none", "learned")) == {"learning_rate": 0.001}


def test_further_axes_give_a_view_each(tmp_path, make_study, add_cell):
    study = make_study(tmp_path / "s", seeds=(0, 1))
    record = json.loads((study / "study.json").read_text())
    record["axes"]["weight_estimator"] = ["clipped", "rms"]
    (study / "study.json").write_text(json.dumps(record))
    shutil.rmtree(study / "cells")
    for seed in (0, 1):
        add_cell(study, {"latent": "none", "scale": "learned", "weight_estimator": "clipped"}, seed, 0.5)
    add_cell(study, {}, 0, 0.7, real=True)
    found = read_study(study)
    masked, rms = views(found)
    assert masked.values(("none", "learned"), "accuracy") == {0: 0.5, 1: 0.5}
    assert rms.values(("none", "learned"), "accuracy") == {}
    assert masked.values(REAL, "accuracy") == rms.values(REAL, "accuracy") == {0: 0.7}


def test_a_row_that_is_chosen_by_layer_has_its_results(tmp_path, make_study):
    study = make_study(tmp_path / "s", seeds=(0,), latents=("none", "svd"), scales=("learned",), real=False)
    chosen = ["layer2.*=tucker", "*=svd"]
    cell = study / "cells" / "svd-learned-seed0" / "cell.json"
    for file, latent in ((study / "study.json", ["none", chosen]), (cell, chosen)):
        record = json.loads(file.read_text())
        record["axes"]["latent"] = latent
        file.write_text(json.dumps(record))
    view, found = first(study)
    assert found.latents == ["none", "layer2.*=tucker *=svd"]
    assert [len(view.values(row, "accuracy")) for row in found.rows] == [1, 1]


def test_weights_and_costs(study):
    view, found = first(study)
    assert weights(view, found).rows[0] == ["none, analytic", "0.3", "3.0%"]
    assert costs(view, found).rows[0] == ["none, analytic", "3", "1.0", "0.8"]
    assert len(comparisons(view, found).rows) == 10


def test_command_holds_no_path_of_the_machine(study):
    training = read_study(study).trainings[0]
    assert command_of(training).startswith("bitfactor train digits")
    assert f"--data DIR --out {training.cell.name}" in command_of(training)
    assert str(study) not in command_of(training)


def test_csv_has_a_line_per_training(tmp_path, make_study, add_cell, accuracy):
    study = make_study(tmp_path / "s", rates=(0.001, 0.003))
    add_cell(study, {"latent": "svd", "scale": "learned", "learning_rate": 0.003}, 9, 0.5, epochs=2)
    write_csv(trainings(read_study(study)), tmp_path / "s.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))
    assert len(lines) == 8 * 3 * 2 + 3 * 2 + 1
    for line in lines:
        if line["latent"] == "real":
            continue
        place = line["latent"], line["scale"], int(line["seed"]), float(line["learning_rate"])
        done = line["state"] == "finished"
        assert (float(line["accuracy"]) == accuracy(*place)) if done else (line["accuracy"] == "")
        assert int(line["epochs"]) == (EPOCHS if done else 2)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("study.json", "[]"),
        ("study.json", '{"recipe": "digits"}'),
        ("cells/svd-learned-seed1/cell.json", "{"),
        ("cells/svd-learned-seed1/outcome.json", "{}"),
        ("cells/svd-learned-seed1/log.jsonl", '{"epoch": 1'),
        ("cells/svd-learned-seed1/layers.json", '{"conv": {}}'),
        ("cells/svd-learned-seed1/layers.json", "[1]"),
    ],
)
def test_damaged_files_are_named(study, file, content):
    (study / file).write_text(content)
    with pytest.raises(InputError, match=file):
        read_study(study)


def test_another_directory_is_no_study(tmp_path):
    with pytest.raises(InputError, match="expected the directory of a study, found no such file"):
        read_study(tmp_path)


def test_rates_that_another_study_chose_are_shown(make_study, tmp_path):
    study = make_study(tmp_path / "study", latents=("none", "svd"), scales=("learned",))
    record = json.loads((study / "study.json").read_text())
    chosen = {"none-learned": 0.003, "svd-learned": 0.01, "real": 0.001}
    rates = {"chosen": chosen, "searched": [0.001, 0.003, 0.01], "seeds": 1, "holdout": "validation"}
    (study / "study.json").write_text(json.dumps({**record, "rates": rates}))
    for file in study.glob("cells/*/cell.json"):
        row = file.parent.name.rsplit("-seed", 1)[0]
        file.write_text(json.dumps({**json.loads(file.read_text()), "rate": chosen[row]}))
    table = results(*first(study))
    assert [line[table.head.index("learning rate")] for line in table.rows] == ["0.003", "0.01", "0.001"]
    said = " ".join(caution(read_study(study)))
    assert "at its best learning rate of 3 in an earlier study, one training of each" in said
    assert "measured on a validation part of the training data" in said
