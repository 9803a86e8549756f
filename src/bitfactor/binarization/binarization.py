"""The choices of a conversion, as plain values: stored as JSON, shown as flags."""

from dataclasses import dataclass
from typing import Literal

from bitfactor.common.checks import check_fields, expect_one_of
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE, class_of
from bitfactor.decompositions.latent import expect_rank

ScaleName = Literal[
    "none", "analytic", "learned", "learned_map", "learned_channel_x_map", "learned_channel_x_axes"
]


@dataclass(frozen=True)
class Binarization:
    """How a model's convolutions and linear layers turn binary. The defaults are the paper's full method.

    Example
    -------
    >>> dataclasses.asdict(Binarization(latent="tucker"))["scale"]
    'learned'
    """

    latent: str = "holistic"
    """What the sign is taken of: a free weight, a decomposition of each layer, or one of several layers.
    With holistic, layers in no group get a Tucker decomposition of their own. One of
    `bitfactor.decompositions`: none, svd, tucker, holistic, tt, product, cosine, window, shared, or one
    that was registered there."""

    rank: int | float | tuple[int | float, ...] | None = None
    """Rank, or fraction of the full one, for all modes or per mode; the full rank if left out."""

    initialisation: Literal["factorised", "identity"] = "factorised"
    """Where the factors start: an exact factorisation of the first weight, or unit matrices around it."""

    start: Literal["weight", "he"] = "weight"
    """The first weight: the one the model has, or a fresh He-normal draw (fan out)."""

    groups: Literal["paper", "auto"] | None = None
    """Which layers holistic joins: the model's own preset, or every shape that occurs twice or more.
    Left out, the preset if the model has one."""

    scale: ScaleName = "learned"
    """The factor on a layer's output: none, mean of the weight's magnitudes, or learned: per channel, or
    as XNOR-Net++ has it per channel and position, free or as an outer product."""

    detach_alpha: bool = False
    """Stop the gradient that flows to the weight through an analytic scale."""

    alpha_start: Literal["analytic", "ones"] = "analytic"
    """Where a learned scale starts."""

    input_scale: bool = False
    """Multiply the output by the mean magnitude of the input in each window too: XNOR-Net's K, which the
    paper leaves out."""

    activation_estimator: Literal["clipped", "polynomial", "annealed"] = "clipped"
    """The gradient in place of the input sign's own."""

    weight_estimator: Literal["clipped", "rms", "identity"] = "clipped"
    """The gradient in place of the weight sign's own: clipped to abs(W) <= 1, through a normalisation of
    each filter, or passed on whole (factors then grow without bound)."""

    activations: bool = True
    """Binarize inputs; turn off for a stage of training with real ones."""

    weights: bool = True
    """Binarize weights; turn off for a stage of training with real ones, used at mean magnitude 1."""

    padding_value: Literal[-1, 0, 1] = 0
    """What padded taps hold after the sign."""

    real_ends: bool = True
    """Keep the layers that read the input, and those that give the output, real."""

    depthwise: bool = False
    """Binarize depthwise layers too, whose bits, padded to words of 64, take more than floats."""

    orthogonality: float = 0.0
    """Weight of `orthogonality_penalty` in the loss; the training loop adds it."""

    def __post_init__(self) -> None:
        expect_rank(self.rank)
        expect_one_of("latent", self.latent, [*LAYERWISE, *JOINT])
        check_fields(self)
        if self.orthogonality < 0:
            raise InputError(
                "orthogonality", expected="0 or more", found=str(self.orthogonality), fix="0 turns it off"
            )
        self._expect_effect("rank", "rank" in class_of(self.latent).takes, "a latent with factors")
        self._expect_effect("detach_alpha", self.scale == "analytic", "scale 'analytic'")
        self._expect_effect("alpha_start", self.scale.startswith("learned"), "a learned scale")

    def _expect_effect(self, name: str, has_effect: bool, needs: str) -> None:
        """Raise InputError where an option is not at its default and would do nothing."""
        if not has_effect and getattr(self, name) != getattr(type(self), name):
            raise InputError(
                name,
                expected=needs,
                found=f"latent {self.latent!r}, scale {self.scale!r}",
                fix=f"leave {name} out",
            )
