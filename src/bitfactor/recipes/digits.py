"""Handwritten digits: the whole method in less than a minute."""

from dataclasses import dataclass
from pathlib import Path

from bitfactor.convert import Binarization
from bitfactor.data import DataSet, Digits
from bitfactor.data.scans import expect_no_directory
from bitfactor.recipes.resnet import ResNetOptions
from bitfactor.training import Classification, Optimization, Recipe


@dataclass(frozen=True)
class DigitsOptions:
    """The scans that come with scikit-learn."""

    move: bool = True
    """Turn, scale and shift training images a little."""

    def __call__(self, directory: Path | None) -> DataSet:
        """Load the scans, which need no directory."""
        expect_no_directory(directory)
        return Digits.load(self.move)


def digits() -> Recipe:
    """Return a small binary ResNet on 8x8 scans of digits, holistic Tucker and learned alpha.

    It stands for no row of the paper's tables: it is the paper's best configuration at the size of a
    demonstration. Stem, head and the 1x1 shortcut are real; the eight 3x3 convolutions are binary. Those of
    equal shape share one tensor, the strided one is decomposed by itself.
    """
    return Recipe(
        name="digits",
        description="small binary ResNet on 1,797 scans of handwritten digits, no download",
        model=ResNetOptions(num_classes=10, blocks=(2, 2), widths=(32, 64), in_channels=1, stem="cifar"),
        input_shape=(1, 8, 8),
        data=DigitsOptions(),
        task=Classification(),
        binarization=Binarization(latent="holistic", scale="learned", groups="auto"),
        optimization=Optimization(epochs=12, batch_size=64, learning_rate=4e-3),
    )
