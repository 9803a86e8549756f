"""The trainings of a study: their order, their names and the flags of each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.study import Cell, Grid

LATENTS = ["none", "tucker"]


def test_seeds_come_last_so_that_every_row_has_a_first_answer():
    grid = Grid({"latent": LATENTS, "scale": ["learned"], "learning_rate": [0.001, 0.003]}, [0, 1], real=True)
    assert [cell.name for cell in grid] == [
        f"{row}-seed{seed}-lr{rate}"
        for seed in (0, 1)
        for row, rate in [
            ("none-learned", 0.001),
            ("tucker-learned", 0.001),
            ("none-learned", 0.003),
            ("tucker-learned", 0.003),
            ("real", 0.001),
            ("real", 0.003),
        ]
    ]


def test_the_full_precision_baseline_has_no_axis_of_a_binarization():
    axes = {"latent": LATENTS, "scale": ["learned"], "weight_estimator": ["clipped", "rms"]}
    baselines = [cell for cell in Grid(axes, [0], real=True) if cell.real]
    assert [(baseline.name, baseline.flags) for baseline in baselines] == [
        ("real-seed0", ["--real", "--seed", "0"])
    ]


def test_an_axis_is_left_out_where_it_means_nothing():
    axes = {"latent": LATENTS, "scale": ["learned"], "merge_epoch": ["0", "1"], "diagnose": ["0", "4"]}
    assert [cell.name for cell in Grid(axes, [0], real=True)] == [
        "none-learned-seed0-diagnose=0",
        "tucker-learned-seed0-merge_epoch=0-diagnose=0",
        "none-learned-seed0-diagnose=4",
        "tucker-learned-seed0-merge_epoch=0-diagnose=4",
        "tucker-learned-seed0-merge_epoch=1-diagnose=0",
        "tucker-learned-seed0-merge_epoch=1-diagnose=4",
        "real-seed0",
    ]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.004, "0.004"),
        (1e-3, "0.001"),
        (3e-5, "3e-05"),
        (1.0, "1"),
        (0.0012345678, "0.0012345678"),
        (0.0012345681, "0.0012345681"),
    ],
)
def test_a_rate_is_written_so_that_the_same_is_read(rate, text):
    cell = Cell({"latent": "none", "scale": "learned"}, 0, chosen={"learning_rate": rate})
    assert cell.flags[4:6] == ["--learning-rate", text]
    axes = {"latent": "none", "scale": "learned", "learning_rate": rate}
    assert Cell(axes, 0).name == f"none-learned-seed0-lr{text}"


def test_flags_are_those_of_train():
    cell = Cell(
        {
            "latent": "svd",
            "scale": "learned",
            "learning_rate": 3e-5,
            "widths": (8, 16),
            "compile": True,
            "mirror": False,
        },
        seed=2,
    )
    assert " ".join(cell.flags) == (
        "--latent svd --scale learned --learning-rate 3e-05 --widths 8 16 --compile --no-mirror --seed 2"
    )


@pytest.mark.parametrize("kind", ["weight", "activation"])
def test_what_stays_real_is_trained_once_for_all_its_estimators(kind):
    axes = {f"{kind}s": [True, False], f"{kind}_estimator": ["clipped", "rms"]}
    cells = list(Grid({"latent": ["none"], "scale": ["learned"], **axes}, [0]))
    assert [cell.name for cell in cells] == [
        f"none-learned-seed0-{kind}s=on-{kind}_estimator=clipped",
        f"none-learned-seed0-{kind}s=on-{kind}_estimator=rms",
        f"none-learned-seed0-{kind}s=off",
    ]


@settings(max_examples=30, deadline=None)
@given(
    axes=st.dictionaries(
        st.sampled_from(["learning_rate", "rank", "mixup", "groups"]),
        st.lists(st.sampled_from([0.1, 0.25, "auto", "1 2"]), min_size=1, max_size=3, unique=True),
    ),
    seeds=st.integers(1, 3),
    real=st.booleans(),
)
def test_every_cell_has_a_name_and_flags_of_its_own(axes, seeds, real):
    cells = list(Grid({"latent": LATENTS, "scale": ["analytic"], **axes}, range(seeds), real))
    assert len({cell.name for cell in cells}) == len({tuple(cell.flags) for cell in cells}) == len(cells)
    assert all(set(cell.name).isdisjoint("/ ") for cell in cells)
