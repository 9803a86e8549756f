"""A data set is known again wherever it lies, and other images of the same classes are not taken for it."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, Digits, ImageFolder, Lsp, Shards, identity_of
from bitfactor.data.readers.files import FileStore
from bitfactor.data.readers.identity import identity_in, published, remembered, which_images


def of_folder(directory, **options):
    return identity_of(ImageFolder.load(directory, size=32, **options), directory)


def test_a_moved_folder_is_the_same(folder, tmp_path):
    found = of_folder(folder)
    assert (found["train"], found["test"], found["path"]) == (20, 6, str(folder))
    assert len(found["fingerprint"]) == 32
    assert int(found["fingerprint"], 16)
    moved = of_folder(shutil.copytree(folder, tmp_path / "moved"))
    assert moved == {**found, "path": str(tmp_path / "moved")}


def test_a_relative_path_is_remembered_as_a_whole_one(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert of_folder(Path(folder.name))["path"] == str(folder.resolve())


@pytest.mark.parametrize(
    "change",
    [
        lambda folder, jpeg: (folder / "train" / "cat" / "train0.jpg").write_bytes(jpeg(999)),
        lambda folder, jpeg: (folder / "train" / "cat" / "more.jpg").write_bytes(jpeg(3)),
        lambda folder, jpeg: (folder / "train" / "cat" / "train0.jpg").unlink(),
        lambda folder, jpeg: (folder / "train" / "cat" / "train0.jpg").rename(
            folder / "train" / "dog" / "x.jpg"
        ),
    ],
)
def test_other_training_images(folder, jpeg, change):
    before = of_folder(folder)["fingerprint"]
    change(folder, jpeg)
    after = of_folder(folder)["fingerprint"]
    assert after[:16] != before[:16]
    assert after[16:] == before[16:]


def test_test_images_are_told_from_training_images(folder, jpeg):
    before = of_folder(folder)["fingerprint"]
    (folder / "val" / "cat" / "val0.jpg").write_bytes(jpeg(999))
    after = of_folder(folder)["fingerprint"]
    assert (after[:16] == before[:16], after[16:] == before[16:]) == (True, False)
    assert of_folder(folder, holdout="validation")["test"] == 2


def test_images_in_memory(cifar):
    directory, _, _ = cifar()
    data = Cifar10.load(directory)
    found = identity_of(data, directory)
    assert (found["train"], found["test"]) == (200, 40)
    assert identity_of(Cifar10.load(directory.parent), None)["fingerprint"] == found["fingerprint"]
    other = replace(data, train=(data.train[0] + 1, data.train[1]))
    assert identity_of(other, None)["fingerprint"][:16] != found["fingerprint"][:16]
    digits = identity_of(Digits.load(), None)
    assert (digits["path"], digits["train"], digits["test"]) == (None, 1437, 360)


def test_shards_and_instances(shards, jpeg, tmp_path):
    directory = shards()
    found = identity_of(Shards.load(directory, size=16, cache=tmp_path / "cache"), directory)
    assert (found["train"], found["test"]) == (32, 7)
    (tmp_path / "images").mkdir()
    for i in range(6):
        (tmp_path / "images" / f"im{i}.jpg").write_bytes(jpeg(i))
    keypoints = np.random.default_rng(0).uniform(1, 40, (14, 3, 6))
    keypoints[:, 2] = 1
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": keypoints})
    instances = identity_of(Lsp.load(tmp_path, size=32), tmp_path)
    assert (instances["train"], instances["test"]) == (3, 3)
    keypoints[0, 0, 0] += 1
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": keypoints})
    assert identity_of(Lsp.load(tmp_path, size=32), tmp_path)["fingerprint"] != instances["fingerprint"]


class Own:
    """A data set of a user's own, of which nothing is known but what the training loop asks for."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def steps(self, batch_size):
        return 7 // batch_size

    def train_batches(self, batch_size, seed, epoch, start=0, rank=0, world=1):
        for step in range(start, self.steps(batch_size)):
            yield torch.full((batch_size, 1, 2, 2), step + self.shift), torch.zeros(batch_size)

    def test_batches(self, batch_size, rank=0, world=1):
        yield torch.ones(3, 1, 2, 2), {"keypoints": torch.zeros(3, 2), "norm": torch.ones(3)}


def test_a_data_set_of_anyones_own():
    found = identity_of(Own(), None)
    assert (found["train"], found["test"]) == (7, None)
    assert identity_of(Own(), None) == found
    assert identity_of(Own(0.5), None) != found

    class Named(Own):
        def identity(self):
            return {"train": 7, "test": 3, "fingerprint": "abc"}

    assert identity_of(Named(), Path("/x")) == {"path": "/x", "train": 7, "test": 3, "fingerprint": "abc"}


def test_a_million_images_take_less_than_a_second(tmp_path):
    names = np.array([f"n{i // 1300:08d}/n{i // 1300:08d}_{i}.JPEG".encode() for i in range(1_300_000)])
    store = FileStore(tmp_path, names, np.zeros(len(names), np.int64))
    started = time.process_time()
    store.digest()
    assert time.process_time() - started < 1


def test_what_a_run_and_its_file_remember(tmp_path):
    assert remembered(tmp_path) is None
    identity = identity_of(Digits.load(), Path("/data"))
    (tmp_path / "recipe.json").write_text(json.dumps({"data_identity": identity}))
    assert remembered(tmp_path) == identity
    provenance = published(tmp_path)
    assert "/data" not in provenance["data_identity"]
    assert identity_in(provenance, "net") == {k: v for k, v in identity.items() if k != "path"}
    assert identity_in({}, "net") is None
    for wrong in ("[1]", "{}", "not json", '{"fingerprint": 3}'):
        with pytest.raises(InputError, match="net: expected under data_identity counts and fingerprint"):
            identity_in({"data_identity": wrong}, "net")


def test_which_images(folder, cifar):
    data = ImageFolder.load(folder, size=32)
    assert which_images(data, len(data.test)) == f"6 test images in {folder}/val"
    held = ImageFolder.load(folder, size=32, holdout="validation")
    assert which_images(held, 2) == f"2 validation images (a tenth of the training images in {folder}/train)"
    directory, _, _ = cifar()
    assert which_images(Cifar10.load(directory), 10_000) == f"10,000 test images in {directory}"
    assert which_images(Own(), 3) == "3 test images"
    assert which_images(Own(), 3, 2) == "2 of 3 test images"
    evenly = f"10 of 10,000 test images in {directory}, equally many of each class"
    assert which_images(Cifar10.load(directory), 10_000, 10) == evenly
