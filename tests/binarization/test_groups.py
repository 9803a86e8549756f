"""Which convolutions share a tensor: found by shape, or given."""

from itertools import pairwise

import pytest
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.models import resnet18


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return resnet18(num_classes=10)


def stage(number: int) -> list[str]:
    return [f"layer{number}.0.conv2", f"layer{number}.1.conv1", f"layer{number}.1.conv2"]


FIRST = ["layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1", "layer1.1.conv2"]
LATER = [stage(2), stage(3), stage(4)]


def test_presets(resnet) -> None:
    def banks(groups: str | None) -> list[list[str]]:
        plan = binarize_(resnet, Binarization(groups=groups), dry_run=True)
        names = dict.fromkeys(layer.bank for layer in plan.binary if layer.bank)
        return [[layer.name for layer in plan.binary if layer.bank == bank] for bank in names]

    assert banks(None) == banks("paper") == LATER
    assert banks("auto") == [FIRST, *LATER]


def test_groups_given_by_the_user() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
    binarize_(model, groups={"grid": [["1", "2", "3"], ["4", "5", "6"]]})
    assert model[6].latent.bank.core.shape == (2, 3, 4, 4)
    assert model[6].latent.place == (1, 2)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["1", "9"]}, "found '9'"),
        ({"a": ["1", "2"], "b": ["2", "3"]}, "'2' twice"),
        ({"a": [["1", "2"], ["3"]]}, "a full grid of 4"),
        ({"a": ["1", ["2", "3"]]}, "nested to one depth"),
        ({"a": ["1", "4"]}, "one weight shape"),
        ({"a": ["0", "1"]}, "which stays real"),
    ],
)
def test_what_is_no_grid(groups, message) -> None:
    sizes = [4, 4, 4, 4, 4, 6, 6]
    model = nn.Sequential(*(nn.Linear(i, o) for i, o in pairwise(sizes)))
    with pytest.raises(InputError, match=message):
        binarize_(model, groups=groups)


def test_the_paper_preset_needs_a_model_that_has_one() -> None:
    with pytest.raises(InputError, match="holistic_groups"):
        binarize_(nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))), Binarization(groups="paper"))
