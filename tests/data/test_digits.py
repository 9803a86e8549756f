"""The digits have a fixed test set, and an epoch can be entered anywhere."""

import torch

from bitfactor.data import Digits
from bitfactor.data.in_memory import augment

DIGITS = Digits.load()


def test_one_fifth_is_test_set_with_every_class():
    assert [len(part[1]) for part in (DIGITS.train, DIGITS.test)] == [1437, 360]
    assert DIGITS.test[1].bincount().min() >= 34


def test_no_image_is_on_both_sides():
    train, test = ({image.numpy().tobytes() for image in part[0]} for part in (DIGITS.train, DIGITS.test))
    assert not train & test


def test_pixels_are_normalised():
    assert abs(float(DIGITS.train[0].mean())) < 1e-4
    assert abs(float(DIGITS.train[0].std()) - 1) < 1e-4


def test_an_epoch_can_be_entered_anywhere():
    whole = list(DIGITS.train_batches(100, seed=3, epoch=5))
    rest = list(DIGITS.train_batches(100, seed=3, epoch=5, start=9))
    assert len(whole) == DIGITS.steps(100) == 14
    for a, b in zip(whole[9:], rest, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def test_epochs_and_seeds_differ():
    starts = [DIGITS.train_batches(50, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    first = [next(batches)[1].tolist() for batches in starts]
    assert len({tuple(labels) for labels in first}) == 3


def test_test_batches_are_whole_and_in_order():
    assert torch.equal(torch.cat([labels for _, labels in DIGITS.test_batches(97)]), DIGITS.test[1])


def test_augmentation_moves_a_little():
    moved = augment(DIGITS.train[0][:64], torch.Generator().manual_seed(0))
    assert moved.shape == (64, 1, 8, 8)
    difference = (moved - DIGITS.train[0][:64]).abs().mean()
    assert 0.05 < difference < 0.6
