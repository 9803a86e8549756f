"""Merging the decompositions into free weights on the way: exact at that moment, and resumable around it."""

import shutil
from functools import cache
from itertools import product

import pytest
import torch
from tests.cases import slow_beside
from torch import nn

import bitfactor
from bitfactor.decompositions import Dense
from bitfactor.nn import BinaryConv2d, merge_
from bitfactor.training import Run

FLAGS = {"epochs": 3, "batch_size": 128, "widths": [16, 32], "checkpoint_steps": 4, "diagnose": 4}
STEPS = 33


@pytest.mark.parametrize(
    "latent", ["svd", "tucker", "tt", "product", "cosine", "window", "shared", "holistic"]
)
def test_the_network_computes_what_it_did(latent):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4)))
    groups = {"groups": "auto"} if latent == "holistic" else {}
    bitfactor.binarize_(model, latent=latent, real_ends=False, **groups)
    inputs = torch.randn(2, 8, 6, 6)
    before = model(inputs)
    assert merge_(model) is model
    assert all(isinstance(layer.latent, Dense) for layer in model)
    assert torch.equal(model(inputs), before)
    assert len({id(p) for p in model.parameters()}) == 4 * 3  # weight, alpha, bias
    model(inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_other_things_are_refused():
    with pytest.raises(bitfactor.InputError, match="merge_: expected a Module"):
        merge_(3)


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """Return the options of a training with a latent that was merged, and its run, trained once."""

    @cache
    def merged(latent):
        out = tmp_path_factory.mktemp("merged") / "run"
        options = {**FLAGS, "latent": latent, "merge_epoch": 1, "ema": 0.9, "keep_last": 99}
        bitfactor.train("digits", out=out, **options)
        return options, out

    return merged


@pytest.mark.parametrize("latent", ["tucker", "holistic"])
def test_it_is_trained_evaluated_and_exported_as_a_free_weight(merged, latent, tmp_path):
    _, out = merged(latent)
    model = bitfactor.load(out)
    layers = [layer for layer in model.modules() if isinstance(layer, BinaryConv2d)]
    assert layers
    assert all(isinstance(layer.latent, Dense) for layer in layers)
    assert bitfactor.evaluate(out).accuracy == pytest.approx(Run(out).history()[-1]["accuracy"])
    bitfactor.export(model.eval(), tmp_path / "net.safetensors", torch.rand(2, 1, 8, 8))
    assert [row["loss"] for row in Run(out).history()] == sorted(
        (row["loss"] for row in Run(out).history()), reverse=True
    )
    moved = Run(out).movement()
    assert min(line["condition"] for line in moved if line["step"] <= STEPS // 3) > 1
    assert {line["condition"] for line in moved if line["step"] > STEPS // 3} == {1.0}


@pytest.mark.parametrize(
    ("latent", "step"),
    slow_beside(
        [("tucker", 8), ("tucker", STEPS // 3), ("holistic", 16)],
        product(("tucker", "holistic"), (8, STEPS // 3, 16)),
    ),
)
def test_it_goes_on_with_the_same_bits_from_before_and_after(merged, latent, step, tmp_path):
    options, out = merged(latent)
    again = tmp_path / "again"
    shutil.copytree(out, again)
    (kept,) = (path for path in out.glob("checkpoint*.ckpt") if torch.load(path)["step"] == step)
    for path in again.glob("*.ckpt"):
        path.unlink()
    shutil.copy(kept, again / "checkpoint.ckpt")
    assert torch.load(kept)["merged"] == (step > STEPS // 3)
    bitfactor.train("digits", out=again, **options)
    whole, resumed = Run(out).load(), Run(again).load()
    for part in ("model", "average"):
        assert all(torch.equal(whole[part][name], resumed[part][name]) for name in whole[part])
    assert Run(out).movement() == Run(again).movement()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge_epoch": 3}, "--merge-epoch: expected fewer than 3, found 3"),
        ({"merge_epoch": -1}, "--merge-epoch: expected 0 or more, found -1"),
        ({"merge_epoch": 1, "latent": "none"}, "merge_epoch: expected a decomposition to merge for 1"),
    ],
)
def test_what_cannot_be_merged(tmp_path, options, said):
    with pytest.raises(bitfactor.InputError, match=said):
        bitfactor.train("digits", out=tmp_path / "run", **{**FLAGS, "latent": "tucker", **options})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("latent", ["tucker", "holistic", "shared"])
def test_an_optimizer_from_before_is_refused(latent):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
    bitfactor.binarize_(model, latent=latent)
    optimizer = torch.optim.Adam(model.parameters())
    merge_(model)
    model(torch.randn(2, 4)).sum().backward()
    with pytest.raises(
        bitfactor.InputError, match="Adam: expected the parameters of the binary model, found"
    ):
        optimizer.step()
    torch.optim.Adam(model.parameters()).step()


def test_a_bank_that_other_layers_still_use_is_learned_on():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3)])
    bitfactor.binarize_(model, latent="holistic", real_ends=False)
    merge_(model[0])
    model(torch.randn(2, 4)).sum().backward()
    torch.optim.Adam(model.parameters()).step()


def test_a_free_weight_stays_the_same_parameter_so_its_optimizer_goes_on():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    bitfactor.binarize_(model, latent="none")
    weight = model[1].latent.weight
    assert merge_(model)[1].latent.weight is weight
