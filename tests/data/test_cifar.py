"""CIFAR is read from its official files, the same in every epoch, process and resumed run."""

import pickle
import tarfile

import numpy as np
import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, Cifar100


@pytest.mark.parametrize("kind", [Cifar10, Cifar100])
def test_official_files(cifar, kind):
    directory, pixels, labels = cifar(kind)
    data = kind.load(directory.parent)
    files = len(kind.layout.train)
    assert len(data.train[1]) == 40 * files
    assert len(data.test[1]) == 40
    assert data.labels[:2] == ("class0", "class1")
    both = torch.cat([data.train[0], data.test[0]])
    np.testing.assert_array_equal(both.reshape(-1, 3072), pixels)
    np.testing.assert_array_equal(torch.cat([data.train[1], data.test[1]]), labels)


def test_directory_itself_or_archive(cifar, tmp_path):
    directory, _, _ = cifar()
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(directory, directory.name)
    loaded = [Cifar10.load(place) for place in (directory, tmp_path, tmp_path / "cifar-10-python.tar.gz")]
    for other in loaded[1:]:
        assert torch.equal(loaded[0].train[0], other.train[0])
        assert torch.equal(loaded[0].test[1], other.test[1])


def test_limit_takes_classes_in_equal_shares(cifar):
    directory, _, labels = cifar(each=100)
    data = Cifar10.load(directory, limit=50)
    assert data.train[1].bincount().tolist() == [5] * 10
    assert len(data.test[1]) == 50
    first = np.flatnonzero(labels == 3)[:5]
    whole = Cifar10.load(directory)
    assert torch.equal(data.train[0][data.train[1] == 3], whole.train[0][first])


def test_validation_holds_out_the_end_of_the_training_images(cifar):
    directory, _, _ = cifar()
    whole, split = Cifar10.load(directory), Cifar10.load(directory, holdout="validation")
    assert len(split.test[1]) == 20
    assert torch.equal(torch.cat([split.train[0], split.test[0]]), whole.train[0])


def test_an_epoch_can_be_entered_anywhere(cifar):
    data = Cifar10.load(cifar()[0])
    whole = list(data.train_batches(64, seed=3, epoch=5))
    assert len(whole) == data.steps(64) == 3
    for (a, b), (c, d) in zip(whole[1:], data.train_batches(64, seed=3, epoch=5, start=1), strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_a_batch(cifar, world):
    data = Cifar10.load(cifar()[0])
    parts = [data.train_batches(64, 0, 1, rank=rank, world=world) for rank in range(world)]
    for (inputs, labels), *shares in zip(data.train_batches(64, 0, 1), *parts, strict=True):
        for rank, (a, b) in enumerate(shares):
            assert torch.equal(a, inputs[rank::world])
            assert torch.equal(b, labels[rank::world])
    tests = [torch.cat([y for _, y in data.test_batches(7, rank, world)]) for rank in range(world)]
    assert sum(map(len, tests)) == 40


def test_an_epoch_has_each_image_once_and_others_differ(cifar):
    data = Cifar10.load(cifar()[0])
    epochs = [torch.cat([y for _, y in data.train_batches(50, *key)]) for key in ((0, 0), (0, 1), (1, 0))]
    for labels in epochs:
        assert torch.equal(labels.bincount(minlength=10), data.train[1].bincount(minlength=10))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], epochs[2])


def test_test_set_images_are_normalised_and_in_order(cifar):
    data = Cifar10.load(cifar()[0])
    inputs = torch.cat([x for x, _ in data.test_batches(17)])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.layout.mean, data.layout.std))
    torch.testing.assert_close(inputs * std + mean, data.test[0] / 255)


def test_batches_are_on_the_device_of_the_data(cifar):
    data = Cifar10.load(cifar()[0]).to("meta")
    assert data.train[0].device.type == "meta"
    assert next(data.test_batches(8))[0].device.type == "meta"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "cannot be read"),
        (lambda path: path.write_bytes(b"text"), "cannot be read"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(pickle.dumps({"data": np.zeros((2, 9), np.uint8)})), "shape"),
        (lambda path: path.write_bytes(pickle.dumps({"labels": [1]})), "no pixels"),
        (
            lambda path: path.write_bytes(
                pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]})
            ),
            "labels other than 0 to 9",
        ),
    ],
)
def test_unusable_files_are_named(cifar, damage, found):
    directory, _, _ = cifar()
    damage(directory / "data_batch_3")
    with pytest.raises(InputError, match=f"data_batch_3: .*{found}"):
        Cifar10.load(directory)


def test_another_place(cifar, tmp_path):
    with pytest.raises(InputError, match=r"--data: expected the directory that holds cifar-10-batches-py"):
        Cifar10.load(None)
    with pytest.raises(InputError, match="found no such directory"):
        Cifar10.load(tmp_path / "none")
    with pytest.raises(InputError, match=r"cifar-10-batches-py/ or cifar-10-python.tar.gz, found neither"):
        Cifar10.load(cifar(Cifar100)[0])


def test_damaged_archive(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(InputError, match="an archive that cannot be read"):
        Cifar10.load(tmp_path)


def test_real_images(real_data):
    if not (real_data / Cifar10.layout.folder).is_dir():
        pytest.skip("CIFAR-10 is not unpacked")
    data = Cifar10.load(real_data)
    assert data.train[1].bincount().tolist() == [5000] * 10
    pixels = data.train[0].float() / 255
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.tensor(data.layout.mean), atol=1e-4, rtol=0)
    torch.testing.assert_close(pixels.std((0, 2, 3)), torch.tensor(data.layout.std), atol=1e-4, rtol=0)
