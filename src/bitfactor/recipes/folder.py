"""Any images in directories that are named after their classes."""

from dataclasses import dataclass, replace
from pathlib import Path

from bitfactor.checks import check_fields
from bitfactor.convert import Binarization
from bitfactor.data import DataSet, ImageFolder, Shards
from bitfactor.data.presets import Preset
from bitfactor.data.shard import DESCRIPTION
from bitfactor.data.split import Holdout
from bitfactor.recipes.resnet import ResNetOptions
from bitfactor.training import Classification, Optimization, Recipe


@dataclass(frozen=True)
class FolderOptions:
    """Images in class directories, or in WebDataset shards where the directory has a `shards.json`."""

    preset: Preset = "standard"
    """How training images are cropped: at random places of 256x256, or random parts, mirrored."""
    size: int = 224
    """Side of an input in pixels."""
    holdout: Holdout = "test"
    """What is evaluated on: the test images, or a tenth of the training images, to choose settings by."""
    crop: bool = True
    """Crop training images at random, as the preset does; if not, they are cropped in the centre."""
    mirror: bool = True
    """Mirror half of the training images, where the preset does: standard."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of an input."""
        return 3, self.size, self.size

    def __call__(self, directory: Path | None) -> DataSet:
        """Look which images there are."""
        sharded = directory is not None and (directory / DESCRIPTION).exists()
        kind = Shards if sharded else ImageFolder
        return kind.load(
            directory, self.preset, self.size, holdout=self.holdout, crop=self.crop, mirror=self.mirror
        )


def folder_resnet18() -> Recipe:
    """Return binary ResNet-18 on a folder of the user's own images, of as many classes as it has.

    It stands for no row of the paper's tables. A shortcut around each convolution and PReLU, because they
    cost little and gain much; a cosine; the latent "window" with factors that learn at 1/rank of the core's
    rate, as the study of CIFAR-10 has it (docs/results/evidence.md).
    """
    return Recipe(
        name="folder-resnet18",
        description="binary ResNet-18 on a folder of class directories",
        model=ResNetOptions(num_classes=2, activation="prelu", shortcuts="conv"),
        input_shape=(3, 224, 224),
        data=FolderOptions(),
        task=Classification(),
        binarization=Binarization(latent="window", scale="learned"),
        optimization=Optimization(
            epochs=60, batch_size=64, learning_rate=1e-3, factor_rate="1/rank", warmup_epochs=1
        ),
        adapt=with_classes_of,
    )


def with_classes_of(recipe: Recipe, data: DataSet) -> Recipe:
    """Return a recipe of a ResNet with as many outputs as its data have classes."""
    assert isinstance(recipe.model, ResNetOptions)
    return replace(recipe, model=replace(recipe.model, num_classes=len(data.labels)))
