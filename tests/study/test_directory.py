"""A study's directory takes more rows and seeds, and refuses another study."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from bitfactor.common.errors import InputError
from bitfactor.study import Grid, StudyDirectory

AXES = {"latent": ["none"], "scale": ["learned"]}


@pytest.fixture
def study(tmp_path):
    study = StudyDirectory(tmp_path / "study")
    study.start("digits", {"epochs": 2}, Grid(AXES, [0]))
    return study


def record(study):
    return json.loads((study.path / "study.json").read_text())


def test_new_values_and_seeds_widen_a_study_and_fewer_leave_it(study):
    begun = record(study)
    study.start("digits", {"epochs": 2}, Grid({**AXES, "latent": ["svd", "none"]}, [0, 1], real=True))
    study.start("digits", {"epochs": 2}, Grid(AXES, [0]))
    widened = {"axes": {"latent": ["none", "svd"], "scale": ["learned"]}, "seeds": [0, 1], "real": True}
    assert record(study) == begun | widened


@pytest.mark.parametrize(
    ("recipe", "arguments", "axes", "found"),
    [
        ("cifar10-resnet18", {"epochs": 2}, AXES, "a study of digits"),
        ("digits", {"epochs": 3}, AXES, "a study with epochs = 2 instead of 3"),
        ("digits", {}, AXES, "a study with epochs = 2 instead of its default"),
        (
            "digits",
            {"epochs": 2, "max_grad_norm": 1},
            AXES,
            "a study with max-grad-norm = its default instead of 1",
        ),
        ("digits", {"epochs": 2}, {**AXES, "rank": [1]}, "a study over latent, scale instead of latent"),
    ],
)
def test_another_study_is_not_mixed_in(study, recipe, arguments, axes, found):
    before = record(study)
    with pytest.raises(InputError, match=found):
        study.start(recipe, arguments, Grid(axes, [0]))
    assert record(study) == before


def test_a_study_of_an_earlier_version_holds_words_and_is_widened_by_values(study):
    begun = {name: value for name, value in record(study).items() if name != "choices"} | {"rates": None}
    words = {"epochs": "2", "no-move": True, "max-grad-norm": "1e-1", "widths": "8", "compile": True}
    axes = {**AXES, "blocks": ["1", "1 1"], "rank": ["None", "4"], "input_scale": ["on", "off"]}
    (study.path / "study.json").write_text(json.dumps(begun | {"arguments": words, "axes": axes}))
    values = {"epochs": 2, "move": False, "max_grad_norm": 0.1, "widths": (8,), "compile": True}
    now = {**AXES, "blocks": [(1, 1), (2, 2)], "rank": [4, 8], "input_scale": [True]}
    study.start("digits", values, Grid(now, [0]))
    found = record(study)["axes"]
    assert found["blocks"] == [1, [1, 1], [2, 2]]
    assert (found["rank"], found["input_scale"]) == ([None, 4, 8], [True, False])
    with pytest.raises(InputError, match="a study with move = off instead of on"):
        study.start("digits", values | {"move": True}, Grid(now, [0]))


def test_another_directory_is_not_written_to(tmp_path):
    (tmp_path / "recipe.json").touch()
    with pytest.raises(InputError, match="something that is no study"):
        StudyDirectory(tmp_path).start("digits", {}, Grid(AXES, [0]))
    assert not (tmp_path / "study.json").exists()


def test_several_begin_it_at_once(tmp_path):
    study = StudyDirectory(tmp_path / "study")
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(study.start, "digits", {}, Grid(AXES, [seed])) for seed in range(8)]:
            each.result()
    assert record(study)["seeds"] == [*range(8)]


def test_a_damaged_record_is_named(study):
    (study.path / "study.json").write_text("{")
    with pytest.raises(InputError, match=r"study\.json: expected what `bitfactor ablate` writes"):
        study.start("digits", {"epochs": 2}, Grid(AXES, [0]))
