"""A data set, a loss and a recipe of one's own: images of five channels, arrays and no files.

bitfactor --import examples/own_data.py train spectra --epochs 2 --out runs/spectra
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from bitfactor.binarization import Binarization
from bitfactor.data import Target
from bitfactor.format import InputSpec
from bitfactor.models import ResNet
from bitfactor.recipes import register
from bitfactor.training import Classification, Optimization, Recipe

CHANNELS, CLASSES, SIDE, GAMMA = 5, 3, 16, 2.0
SPEC = InputSpec((SIDE, SIDE), (SIDE, SIDE), mean=(0.5,) * CHANNELS, std=(0.25,) * CHANNELS)


def spectra(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images (N, 5, 16, 16) of 0 to 1, noise in which the class lights one channel up, and classes."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(number) % CLASSES
    images = torch.rand(number, CHANNELS, SIDE, SIDE, generator=generator) * 0.8
    images[torch.arange(number), classes] += 0.2
    return images, classes


@dataclass(frozen=True)
class Spectra:
    """Images to train on and to evaluate on; the members are those of `bitfactor.data.DataSet`."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    labels: tuple[str, ...] = ("quartz", "calcite", "mica")
    input_spec: InputSpec = SPEC
    test_name: str = "test images (spectra)"

    def steps(self, batch_size: int) -> int:
        return len(self.train[1]) // batch_size

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch; what is in one depends on seed, epoch and its number alone."""
        images, classes = self.train
        order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size][rank::world]
            yield (images[chosen] - 0.5) / 0.25, classes[chosen]

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        images, classes = (part[rank::world] for part in self.test)
        for start in range(0, len(classes), batch_size):
            part = slice(start, start + batch_size)
            yield (images[part] - 0.5) / 0.25, classes[part]


@dataclass(frozen=True)
class SpectraOptions:
    """How the data are made; each field is a flag."""

    images: int = 256
    """Images to train on."""

    def __call__(self, directory: Path | None) -> Spectra:
        """Return the data; `directory` is what --data names."""
        return Spectra(spectra(self.images, seed=0), spectra(96, seed=1))


class Focal(Classification):
    """(1 - p)^gamma times the cross entropy, p the probability of the right class (Lin et al., 2017)."""

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        assert isinstance(target, Tensor)
        entropy = F.cross_entropy(outputs, target, reduction="none")
        return ((1 - (-entropy).exp()) ** GAMMA * entropy).mean()


def recipe() -> Recipe:
    """Return a small binary ResNet on the spectra."""
    return Recipe(
        name="spectra",
        description="small binary ResNet on made-up images of five channels",
        model=lambda: ResNet((1, 1), (16, 32), CLASSES, in_channels=CHANNELS, stem="cifar"),
        input_shape=(CHANNELS, SIDE, SIDE),
        data=SpectraOptions(),
        task=Focal(),
        binarization=Binarization(latent="window"),
        optimization=Optimization(epochs=4, batch_size=32, learning_rate=4e-3),
    )


register("spectra", recipe)
