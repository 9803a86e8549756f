"""Recipes that find poses: Leeds Sports Pose, MPII as in the paper, COCO; and their options."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import tyro
from torch import nn

from bitfactor.binarization import Binarization
from bitfactor.common.checks import check_fields
from bitfactor.data import CocoKeypoints, DataSet
from bitfactor.data.poses import CocoOptions, LspOptions, MpiiOptions, PoseOptions
from bitfactor.models import hourglass
from bitfactor.models.hourglass import Block, Stem
from bitfactor.models.resnet import Activation, Shortcuts
from bitfactor.training import Optimization, PoseEstimation, Recipe


@dataclass(frozen=True)
class HourglassOptions:
    """An hourglass's shape. In Python the defaults are the paper's; a recipe has its own."""

    keypoints: Annotated[int, tyro.conf.Suppress]
    channels: int = 128
    """Channels of the blocks."""
    stacks: int = 1
    """Hourglasses one after the other. Each learns heatmaps."""
    depth: int = 4
    """Levels of an hourglass, each at half the resolution of the one before."""
    block: Block = "basic"
    """Two 3x3 convolutions, or three with their outputs side by side (Bulat & Tzimiropoulos 2017)."""
    activation: Activation = "relu"
    """After each convolution of a block; norm: a BatchNorm, which signs without a scale need (BNN)."""
    shortcuts: Shortcuts = "block"
    """What a shortcut of a basic block spans: the block, or each convolution (Bi-Real Net)."""
    stem: Stem = "halving"
    """The way to a quarter of the side: through maps of half the side, or at once, which is faster."""
    blocks: int = 1
    """Blocks on each pathway of maps smaller than the heatmaps."""

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self) -> nn.Module:
        return hourglass(**vars(self))


def lsp_hourglass() -> Recipe:
    """Return the binary hourglass on Leeds Sports Pose extended: 128x128 pixels, 128 channels.

    It stands for no row of the paper's tables, which have no LSP. Network and augmentation are those of
    `mpii_hourglass`, whose flags choose the rows of table 1. The images are small, so 128 pixels show all
    that they hold. Adam with a cosine, cells of a heatmap that compete, and free weights whose gradient
    passes whole. After 7,000 steps at this rate no decomposition is ahead (docs/results/evidence.md).
    """
    return _hourglass(
        "lsp-hourglass",
        "binary hourglass for human pose on Leeds Sports Pose extended",
        HourglassOptions(keypoints=14),
        LspOptions(),
        Optimization(epochs=100, batch_size=32, learning_rate=5e-3, factor_rate="1/rank", warmup_epochs=1),
        Binarization(latent="none", weight_estimator="identity"),
    )


def lsp_hourglass_small() -> Recipe:
    """Return a small hourglass on Leeds Sports Pose extended, to be trained on a CPU within an hour.

    96x96 pixels, 64 channels, depth 3. We chose otherwise where the paper's network would learn too slowly.
    It has a stem of two real convolutions and one block, and three blocks on each pathway of the smaller
    maps. It has a shortcut around each convolution, PReLU, and free weights whose gradient passes whole.
    Crops and Gaussians are narrower, instances are resized less, and numbers are bfloat16.
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
    data: PoseOptions,
    optimization: Optimization,
    binarization: Binarization,
) -> Recipe:
    from bitfactor.training.metrics import PCK  # here, for a quick import of the rest

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


def mpii_hourglass() -> Recipe:
    """Return the binary hourglass on MPII: 256x256 pixels, 128 channels, one hourglass.

    The flags that give the rows of the paper's table 1, in PCKh on Tompson's validation part:

    ========================================  ====
    --latent none --scale analytic            78.4
    --latent none --scale learned             79.3
    --latent svd --scale analytic             78.7
    --latent svd --scale learned              79.0
    --latent tucker --scale analytic          79.3
    --latent tucker --scale learned           79.9
    --latent holistic --scale analytic        82.0
    --latent holistic --scale learned         82.5
    ========================================  ====

    Of table 3, `--real` is the real-valued network (85.8), and `--block hierarchical --channels 256 --latent
    none --scale analytic` the one that the paper compares with (HBC, 78.1).

    From the paper: RMSprop from 2.5e-4 to 5e-6 in several drops, 120 epochs, no decay. Rotation is by up to
    30 degrees, scale 0.7 to 1.3, mirrored. The paper does not state the batch, the drops, the loss or which
    mean over keypoints its PCKh is. We chose 16 instances, five equal plateaus, and cross-entropy per cell.
    The metric is the plain mean over 14 keypoints, the other two means logged beside it. The weight's sign
    has the estimator that did best elsewhere (docs/results/estimators.md).
    """
    return Recipe(
        name="mpii-hourglass",
        description="binary hourglass for human pose on MPII, as in the paper",
        model=HourglassOptions(keypoints=16),
        input_shape=(3, 256, 256),
        data=MpiiOptions(),
        task=PoseEstimation(),
        binarization=Binarization(latent="holistic", scale="learned", weight_estimator="rms"),
        optimization=Optimization(
            epochs=120,
            batch_size=16,
            learning_rate=2.5e-4,
            optimizer="rmsprop",
            schedule="step",
            plateaus=5,
            min_lr=5e-6,
        ),
    )


def coco_hourglass() -> Recipe:
    """Return the binary hourglass on keypoints in COCO's layout: a person's, or one's own skeleton.

    It stands for no row of the paper's tables. The network has as many heatmaps as the skeleton has
    keypoints; the rest is that of `lsp_hourglass`, with crops of 128 pixels.
    """
    recipe = _hourglass(
        "coco-hourglass",
        "binary hourglass for keypoints in COCO's layout, of any skeleton",
        HourglassOptions(keypoints=17),
        CocoOptions(size=128),
        Optimization(epochs=100, batch_size=32, learning_rate=5e-3, factor_rate="1/rank", warmup_epochs=1),
        Binarization(latent="none", weight_estimator="identity"),
    )
    return replace(recipe, adapt=_with_keypoints_of)


def _with_keypoints_of(recipe: Recipe, data: DataSet) -> Recipe:
    from bitfactor.training.metrics import PCK  # here, for a quick import of the rest

    assert isinstance(recipe.model, HourglassOptions)
    assert isinstance(recipe.task, PoseEstimation)
    assert isinstance(data, CocoKeypoints)
    model = replace(recipe.model, keypoints=len(data.skeleton.keypoints))
    return replace(recipe, model=model, task=replace(recipe.task, metric=partial(PCK, data.skeleton)))
