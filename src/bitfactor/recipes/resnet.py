"""Recipes that classify images: digits, CIFAR, directories of one's own, ImageNet; and their options."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import tyro
from torch import nn

from bitfactor import models
from bitfactor.binarization import Binarization
from bitfactor.binarization.parameter_groups import Kind
from bitfactor.common.checks import check_fields, expect_that
from bitfactor.data import DataSet
from bitfactor.data.in_memory import CifarOptions, DigitsOptions
from bitfactor.data.stored import FolderOptions, StoredImages
from bitfactor.models import CompactNet, ResNet
from bitfactor.models.resnet import Activation, Shortcuts, Stem
from bitfactor.training import Classification, Optimization, Recipe


@dataclass(frozen=True)
class ResNetOptions:
    """A ResNet's shape. In Python the defaults are ResNet-18; a recipe has its own."""

    num_classes: Annotated[int, tyro.conf.Suppress]
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Blocks per stage; 3 4 6 3 is ResNet-34."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Channels per stage."""
    in_channels: Annotated[int, tyro.conf.Suppress] = 3
    stem: Stem = "imagenet"
    """First layer: 7x7/2 and max-pool, 3x3, or 3x3/2."""
    activation: Activation = "relu"
    """After each convolution of a block; rprelu: with shifts (ReActNet), norm: a BatchNorm, which signs
    without a scale need (BNN)."""
    shortcuts: Shortcuts = "block"
    """What a shortcut spans: a block of two convolutions, or each convolution (Bi-Real Net)."""
    binary_shortcuts: bool = False
    """Let the 1x1 convolutions of shortcuts turn binary too."""
    gates: bool = False
    """Scale each convolution of a block by a gate of its inputs (Real-to-Binary)."""

    def __post_init__(self) -> None:
        check_fields(self)
        blocks, widths = (" ".join(map(str, of)) or "none" for of in (self.blocks, self.widths))
        deep = min(self.blocks, default=0) > 0
        expect_that(deep, "--blocks", expected="numbers above 0, one per stage", found=blocks)
        wide = len(self.blocks) == len(self.widths) and min(self.widths) > 0
        expected = f"{len(self.blocks)} numbers above 0, as many as --blocks"
        expect_that(wide, "--widths", expected=expected, found=widths)

    def __call__(self) -> nn.Module:
        return ResNet(**vars(self))


@dataclass(frozen=True)
class CompactOptions:
    """A compact network's shape."""

    num_classes: Annotated[int, tyro.conf.Suppress]
    blocks: tuple[int, ...] = (2, 3, 3)
    """Inverted residuals per stage."""
    widths: tuple[int, ...] = (24, 48, 96)
    """Channels per stage."""
    in_channels: Annotated[int, tyro.conf.Suppress] = 3

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self) -> nn.Module:
        return CompactNet(**vars(self))


@dataclass(frozen=True)
class Published:
    """A network of `bitfactor.models` whose structure is its authors'."""

    network: Annotated[str, tyro.conf.Suppress]
    num_classes: Annotated[int, tyro.conf.Suppress]

    def __call__(self) -> nn.Module:
        built: nn.Module = getattr(models, self.network)(self.num_classes)
        return built


@dataclass(frozen=True)
class PublishedWidths(Published):
    """One whose authors' sizes are the default."""

    blocks: tuple[int, ...] = (3, 3, 3)
    """Blocks per stage."""
    widths: tuple[int, ...] = (16, 32, 64)
    """Channels per stage, each an even number more than the last."""

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self) -> nn.Module:
        built: nn.Module = getattr(models, self.network)(self.num_classes, self.blocks, self.widths)
        return built


def _classifier(
    name: str,
    description: str,
    model: Callable[[], nn.Module],
    data: CifarOptions | DigitsOptions | FolderOptions,
    binarization: Binarization,
    optimization: Optimization,
    input_shape: tuple[int, ...] = (3, 32, 32),
) -> Recipe:
    """Return a recipe; images in directories have their own shape and number of classes."""
    return Recipe(
        name=name,
        description=description,
        model=model,
        input_shape=input_shape,
        data=data,
        task=Classification(),
        binarization=binarization,
        optimization=optimization,
        adapt=with_classes_of if isinstance(data, FolderOptions) else None,
    )


def digits() -> Recipe:
    """Return a small binary ResNet on 8x8 scans of digits, holistic Tucker and learned alpha.

    It stands for no row of the paper's tables: it is the paper's best configuration at the size of a
    demonstration. Stem, head and the 1x1 shortcut are real; the eight 3x3 convolutions are binary. Those of
    equal shape share one tensor, the strided one is decomposed by itself.
    """
    return _classifier(
        "digits",
        "small binary ResNet on 1,797 scans of handwritten digits, no download",
        ResNetOptions(num_classes=10, blocks=(2, 2), widths=(32, 64), in_channels=1, stem="cifar"),
        DigitsOptions(),
        Binarization(latent="holistic", scale="learned", groups="auto"),
        Optimization(epochs=12, batch_size=64, learning_rate=4e-3),
        input_shape=(1, 8, 8),
    )


def cifar10_resnet18() -> Recipe:
    """Return binary ResNet-18 on CIFAR-10.

    It stands for no row of the paper's tables, which have no CIFAR. `imagenet_resnet18` has the flags that
    give the rows of its tables 2 and 4. We chose otherwise where the paper's preset would cost accuracy at
    this size. The stem is 3x3 without pooling, with a shortcut around each convolution, PReLU and a cosine.
    Weights are free, at the rate that is best for them, with the analytic alpha and `rms`. By
    docs/results/evidence.md no decomposition is shown to lead at equal time in a training of this length. In
    one of a few thousand steps `--latent window --learning-rate 0.002 --scale learned --weight-estimator
    clipped` is better.
    `--widths 32 64 128 --blocks 2 2 2 --stem halving` makes it small enough for a CPU.
    """
    return _resnet18("cifar10-resnet18", 10)


def cifar100_resnet18() -> Recipe:
    """Return binary ResNet-18 on CIFAR-100: as `cifar10_resnet18`, with a hundred classes."""
    return _resnet18("cifar100-resnet18", 100)


def _resnet18(name: str, classes: Literal[10, 100]) -> Recipe:
    return _classifier(
        name,
        f"binary ResNet-18 on CIFAR-{classes}",
        ResNetOptions(num_classes=classes, stem="cifar", activation="prelu", shortcuts="conv"),
        CifarOptions(classes),
        Binarization(latent="none", scale="analytic", weight_estimator="rms"),
        Optimization(epochs=200, batch_size=128, learning_rate=4e-3, factor_rate="1/rank", warmup_epochs=2),
    )


def folder_resnet18() -> Recipe:
    """Return binary ResNet-18 on a folder of the user's own images, of as many classes as it has.

    It stands for no row of the paper's tables. A shortcut around each convolution and PReLU cost little and
    gain much. The schedule is a cosine. The latent is "window" with factors at 1/rank of the core's rate. In
    a training as short as the 30 minutes it takes unless told otherwise, that is better than a free weight
    (docs/results/evidence.md). A crop shows 60 % of a photo or more, and not 8, which in so few epochs is too
    hard to learn (docs/results/parts.md).
    """
    recipe = _classifier(
        "folder-resnet18",
        "binary ResNet-18 on a folder of class directories",
        ResNetOptions(num_classes=2, activation="prelu", shortcuts="conv"),
        FolderOptions(decoded_cache=8.0, crop_area=0.6),
        Binarization(latent="window", scale="learned"),
        Optimization(epochs=60, batch_size=64, learning_rate=1e-3, factor_rate="1/rank", warmup_epochs=1),
    )
    return replace(recipe, sizes=sizes_for, minutes=30)


def folder_compact() -> Recipe:
    """Return a compact network in full precision on a folder of images, to quantise to int8.

    It stands for no row of the paper's tables. It is what a user would pick instead of a binary network, and
    trains as `folder_resnet18` does.
    """
    binary = folder_resnet18()
    return replace(
        binary,
        name="folder-compact",
        description="compact network of inverted residuals, in full precision, on a folder",
        model=CompactOptions(num_classes=2),
        real=True,
        binarization=Binarization(),
        optimization=replace(binary.optimization, factor_rate=1.0),
        sizes=compact_sizes_for,
    )


_Size = tuple[int, tuple[int, ...]]
_SIZES: Sequence[_Size] = (  # side of an image, channels
    (64, (32, 64, 128)),
    (64, (32, 64, 128, 256)),
    (96, (32, 64, 128, 256)),
    (128, (32, 64, 128, 256)),
    (128, (48, 96, 192, 384)),
    (160, (64, 128, 256, 512)),
    (224, (64, 128, 256, 512)),
)
_COMPACT_SIZES = (
    (64, (16, 32, 64)),
    (64, (24, 48, 96)),
    (96, (24, 48, 96)),
    (128, (24, 48, 96)),
    (128, (32, 64, 128)),
    (160, (32, 64, 128)),
    (224, (32, 64, 128)),
)
_LOOKED_AT = 64  # images


def compact_sizes_for(data: DataSet) -> list[dict[str, Any]]:
    """Return compact networks and image sides, as `sizes_for` does."""
    return _fitting(data, _COMPACT_SIZES)


def sizes_for(data: DataSet) -> list[dict[str, Any]]:
    """Return networks and image sides from small to large, none larger than the data's own images.

    Of images that are all smaller than the smallest side, it is that one.
    """
    return [
        one | {"blocks": (2,) * len(one["widths"]), "stem": "halving" if one["size"] < 224 else "imagenet"}
        for one in _fitting(data, _SIZES)
    ]


def _fitting(data: DataSet, sizes: Sequence[_Size]) -> list[dict[str, Any]]:
    assert isinstance(data, StoredImages)
    most = max(data.usual_side(_LOOKED_AT), sizes[0][0])
    return [{"size": side, "widths": widths, "channels_last": True} for side, widths in sizes if side <= most]


def with_classes_of(recipe: Recipe, data: DataSet) -> Recipe:
    """Return a recipe of a classifier with as many outputs as its data have classes."""
    assert isinstance(recipe.model, ResNetOptions | CompactOptions | Published)
    return replace(recipe, model=replace(recipe.model, num_classes=len(data.labels)))


def imagenet_resnet18() -> Recipe:
    """Return binary ResNet-18 on ImageNet: the last row of the paper's table 2, and the others by flags.

    ========================  =======  ==================================================
    row                       top-1    flags
    ========================  =======  ==================================================
    table 2, none             52.3 %   --latent none --scale analytic
    none, learned alpha       53.0 %   --latent none --scale learned
    SVD, learned alpha        52.5 %   --latent svd --scale learned
    Tucker                    54.0 %   --latent tucker --scale analytic
    Tucker, learned alpha     54.7 %   --latent tucker --scale learned
    holistic                  55.2 %   --latent holistic --scale analytic
    holistic, learned alpha   55.6 %   none: the defaults
    table 4, BNN              42.2 %   --latent none --scale none --activation norm
    XNOR-Net                  51.2 %   --latent none --scale analytic --input-scale
    real-valued               69.3 %   --real
    ========================  =======  ==================================================

    The paper cites the rows of table 4 from elsewhere; here they are the same network and training.
    `bitfactor reproduce table2` and `table4` train exactly these.

    From the paper: images resized to 256x256, random 224x224 crops. Adam for 90 epochs, learning rate from
    1e-3 to 1e-6, dropped every 30 epochs, weight decay 1e-7. Stem, head and 1x1 shortcuts are real. Holistic
    has three groups, the equal 3x3 convolutions of stages 2, 3 and 4. Where it is silent we chose batches of
    256, a rate that falls by the same factor twice, ReLU after each convolution and no mirroring. The
    weight's sign has the estimator that did best elsewhere (docs/results/estimators.md).
    """
    return _classifier(
        "imagenet-resnet18",
        "binary ResNet-18 on ImageNet, as in the paper",
        ResNetOptions(num_classes=1000),
        FolderOptions(preset="paper"),
        Binarization(latent="holistic", scale="learned", weight_estimator="rms"),
        Optimization(
            epochs=90,
            batch_size=256,
            learning_rate=1e-3,
            schedule="step",
            plateaus=3,
            min_lr=1e-6,
            weight_decay=1e-7,
            channels_last=True,
        ),
    )


_ALL: tuple[Kind, ...] = ("latents", "factors", "alphas", "weights", "rest")  # SGD of the authors decays all


def cifar10_resnet20() -> Recipe:
    """Return IR-Net's ResNet-20 on CIFAR-10: 86.5 % as published, the best epoch on the test images.

    H. Qin et al., arXiv 1909.10788, code `htqin/IR-Net`. SGD with momentum 0.9 at 0.1, a cosine over 400
    epochs of batches of 128, decay 1e-4 of all parameters. Weights are standardised, with an annealed
    estimator for weights and inputs and a shortcut around each convolution. It anneals through the four
    powers of ten of the code; the paper has two. `--widths 48 96 192` fills what a
    microcontroller has (docs/microcontroller.md). The authors' scale is a power of two near the mean
    magnitude of standardised weights. It is nearly the same for all filters, and a BatchNorm follows. Ours is
    that mean itself, without a gradient. First convolution and head are real.
    """
    return _classifier(
        "cifar10-resnet20",
        "ResNet-20 of IR-Net on CIFAR-10",
        PublishedWidths("irnet_resnet20", 10),
        CifarOptions(10),
        Binarization(
            latent="none",
            scale="analytic",
            detach_alpha=True,
            activation_estimator="annealed_late",
            weight_estimator="annealed_late",
            weight_transform="standardised",
        ),
        _by_sgd(epochs=400, batch_size=128, weight_decay=1e-4),
    )


def cifar10_resnet18_recu() -> Recipe:
    """Return ReCU's ResNet-18 on CIFAR-10: 92.8 % as published, the best epoch on the test images.

    Z. Xu et al., arXiv 2103.12369, code `z-hXu/ReCU`. SGD with momentum 0.9 at 0.1 after a warm-up of 4
    epochs. A cosine over 600 epochs of batches of 256, decay 5e-4 of all parameters. Standardised weights are
    clamped at a quantile that rises. The scale is learned, and inputs are over the deviation of their sample.
    """
    return _recu("cifar10-resnet18-recu", "ResNet-18 of ReCU on CIFAR-10", "recu_resnet18")


def cifar10_vgg_small() -> Recipe:
    """Return VGG-small on CIFAR-10 as ReCU trains it: 92.2 % as published; see `cifar10_resnet18_recu`."""
    return _recu("cifar10-vgg-small", "VGG-small on CIFAR-10, as in ReCU", "vgg_small")


def _recu(name: str, description: str, network: str) -> Recipe:
    plan = _by_sgd(epochs=600, batch_size=256, weight_decay=5e-4, warmup_epochs=4)
    return _classifier(
        name, description, Published(network, 10), CifarOptions(10), _transformed("clamped"), plan
    )


def cifar10_resnet18_biper() -> Recipe:
    """Return BiPer's ResNet-18 on CIFAR-10: 93.75 % as published, the best epoch on the test images.

    E. Vargas et al., arXiv 2404.01278, code `edmav4/BiPer`. SGD with momentum 0.9 in two stages of batches of
    256, each with a warm-up of 4 epochs and a cosine. In 600 epochs weights are the sine of 20 W, at 0.021
    with decay 1.6e-3. In 300 more they are its sign, at 0.0037 with decay 1.6e-4. Network and inputs are
    those of ReCU. Here both stages are one run, and the learned scale starts at 1. Theirs is drawn
    at random, and the second stage starts from the best epoch of the first on the test images. Theirs has a
    term in the loss, too: 0.037, then 0.0468, times the mean of sin(20 W)^2 of each layer. In the first stage
    it convolves with the sine itself, ours with the sine over its mean magnitude in each filter.
    """
    return _classifier(
        "cifar10-resnet18-biper",
        "ResNet-18 of BiPer on CIFAR-10",
        Published("recu_resnet18", 10),
        CifarOptions(10),
        _transformed("periodic"),
        _by_sgd(
            epochs=900,
            batch_size=256,
            learning_rate=0.0037,
            weight_decay=1.6e-4,
            warmup_epochs=4,
            real_weight_epochs=600,
            real_weight_rate=0.021,
            real_weight_decay=1.6e-3,
        ),
    )


def _transformed(weight_transform: str) -> Binarization:
    return Binarization(
        latent="none",
        scale="learned",
        alpha_start="ones",
        activation_estimator="over_deviation",
        weight_estimator="identity",
        weight_transform=weight_transform,
    )


def _by_sgd(*, learning_rate: float = 0.1, **plan: Any) -> Optimization:
    return Optimization(optimizer="sgd", momentum=0.9, learning_rate=learning_rate, decayed=_ALL, **plan)


def imagenet_real2binary18() -> Recipe:
    """Return Real-to-Binary's ResNet-18 on ImageNet: 65.4 % as published.

    B. Martinez et al., ICLR 2020, arXiv 2003.11535. Three runs follow a real ResNet-18, each taught by the
    one before: its distribution, and where its maps are large. docs/results/parts.md has the commands. Each
    has 75 epochs of batches of 256 with Adam, at 1e-3 with decay 1e-5, and the last at 2e-4 without.

    The authors published no code. These are the example settings of `larq/zoo`, whose own network has 65.0 %
    by settings near them. We have a cosine in place of steps, and no tanh in the real network. Each filter
    has its mean magnitude as a scale beside the gate.
    """
    return _classifier(
        "imagenet-real2binary18",
        "Real-to-Binary's ResNet-18 on ImageNet",
        ResNetOptions(num_classes=1000, activation="prelu", shortcuts="conv", gates=True),
        FolderOptions(),
        Binarization(latent="none", scale="analytic", detach_alpha=True),
        Optimization(
            epochs=75,
            batch_size=256,
            learning_rate=1e-3,
            warmup_epochs=5,
            weight_decay=1e-5,
            channels_last=True,
        ),
    )


def imagenet_reactnet18() -> Recipe:
    """Return ReActNet on Bi-Real-18 on ImageNet: 65.9 % as published.

    Z. Liu et al., arXiv 2003.03488, code `liuzechun/ReActNet`. Adam at 2.5e-3, falling along a line, in two
    stages of 128 epochs of batches of 512. First binary inputs with decay 1e-5, then binary weights without.
    The loss is a real ResNet-34's distribution alone, which `--teacher timm:resnet34 --teacher-weight 1`
    gives; without a teacher it is that of the labels. We leave out the authors' change of colours.
    """
    return _reactnet("imagenet-reactnet18", "ReActNet-18 on ImageNet", "reactnet18")


def imagenet_reactnet_a() -> Recipe:
    """Return ReActNet-A on ImageNet: 69.4 % as published; see `imagenet_reactnet18`."""
    return _reactnet("imagenet-reactnet-a", "ReActNet-A, a binary MobileNet, on ImageNet", "reactnet_a")


def _reactnet(name: str, description: str, network: str) -> Recipe:
    return _classifier(
        name,
        description,
        Published(network, 1000),
        FolderOptions(),
        Binarization(latent="none", scale="analytic", detach_alpha=True, activation_estimator="polynomial"),
        Optimization(
            epochs=256,
            batch_size=512,
            learning_rate=2.5e-3,
            schedule="linear",
            real_weight_epochs=128,
            real_weight_decay=1e-5,
            channels_last=True,
        ),
    )
