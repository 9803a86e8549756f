"""A checkpoint that is damaged, missing, half-written or another process's costs no more than some steps."""

import errno
import io
import os
import shutil
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from tests.training.toy import toy_recipe

from bitfactor.binarization import Binarization
from bitfactor.common.errors import InputError
from bitfactor.models import ResNet
from bitfactor.nn import BinaryLayer
from bitfactor.training import Run, Source, build, train
from bitfactor.training.step import take_over

QUIET = Console(file=io.StringIO())


def empty(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:2000])


def flipped(path):
    """Change one byte of a tensor, which torch itself would read without a word."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(bytes(content))


def other(path):
    torch.save({"weights": torch.zeros(3)}, path)


DAMAGES = [empty, cut, flipped, other]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A training that is done, to be copied."""
    out = tmp_path_factory.mktemp("done") / "run"
    train(toy_recipe(), out, QUIET)
    return out


@pytest.fixture
def trained(done, tmp_path):
    return Run(shutil.copytree(done, tmp_path / "run"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_one_before_is_taken_and_ends_in_the_same_bits(recipe_of_toy, trained, damage):
    whole = trained.load()
    damage(trained.checkpoint)
    with pytest.warns(UserWarning, match=r"checkpoint\.ckpt: .*; taken is checkpoint-1\.ckpt, step 5"):
        assert trained.load()["step"] == 5
    with pytest.warns(UserWarning, match="taken is"):
        train(recipe_of_toy(), trained.path, QUIET)
    again = trained.load()
    assert again["step"] == 6
    assert all(torch.equal(value, again["model"][name]) for name, value in whole["model"].items())
    assert torch.load(trained.older(1))["step"] == 5


@pytest.mark.parametrize("damage", DAMAGES)
def test_where_nothing_else_is_whole_the_message_offers_the_best(trained, damage):
    damage(trained.checkpoint)
    damage(trained.older(1))
    with pytest.raises(InputError, match=r"; take --best \(best\.ckpt, step \d\), or delete it to train"):
        trained.load()
    damage(trained.best)
    with pytest.raises(InputError, match=r"found a file .*; delete it to train from the start"):
        trained.load()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_best_offers_the_last(trained, damage):
    damage(trained.best)
    with pytest.raises(InputError, match=r"take the last one, without --best, \(checkpoint\.ckpt, step 6\)"):
        trained.load(best=True)


def test_a_missing_one_is_not_begun_anew_without_a_word(trained):
    trained.checkpoint.unlink()
    with pytest.raises(InputError, match="found none yet; take --best"):
        trained.load()


@pytest.mark.parametrize("full", ["write", "copy"])
def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(recipe_of_toy, trained, monkeypatch, full):
    before = {path: path.read_bytes() for path in trained.path.glob("*.ckpt")}

    def no_space(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if full == "copy":
        monkeypatch.setattr("os.link", no_space)
        monkeypatch.setattr("shutil.copyfile", no_space)
    with pytest.raises(InputError, match=r"No space left on device; .*the last checkpoint is whole"):
        trained.save(no_space if full == "write" else lambda path: path.write_bytes(b"new"))
    assert {path: path.read_bytes() for path in trained.path.glob("*.ckpt")} == before
    assert [path.name for path in trained.path.iterdir() if "partial" in path.name] == []


HOLD = """
import sys, time
from pathlib import Path
from bitfactor.training import Run
with Run(Path(sys.argv[1])).alone():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("begun", [True, False])
def test_of_two_processes_on_one_run_the_second_is_refused(recipe_of_toy, tmp_path, begun):
    """The lock dies with its owner, however that ends, and a refused process leaves all as it was."""
    if begun:
        train(recipe_of_toy(), tmp_path, QUIET)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        before = {path.name for path in tmp_path.iterdir()}
        with pytest.raises(InputError, match="expected a run that no other process trains"):
            train(recipe_of_toy(), tmp_path, QUIET)
        assert {path.name for path in tmp_path.iterdir()} == before
    finally:
        holder.kill()
        holder.communicate()
    assert train(recipe_of_toy(), tmp_path, QUIET)["step"] == 6


def test_all_but_the_head_is_taken_over_from_other_classes(recipe_of_toy):
    source, model = recipe_of_toy().model(), recipe_of_toy().model()
    source.fc = torch.nn.Linear(source.fc.in_features, 7)
    fresh = model.fc.weight.clone()
    with pytest.warns(UserWarning, match=r"fc\.weight, \(7, 16\) there and \(3, 16\) here, and 1 more stay"):
        take_over(model, source)
    assert torch.equal(model.fc.weight, fresh)
    assert torch.equal(model.conv1.weight, source.conv1.weight)


def test_the_last_layer_stays_where_as_many_classes_are_others(recipe_of_toy):
    recipe = recipe_of_toy()
    source, fresh = recipe.model(), build(recipe).fc.weight
    with pytest.warns(UserWarning, match="--from: its classes are others, so fc stays as drawn"):
        model = build(recipe, Source(source, ("a", "b", "c")), ("a", "b", "d"))
    assert torch.equal(model.fc.weight, fresh)
    assert torch.equal(model.conv1.weight, source.conv1.weight)
    with pytest.warns(UserWarning, match="its classes are others"):
        model = build(recipe, Source(source, ("c", "b", "a")), ("a", "b", "c"))
    assert torch.equal(model.fc.weight, fresh)
    for theirs in ("a", "b", "c"), ():
        assert torch.equal(build(recipe, Source(source, theirs), ("a", "b", "c")).fc.weight, source.fc.weight)


def test_what_fits_is_taken_over_from_another_network_and_nothing_is_an_error(recipe_of_toy):
    model = recipe_of_toy().model()
    source = ResNet((1, 1), (8, 24), 3, in_channels=1, stem="cifar")
    with pytest.warns(UserWarning, match=r"tensors are taken over; layer2.0.conv1.weight"):
        take_over(model, source)
    assert torch.equal(model.layer1[0].conv1.weight, source.layer1[0].conv1.weight)
    other = ResNet((1, 1), (12, 24), 5, in_channels=1, stem="cifar")
    with pytest.raises(
        InputError, match=r"--from: .*such as conv1.weight \(8, 1, 3, 3\), found conv1.weight \(12, 1, 3, 3\)"
    ):
        take_over(model, other)


@pytest.mark.parametrize("scale", ["learned", "analytic"])
@pytest.mark.parametrize("latent", ["none", "tucker"])
def test_a_network_starts_as_the_one_it_is_taken_from(latent, scale, recipe_of_toy, toy):
    """Of a stage with real weights too: the next one starts from its weights, statistics and scales."""
    first = recipe_of_toy(binarization=Binarization(latent="none", scale=scale, weights=False))
    source = build(first)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.mul_(torch.rand(parameter.shape) + 0.5)
    source(toy.images(0, 16)[0])
    network = build(recipe_of_toy(binarization=Binarization(latent=latent, scale=scale)), Source(source))
    for layer in network.modules():
        if isinstance(layer, BinaryLayer):
            layer.binary_weights = False
    x = toy.images(1, 4)[0]
    torch.testing.assert_close(network.eval()(x), source.eval()(x), rtol=1e-3, atol=1e-4)


def test_all_but_the_heads_is_taken_over_from_other_keypoints():
    """An hourglass has a head for each stack, and what brings its maps back into the next."""
    from bitfactor.models import Hourglass

    shape = {"stacks": 2, "channels": 16, "depth": 2}
    source, model = Hourglass(keypoints=16, **shape), Hourglass(keypoints=14, **shape)
    with pytest.warns(UserWarning, match=r"257 of 262 tensors .*\(16, 14, 1, 1\) here, and 4 more"):
        take_over(model, source)
    same = [
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), source.state_dict().values(), strict=True)
        if a.shape == b.shape
    ]
    assert all(same)
