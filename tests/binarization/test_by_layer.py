"""A choice may differ by layer: the first pattern that fits counts, one that fits none is refused."""

import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from bitfactor.api.check import check
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.decompositions import BankSlice, Tucker, Window, register
from bitfactor.decompositions.shared import build_shared
from bitfactor.models import resnet18
from bitfactor.nn import AnalyticScale, LearnedScale


@pytest.mark.filterwarnings("ignore:weight_estimator 'identity'")
def test_the_first_pattern_that_fits_counts() -> None:
    model = resnet18(num_classes=10)
    plan = binarize_(
        model,
        latent={"layer4.*": "window", "*": "tucker"},
        scale={"layer1.0.*": "analytic"},
        rank={"layer2": 0.5},
        weight_estimator={"layer3.1.conv1": "rms", "layer3": "identity"},
    )
    assert isinstance(model.layer4[1].conv1.latent, Window)
    assert isinstance(model.layer3[1].conv1.latent, Tucker)
    assert isinstance(model.layer1[0].conv1.scale, AnalyticScale)
    assert isinstance(model.layer1[1].conv1.scale, LearnedScale)
    assert model.layer2[1].conv1.latent.core.shape == (64, 64, 2, 2)
    assert model.layer1[1].conv1.latent.core.shape == (64, 64, 3, 3)
    estimators = [conv.weight_estimator for conv in (model.layer3[1].conv1, model.layer3[1].conv2)]
    assert estimators == ["rms", "identity"]
    assert model.layer1[0].conv1.weight_estimator == "clipped"
    assert {layer.latent for layer in plan.binary} == {"window", "tucker"}
    assert "weight estimator" in str(plan)
    model.eval()(torch.randn(1, 3, 32, 32))


def test_holistic_joins_the_layers_that_have_it() -> None:
    model = resnet18(num_classes=10)
    binarize_(model, latent={"layer1": "none", "*": "holistic"})
    assert isinstance(model.layer2[1].conv1.latent, BankSlice)
    assert model.layer2[1].conv1.latent.bank is model.layer2[1].conv2.latent.bank


def test_layers_of_one_bank_have_one_rank() -> None:
    with pytest.raises(InputError, match="joins them"):
        binarize_(resnet18(), latent="holistic", groups="auto", rank={"layer2.1.conv1": 4})


def test_it_is_stored_as_plain_values() -> None:
    chosen = Binarization(latent={"a.*": "svd", "*": Tucker}, rank={"a.*": 2, "*": 0.5})
    assert chosen.latent == ("a.*=svd", "*=tucker")
    assert Binarization(**json.loads(json.dumps(asdict(chosen)))) == chosen
    assert Binarization(latent=("a.*=svd", "*=tucker"), rank=("a.*=2", "*=0.5")) == chosen
    assert chosen.words("latent") == "a.*=svd *=tucker"
    assert Binarization(latent=chosen.words("latent")).latent == chosen.latent
    assert Binarization(rank={"a": (2, 0.5), "*": None}).choices(["a", "b"])["a"].rank == (2, 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"latent": {"layer9.*": "svd"}}, "matches none"),
        ({"latent": {"*": "svd", "layer1": "none"}}, "put it before"),
        ({"latent": {"layer1": "none", "*": "svd"}, "rank": {"layer1.0": 3}}, "with a rank"),
        ({"scale": {"fc": "analytic"}}, "matches none"),
        ({"latent": {}}, "a value for each pattern"),
        ({"latent": {3: "svd"}}, "a value for each pattern"),
        ({"latent": {"*": "tuker"}}, "did you mean tucker"),
        ({"rank": {"*": "half"}}, "rank"),
        ({"latent": {"*": "none"}, "rank": 3}, "leave rank out"),
        ({"weight_estimator": {"*": "cliped"}}, "did you mean clipped"),
        ({"latent": ("layer1=svd", "tucker")}, "latent"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused_in_one_sentence(options, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        binarize_(resnet18(), **{"latent": "tucker", **options})
    assert "\n" not in str(error.value)


def test_a_joint_decomposition_of_ones_own_joins_its_layers() -> None:
    from bitfactor.decompositions import JOINT

    register("own_shared", build_shared, joint=True)
    try:
        model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(5)))
        binarize_(model, latent={"1": "none", "*": "own_shared"})
        assert model[2].latent.output is model[3].latent.output
    finally:
        JOINT.pop("own_shared")


class Held(nn.Module):
    """Calls its layers by a list, a dict and a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.other, self.head = (nn.Linear(6, 6) for _ in range(4))
        self.steps = [self.stem, (self.conv, {"other": self.other})]
        head = self.head
        self.last = lambda x: head(x)

    def forward(self, x):
        stem, (conv, others) = self.steps
        return self.last(others["other"](conv(stem(x))))


def test_what_forward_calls_is_what_turns_binary() -> None:
    model, x = Held(), torch.randn(3, 6)
    plan = binarize_(model, latent="none", real_ends=False)
    assert [layer.name for layer in plan.binary] == ["stem", "conv", "other", "head"]
    one = nn.Sequential(model.stem, model.conv, model.other, model.head)
    assert torch.equal(model(x), one(x))
    model(x).sum().backward()
    assert all(layer.scale.alpha.grad is not None for layer in one)


class Twice(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


def _net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


@pytest.mark.parametrize("given", [True, False])
def test_the_first_layer_is_the_first_one_also_where_it_cannot_turn_binary(given) -> None:
    model, x = _net(), torch.randn(2, 3, 12, 12)
    model[0] = Twice(3, 8, 3)
    plan = binarize_(model, latent="none", **({"example": x} if given else {}))
    assert [layer.name for layer in plan.binary] == ["1", "2"]


def test_a_layer_that_cannot_turn_binary_may_be_named_in_keep_real() -> None:
    model = _net()
    model[1] = Twice(8, 8, 3)
    plan = binarize_(model, latent="none", keep_real=["1"])
    assert [layer.name for layer in plan.binary] == ["2"]


@pytest.mark.parametrize("turn", [binarize_, check])
@pytest.mark.parametrize("kind", [nn.LazyConv2d, nn.LazyConvTranspose2d, nn.LazyBatchNorm2d])
def test_a_lazy_layer_says_that_it_has_no_weight_yet(kind, turn) -> None:
    model = _net()
    model[1] = kind() if kind is nn.LazyBatchNorm2d else kind(8, 3)
    with pytest.raises(InputError, match=r"layer 1: expected weights.*on a batch"):
        turn(model, example=torch.randn(2, 3, 8, 8), latent="none")


@pytest.mark.parametrize("option", [{"initialisation": "identity"}, {"orthogonality": 0.1}])
@pytest.mark.parametrize("latent", ["none", "cosine"])
def test_an_option_that_no_latent_takes_is_refused(latent, option) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        binarize_(_net(), latent=latent, **option)
