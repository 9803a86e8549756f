"""Images for evaluation are the same inputs as in training's evaluation, bit for bit."""

import shutil

import numpy as np
import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, Cifar100, Digits, ImageFolder, Shards
from bitfactor.data.readers.check import images_in
from bitfactor.data.readers.evaluation_set import Wanted, of_digits
from bitfactor.format import InputSpec


def wanted(data, **options):
    return Wanted("net", data.labels, data.input_spec, **options)


def same(found, data):
    """Whether an evaluation set yields what a data set yields in training."""
    ours = [np.concatenate(column) for column in zip(*found.batches(), strict=True)]
    theirs = [torch.cat(column).numpy() for column in zip(*data.test_batches(7), strict=True)]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert ours[0].dtype == np.float32
    assert found.name == data.test_name


@pytest.mark.parametrize("holdout", ["test", "validation"])
@pytest.mark.parametrize("kind", [Cifar10, Cifar100])
def test_cifar(cifar, kind, holdout):
    directory, _, _ = cifar(kind)
    data = kind.load(directory, holdout=holdout)
    same(images_in(directory, wanted(data, holdout=holdout)), data)


@pytest.mark.parametrize("preset", ["paper", "standard"])
@pytest.mark.parametrize("holdout", ["test", "validation"])
def test_folder(folder, preset, holdout):
    data = ImageFolder.load(folder, preset=preset, size=32, holdout=holdout, workers=0)
    same(images_in(folder, wanted(data, holdout=holdout)), data)


@pytest.mark.parametrize("holdout", ["test", "validation"])
def test_shards(shards, holdout, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = shards()
    data = Shards.load(directory, size=16, holdout=holdout, workers=0)
    same(images_in(directory, wanted(data, holdout=holdout)), data)
    few = images_in(directory, wanted(data, limit=3))
    assert sorted(np.concatenate([classes for _, classes in few.batches()])) == [0, 1, 2]


def test_digits():
    data = Digits.load()
    same(of_digits(None, wanted(data)), data)


def test_grey_images(folder):
    spec = InputSpec((16, 16), (16, 16), (0.5,), (0.5,))
    found = images_in(folder, Wanted("net", ("cat", "dog"), spec))
    assert next(found.batches())[0].shape == (6, 1, 16, 16)


def test_labels_in_another_order(folder):
    data = ImageFolder.load(folder, size=32, workers=0)
    swapped = images_in(folder, Wanted("net", ("dog", "mouse", "cat"), data.input_spec))
    classes = np.concatenate([classes for _, classes in swapped.batches()])
    assert classes.tolist() == [2, 2, 2, 0, 0, 0]
    assert swapped.notes == ("no images of 1 of its 3 classes: mouse",)


def test_a_class_called_as_a_part(tmp_path, jpeg):
    """Where a class is called `test`, its directory is not taken for a test set."""
    for name in ("test", "train-engine"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.jpg").write_bytes(jpeg(i))
    spec = InputSpec((16, 16), (16, 16), (0.5,) * 3, (0.5,) * 3)
    found = images_in(tmp_path, Wanted("net", ("test", "train-engine"), spec))
    assert found.total == 6


def test_cifar_of_other_classes(cifar):
    directory, _, _ = cifar()
    data = Cifar10.load(directory)
    with pytest.raises(InputError, match=r"expected classes of net \(cat, dog\), found the class class0"):
        images_in(directory, Wanted("net", ("cat", "dog"), data.input_spec))
    more = images_in(directory.parent, Wanted("net", (*data.labels, "new"), data.input_spec))
    assert more.notes == ("no images of 1 of its 11 classes: new",)


def test_what_is_known_of_the_training(folder, tmp_path):
    data = ImageFolder.load(folder, size=32)
    other = {"path": None, "train": 1, "test": 1, "fingerprint": 32 * "0"}
    assert images_in(folder, wanted(data, trained_with=other)).notes == (
        "other images than it was trained with",
    )
    own = {**other, "fingerprint": "of a data set of its own"}
    assert images_in(folder, wanted(data, trained_with=own)).notes == ()
    flat = shutil.copytree(folder / "train", tmp_path / "flat")
    grown = {**other, "path": str(flat)}
    found = images_in(flat, wanted(data, trained_with=grown))
    assert (found.total, found.notes) == (2, ("other images than it was trained with",))


def test_parts_that_are_spelled_otherwise(folder):
    (folder / "train").rename(folder / "Training")
    (folder / "val").rename(folder / "EVAL")
    data = ImageFolder.load(folder, size=32, workers=0)
    same(images_in(folder, wanted(data)), data)
    shutil.rmtree(folder / "Training")
    same(images_in(folder, wanted(data)), data)
