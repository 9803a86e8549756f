"""Human pose on Leeds Sports Pose."""

from dataclasses import dataclass
from pathlib import Path

from bitfactor.checks import check_fields
from bitfactor.convert import Binarization
from bitfactor.data import DataSet, Lsp
from bitfactor.data.crops import PAPER, Movement
from bitfactor.data.split import Holdout
from bitfactor.recipes.hourglass import HourglassOptions
from bitfactor.training import Optimization, PoseEstimation, Recipe


@dataclass(frozen=True)
class LspOptions:
    """The instances of Leeds Sports Pose, or of its extension."""

    size: int = 128
    """Side of a crop in pixels."""
    margin: float = 1.5
    """Side of the crop, in the image, by how far the person's keypoints extend."""
    rotation: float = PAPER.rotation
    """Degrees by which instances are turned in training, to either side."""
    zoom: float = PAPER.zoom
    """Fraction by which they grow or shrink."""
    mirror: bool = True
    """Mirror half of the instances in training."""
    sigma: float = 1.0
    """Standard deviation of the heatmaps' Gaussians, in cells."""
    holdout: Holdout = "test"
    """What is evaluated on: the last 1,000 instances; or the last tenth of the others, to choose by."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of a crop."""
        return 3, self.size, self.size

    def __call__(self, directory: Path | None) -> DataSet:
        """Load the annotations."""
        movement = Movement(self.rotation, self.zoom, self.mirror)
        return Lsp.load(
            directory,
            self.size,
            holdout=self.holdout,
            margin=self.margin,
            movement=movement,
            sigma=self.sigma,
        )


def lsp_hourglass() -> Recipe:
    """Return the binary hourglass on Leeds Sports Pose extended: 128x128 pixels, 128 channels.

    It stands for no row of the paper's tables, which have no LSP; network and augmentation are those of
    `mpii_hourglass`, whose flags choose the rows of table 1. The images are small, so 128 pixels show all
    that they hold. Adam with a cosine, cells of a heatmap that compete, the latent "window" and factors at
    1/rank of the core's rate, which learn faster in a small one (docs/results/evidence.md).
    """
    return _hourglass(
        "lsp-hourglass",
        "binary hourglass for human pose on Leeds Sports Pose extended",
        HourglassOptions(keypoints=14),
        LspOptions(),
        Optimization(epochs=100, batch_size=32, learning_rate=1e-3, factor_rate="1/rank", warmup_epochs=1),
        Binarization(latent="window", scale="learned"),
    )


def lsp_hourglass_small() -> Recipe:
    """Return a small hourglass on Leeds Sports Pose extended, to be trained on a CPU within an hour.

    96x96 pixels, 64 channels, depth 3; where the paper's network would learn too slowly we chose otherwise: a
    stem of two real convolutions and one block, three blocks on each pathway of the smaller maps, a
    shortcut around each convolution, PReLU, free weights whose gradient passes whole, a narrower crop,
    instances who are resized less, narrower Gaussians, and bfloat16.
    """
    return _hourglass(
        "lsp-hourglass-small",
        "small binary hourglass for human pose, an hour on two cores",
        HourglassOptions(
            keypoints=14,
            channels=64,
            depth=3,
            activation="prelu",
            shortcuts="conv",
            stem="quartering",
            blocks=3,
        ),
        LspOptions(size=96, margin=1.15, zoom=0.2, sigma=0.5),
        Optimization(
            epochs=40,
            batch_size=32,
            learning_rate=0.01,
            factor_rate="1/rank",
            warmup_epochs=0.4,
            precision="bfloat16",
            channels_last=True,
        ),
        Binarization(latent="none", weight_estimator="identity"),
    )


def _hourglass(
    name: str,
    description: str,
    model: HourglassOptions,
    data: LspOptions,
    optimization: Optimization,
    binarization: Binarization,
) -> Recipe:
    from bitfactor.metrics import PCK  # here, for a quick import of the rest

    return Recipe(
        name=name,
        description=description,
        model=model,
        input_shape=data.input_shape,
        data=data,
        task=PoseEstimation(headline="pck", metric=PCK, criterion="softmax"),
        binarization=binarization,
        optimization=optimization,
    )
