"""Scans of digits, and a small network for them: what the loops of this folder train."""

from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

BATCH = 64


def scans() -> tuple[Tensor, Tensor]:
    """Return images (N, 1, 8, 8) and classes (N,)."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 8 - 1
    return images, torch.from_numpy(digits.target)


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield so many batches, drawn at random."""
    images, classes = scans()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        yield images[chosen], classes[chosen]


def network() -> nn.Module:
    """Return a network of three convolutions, in full precision."""
    torch.manual_seed(0)
    middle = [
        part for _ in range(2) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.PReLU())
    ]
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), *middle, nn.Flatten(), nn.Linear(16 * 64, 10)
    )
