"""The paper's tables and figures: which trainings they are of, and what they say, in percent.

Bulat, Kossaifi, Tzimiropoulos, Pantic: "Matrix and tensor decompositions for training binary neural
networks".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bitfactor.study.grid import REAL, Row

Exhibit = Literal["table1", "table2", "table3", "table4", "figure2", "figure3", "figure5"]


@dataclass(frozen=True)
class Method:
    """A row of a table: how it is trained, and its figures, the first by which networks are compared.

    `options` are those of the recipe beside latent and scale, `small` those that differ for the small
    setting. `note` says where the row here is not what the figure was published for.
    """

    name: str
    latent: str
    scale: str
    figures: Sequence[float] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    real: bool = False
    note: str = ""

    @property
    def row(self) -> Row:
        return REAL if self.real else Row(self.latent, self.scale)

    @property
    def slug(self) -> str:
        """Name of its directory: methods that are trained alike share one."""
        parts = [f"{name}={value}" for name, value in sorted(self.options.items())]
        return "-".join([str(self.row), *parts])


@dataclass(frozen=True)
class Setting:
    """A network and a data set: the paper's own, or the small one that stands for it.

    `images` are those to train on and those to evaluate on.
    """

    recipe: str
    data: str
    images: tuple[int, int]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTask:
    """What the paper does twice: human pose, and image classification."""

    data: str
    metrics: Sequence[str]
    paper: Setting
    small: Setting


POSE = PaperTask(
    "MPII",
    ("PCKh",),
    Setting("mpii-hourglass", "MPII Human Pose", (22_246, 2_958)),
    Setting(
        "lsp-hourglass-small",
        "Leeds Sports Pose extended",
        (9_000, 1_000),
        {
            "weight_estimator": "clipped",
            "learning_rate": 0.004,
            "factor_rate": 1.0,
            "epochs": 1,
            "eval_interval": 1,
            "warmup_epochs": 0.1,
        },
    ),
)
"""Section 5.1: the hourglass."""

IMAGES = PaperTask(
    "ImageNet",
    ("top-1", "top-5"),
    Setting("imagenet-resnet18", "ImageNet", (1_281_167, 50_000)),
    Setting(
        "cifar10-resnet18",
        "CIFAR-10",
        (50_000, 10_000),
        {
            "blocks": (2, 2, 2),
            "widths": (32, 64, 128),
            "stem": "halving",
            "precision": "bfloat16",
            "channels_last": True,
            "weight_estimator": "clipped",
            "learning_rate": 0.004,
            "factor_rate": 1.0,
            "epochs": 1,
            "warmup_epochs": 0.1,
        },
    ),
)
"""Section 5.2: ResNet-18."""

_OTHER_NETWORK = "published for another network and training; here the same as in the other rows"
_FULL = "published with the original ResNet-18 and its own training; here the same as in the other rows"

_TABLE_1 = (
    Method("none", "none", "analytic", (78.4,)),
    Method("none, learned alpha", "none", "learned", (79.3,)),
    Method("SVD", "svd", "analytic", (78.7,)),
    Method("SVD, learned alpha", "svd", "learned", (79.0,)),
    Method("Tucker", "tucker", "analytic", (79.3,)),
    Method("Tucker, learned alpha", "tucker", "learned", (79.9,)),
    Method("holistic Tucker", "holistic", "analytic", (82.0,)),
    Method("holistic Tucker, learned alpha", "holistic", "learned", (82.5,)),
)
_TABLE_2 = (
    Method("none", "none", "analytic", (52.3, 74.1)),
    Method("none, learned alpha", "none", "learned", (53.0, 74.7)),
    Method("SVD, learned alpha", "svd", "learned", (52.5, 74.2)),
    Method("Tucker", "tucker", "analytic", (54.0, 76.9)),
    Method("Tucker, learned alpha", "tucker", "learned", (54.7, 77.4)),
    Method("holistic Tucker", "holistic", "analytic", (55.2, 78.2)),
    Method("holistic Tucker, learned alpha", "holistic", "learned", (55.6, 78.5)),
)
_TABLE_3 = (
    Method(
        "HBC",
        "none",
        "analytic",
        (78.1,),
        {"block": "hierarchical", "channels": 256},
        {"channels": 128, "shortcuts": "block"},
        note="twice the channels of the basic blocks, as published",
    ),
    Method("ours", "holistic", "learned", (82.5,)),
    Method("full precision", "none", "learned", (85.8,), real=True),
)
_TABLE_4 = (
    Method("BNN", "none", "none", (42.2, 69.2), {"activation": "norm"}, note=_OTHER_NETWORK),
    Method("XNOR-Net", "none", "analytic", (51.2, 73.2), {"input_scale": True}, note=_OTHER_NETWORK),
    Method("ours", "holistic", "learned", (55.6, 78.5)),
    Method("full precision", "none", "learned", (69.3, 89.2), real=True, note=_FULL),
)


@dataclass(frozen=True)
class Shown:
    """A table or figure: its title, the experiment, and its rows; others are compared with the first."""

    title: str
    experiment: PaperTask
    methods: Sequence[Method]


EXHIBITS: dict[Exhibit, Shown] = {
    "table1": Shown("Table 1: the variations of the method", POSE, _TABLE_1),
    "table2": Shown("Table 2: the variations of the method", IMAGES, _TABLE_2),
    "table3": Shown("Table 3: comparison with the state of the art", POSE, _TABLE_3),
    "table4": Shown("Table 4: comparison with the state of the art", IMAGES, _TABLE_4),
    "figure2": Shown("Figure 2: the scaling factors", IMAGES, _TABLE_2[-2:]),
    "figure3": Shown("Figure 3: the weights before the sign", POSE, (_TABLE_1[1], _TABLE_1[-1])),
    "figure5": Shown("Figure 5: poses found", POSE, _TABLE_1[-1:]),
}


@dataclass(frozen=True)
class Published:
    """What the paper says of rows on one data set; `recipe` is that of the same network and data."""

    data: str
    metrics: Sequence[str]
    recipe: str
    figures: Mapping[Row, Sequence[float]]

    def difference(self, ours: Row, theirs: Row) -> float | None:
        """Return how many points of the first metric lie between two rows, None where one is lacking."""
        known = {ours, theirs} <= self.figures.keys()
        return self.figures[ours][0] - self.figures[theirs][0] if known else None


def _published(experiment: PaperTask, rows: Sequence[Method], compared: Sequence[Method]) -> Published:
    figures = {method.row: method.figures for method in (*rows, compared[-1])}
    return Published(experiment.data, experiment.metrics, experiment.paper.recipe, figures)


MPII = _published(POSE, _TABLE_1, _TABLE_3)
IMAGENET = _published(IMAGES, _TABLE_2, _TABLE_4)


def published_for(headline: str) -> Published:
    """Return the figures to compare a study with: those of poses for a PCK, else those of images."""
    return MPII if headline.startswith("pck") else IMAGENET
