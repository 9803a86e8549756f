"""A typo never changes an experiment in silence, and an option that does nothing is said."""

import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.models import resnet18

WRONG = [
    ({"latent": "tuker"}, "did you mean tucker"),
    ({"scale": "analytical"}, "did you mean analytic"),
    ({"start": "xavier"}, "weight, he"),
    ({"initialisation": "factorized"}, "did you mean factorised"),
    ({"groups": "autos"}, "paper, auto"),
    ({"alpha_start": "one"}, "did you mean ones"),
    ({"padding_value": 2}, "-1, 0, 1"),
    ({"padding_value": True}, "-1, 0, 1"),
    ({"rank": -3}, "rank"),
    ({"rank": True}, "rank"),
    ({"rank": "half"}, "rank"),
    ({"rank": 1.0}, "leave rank out"),
    ({"activations": "no"}, "True or False"),
    ({"weights": 1}, "True or False"),
    ({"weight_estimator": "cliped"}, "did you mean clipped"),
    ({"activation_estimator": "poly"}, "activation_estimator"),
    ({"orthogonality": float("nan")}, "finite"),
    ({"orthogonality": -1.0}, "0 or more"),
    ({"latent": "none", "rank": 3}, "leave rank out"),
    ({"detach_alpha": True}, "scale 'analytic'"),
    ({"scale": "none", "alpha_start": "ones"}, "a learned scale"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=str)
def test_each_option_is_checked_where_it_is_made(options, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        Binarization(**options)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=words):
        binarize_(mlp(), **options)


def mlp() -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])


def test_the_options_may_be_arguments() -> None:
    first, second = mlp(), mlp()
    one = binarize_(first, latent="svd", scale="analytic", rank=2)
    assert one == binarize_(second, Binarization(latent="svd", scale="analytic", rank=2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"latnet": "svd"}, "did you mean latent"),
        ({"binarization": Binarization(), "latent": "svd"}, "both"),
        ({"binarization": "svd"}, "a Binarization"),
        ({"keep_real": 3}, "keep_real"),
        ({"keep_real": nn.Linear(2, 2)}, "modules of the model"),
        ({"latent": "svd", "groups": {"a": ["1", "2"]}}, "leave groups out"),
        ({"dry_run": "yes"}, "True or False"),
        ({"example": 3}, "example"),
        ({"rank": 1000}, "at most the full ranks"),
    ],
    ids=str,
)
def test_a_wrong_argument_gets_one_sentence(arguments, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        binarize_(mlp(), **arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", [None, nn.Linear, [nn.Linear(2, 2)]])
def test_what_is_no_model(model) -> None:
    with pytest.raises(InputError, match="a Module"):
        binarize_(model)


def test_keep_real_of_the_choices_adds_to_that_of_the_call() -> None:
    model = resnet18(num_classes=2)
    chosen = Binarization("none", keep_real=("layer1.0.conv1", "layer2.*"))
    plan = binarize_(model, chosen, keep_real="layer3.1.conv2", dry_run=True)
    kept = {layer.name for layer in plan.layers if layer.reason == "named in keep_real"}
    assert {"layer1.0.conv1", "layer2.0.conv1", "layer2.1.conv2", "layer3.1.conv2"} <= kept
    assert not any(name.startswith("layer4") for name in kept)


def test_keep_real_takes_one_name_and_modules() -> None:
    for keep in ("layer2", lambda model: model.layer2, lambda model: [model.layer2, "layer3.0"]):
        model = resnet18()
        plan = binarize_(model, latent="none", keep_real=keep(model) if callable(keep) else keep)
        kept = {layer.name for layer in plan.layers if layer.reason == "named in keep_real"}
        assert {"layer2.0.conv1", "layer2.1.conv2"} <= kept


def test_ranks_of_each_mode_fit_a_mixed_holistic_model() -> None:
    plan = binarize_(resnet18(), latent="holistic", rank=(0.5, 0.5, 3, 3), dry_run=True)
    ranks = {layer.name: layer.rank for layer in plan.binary}
    assert ranks["layer1.0.conv1"] == (32, 32, 3, 3)
    assert ranks["layer2.1.conv1"] == (3, 64, 64, 3, 3)


def test_an_optimizer_from_before_is_found_at_its_first_step() -> None:
    model = mlp()
    stale = torch.optim.SGD(model.parameters(), lr=0.1)
    binarize_(model, latent="tucker")
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 4)).sum().backward()
    fresh.step()
    with pytest.raises(InputError, match="after binarize_"):
        stale.step()


def test_an_optimizer_of_free_weights_goes_on() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    binarize_(model, latent="none")
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
