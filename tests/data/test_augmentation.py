"""Everything that happens to training images at random can be switched off."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.io
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, Digits, ImageFolder
from bitfactor.data.augment import OPERATIONS
from bitfactor.data.in_memory import CifarOptions, DigitsOptions
from bitfactor.data.poses import CocoOptions, LspOptions, MpiiOptions
from bitfactor.data.readers.instances import CropMovement
from bitfactor.data.stored import FolderOptions
from bitfactor.pose.images import prepare, read_image


def epochs(data, batch):
    """The inputs of two epochs, each sorted, so that only what is done to an image can differ."""
    for epoch in range(2):
        inputs = torch.cat([x for x, _ in data.train_batches(batch, 0, epoch)]).numpy()
        yield inputs[np.lexsort(inputs.reshape(len(inputs), -1)[:, :64].T)]


def same_images(data, batch):
    first, second = epochs(data, batch)
    return np.array_equal(first, second)


def test_digits():
    assert not same_images(Digits.load(), 479)
    assert same_images(DigitsOptions(move=False)(None), 479)


def test_cifar(cifar):
    directory, _, _ = cifar()
    plain = CifarOptions(10, crop=False, mirror=False)(directory)
    assert same_images(plain, 40)
    assert torch.equal(plain.to("cpu").test[0], Cifar10.load(directory).test[0])
    for options in ({"crop": False}, {"mirror": False}, {}):
        assert not same_images(CifarOptions(10, **options)(directory), 40)
    whole = np.sort(torch.cat([x for x, _ in plain.train_batches(40, 0, 0)]).numpy(), axis=None)
    shifted = Cifar10.load(directory, crop=False)
    mirrored = np.sort(torch.cat([x for x, _ in shifted.train_batches(40, 0, 0)]).numpy(), axis=None)
    np.testing.assert_array_equal(whole, mirrored)  # nothing is lost where images are mirrored alone


@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_folder(folder, preset):
    plain = FolderOptions(preset=preset, size=32, crop=False, mirror=False)(folder)
    assert same_images(plain, 20)
    shown = next(plain.train_batches(20, 0, 0))[0].numpy()
    prepared = [prepare(read_image(Path(plain.train.name(i)), 3), plain.input_spec) for i in range(20)]
    differences = [np.abs(shown - image).max((1, 2, 3)).min() for image in prepared]
    assert max(differences) < 1e-4
    assert not same_images(FolderOptions(preset=preset, size=32, mirror=False)(folder), 20)
    mirrors = FolderOptions(preset=preset, size=32, crop=False)(folder)
    assert same_images(mirrors, 20) == (preset == "paper")


def test_a_mirrored_image_is_the_other_way_round(folder):
    plain, mirrored = (ImageFolder.load(folder, size=32, crop=False, mirror=m) for m in (False, True))
    (one, _), (other, _) = (next(data.train_batches(20, 0, 0)) for data in (plain, mirrored))
    flipped = [torch.equal(a.flip(2), b) and not torch.equal(a, b) for a, b in zip(one, other, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(one, other, strict=True)]
    assert sum(flipped) + sum(kept) == 20
    assert 4 < sum(flipped) < 16


@pytest.fixture
def lsp(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for i in range(8):
        image = rng.integers(0, 255, (40, 60, 3)).astype(np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"im{i}.jpg"), image)
    keypoints = rng.uniform(1, 40, (14, 3, 8))
    keypoints[:, 2] = 1
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": keypoints})
    return tmp_path


@pytest.mark.parametrize(
    ("options", "still"),
    [
        ({"rotation": 0.0, "zoom": 0.0, "mirror": False}, True),
        ({"rotation": 0.0, "zoom": 0.0}, False),
        ({"zoom": 0.0, "mirror": False}, False),
        ({"rotation": 0.0, "mirror": False}, False),
    ],
)
def test_people(lsp, options, still):
    assert same_images(LspOptions(size=32, **options)(lsp), 4) == still


def test_every_data_set_of_people_takes_a_movement():
    still = CropMovement(0.0, 0.0, False)
    assert [still(0, epoch, 3) for epoch in range(3)] == [(1.0, 0.0, False)] * 3
    for options in (LspOptions, MpiiOptions, CocoOptions):
        assert options(rotation=0.0, zoom=0.0, mirror=False).movement == still


def test_an_option_that_a_data_set_does_not_have_is_refused():
    with pytest.raises(InputError, match="expected a known option, found moves; did you mean move"):
        Digits.load(moves=False)


def test_rand_augment_changes_each_image_and_workers_change_nothing(folder):
    plain, strong = (FolderOptions(size=32, crop=False, mirror=False, rand_augment=n) for n in (0, 9))
    assert same_images(plain(folder), 20)
    assert not same_images(strong(folder), 20)
    alone, helped = (ImageFolder.load(folder, strong, workers=workers) for workers in (0, 2))
    for (x, _), (again, _) in zip(alone.train_batches(5, 0, 0), helped.train_batches(5, 0, 0), strict=True):
        assert torch.equal(x, again)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_an_operation_of_rand_augment_gives_an_image_and_at_no_strength_nearly_the_same(number, smooth):
    image = smooth(3, 40, 56)
    for level in (-1.0, -0.3, 0.0, 0.3, 1.0):
        changed = OPERATIONS[number](image, level)
        assert (changed.shape, changed.dtype) == (image.shape, np.uint8)
    if number not in (1, 2):  # stretched and equalised at any strength
        np.testing.assert_array_equal(OPERATIONS[number](image, 0.0), image)
        if number:
            assert not np.array_equal(OPERATIONS[number](image, 0.9), image)


def test_at_full_strength_an_operation_goes_as_far_as_its_table_says():
    """Image (c), of the ranges of RandAugment: 30 degrees, 0.3 of a side, 4 bits, a factor of 1.9."""
    names = ("same", "stretch", "equalise", "turn", "solarise", "posterise", "colour", "contrast")
    names += ("brightness", "sharpness", "shear_x", "shear_y", "shift_x", "shift_y")
    of = dict(zip(names, OPERATIONS, strict=True))
    image = np.full((41, 41, 3), 90, np.uint8)
    image[18:23, 28:33] = 250  # ten pixels right of the centre

    def place(name, level):
        found = np.argwhere(of[name](image, level)[..., 0] > 200)
        return found.mean(0) - (20, 20)

    angle = np.radians(30)
    np.testing.assert_allclose(place("turn", 1.0), (-10 * np.sin(angle), 10 * np.cos(angle)), atol=0.3)
    half = angle / 2
    np.testing.assert_allclose(place("turn", -0.5), (10 * np.sin(half), 10 * np.cos(half)), atol=0.3)
    np.testing.assert_allclose(place("shift_x", -1.0), (0, 10 - 0.3 * 41), atol=0.3)
    np.testing.assert_allclose(place("shift_y", 0.5), (0.15 * 41, 10), atol=0.3)
    np.testing.assert_allclose(place("shear_x", 0.5), (0, 10 + 0.15 * 20), atol=0.3)
    np.testing.assert_allclose(place("shear_y", -1.0), (-0.3 * 30, 10), atol=0.3)
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, 2)
    assert len(np.unique(of["posterise"](grey, 1.0))) == 16
    np.testing.assert_array_equal(of["solarise"](grey, 0.5), np.where(grey < 128, grey, 255 - grey))
    assert (of["brightness"](np.full_like(grey, 100), 1.0) == 190).all()
    assert (of["brightness"](np.full_like(grey, 100), -1.0) == 10).all()
    assert of["contrast"](grey, -1.0).std() == pytest.approx(grey.std() / 10, rel=0.02)


def test_the_views_of_an_image_differ_in_each_epoch(folder):
    """A preset's draws come from seed and epoch: of four epochs, and two seeds, no two are the same."""
    data = ImageFolder.load(folder, size=32)
    views = [next(data.train_batches(20, seed, epoch))[0] for seed in (0, 1) for epoch in range(4)]
    assert len({round(view.double().sum().item(), 3) for view in views}) == 8


def test_a_strength_is_at_most_ten():
    with pytest.raises(InputError, match="rand_augment: expected a strength from 0 to 10, found 11"):
        FolderOptions(rand_augment=11)
    for area in (0, 1.01):
        with pytest.raises(InputError, match="crop_area: expected a fraction above 0, 1 at most, found"):
            FolderOptions(crop_area=area)
