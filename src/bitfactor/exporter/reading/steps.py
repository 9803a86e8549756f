"""A value that takes few values: one below a threshold, one at it, one above.

Signs, comparisons and quantisers of one bit are such, and so is what is computed from one and constants.
Where it takes two values it is a binary activation, whatever they are.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.functions import above, add, at_least, mul, sign, sub, where
from bitfactor.exporter.steps import Levels
from bitfactor.exporter.view import View


@dataclass(frozen=True)
class Steps:
    """`below` where source < threshold, `at` where they are the same, `above` beyond; all broadcast.

    `pads` has those before and behind each axis, filled with `pad_value`. `note_third` is called where a
    third value between two counts as the lower.
    """

    source: View
    threshold: Tensor
    below: Tensor
    at: Tensor
    above: Tensor
    pads: tuple[tuple[int, int], ...] = ()
    pad_value: float = 0.0
    note_third: Callable[[], object] = field(default=lambda: None, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether nothing depends on the place, so that moving the source moves the value."""
        return all(x.numel() == 1 for x in (self.threshold, self.below, self.at, self.above))

    @property
    def sides(self) -> list[int]:
        """The pads as torch.nn.functional.pad has them, last axis first; none where all are 0."""
        return [n for pair in reversed(self.pads) for n in pair] if any(map(any, self.pads)) else []

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Steps":
        """Return what a function of each number by itself makes of the value."""
        return replace(self, below=function(self.below), at=function(self.at), above=function(self.above))

    def rises_evenly(self) -> bool:
        """Whether the largest of several is the value of the largest source, channel by channel."""
        rises = bool(
            (self.above.float() >= self.at.float()).all() and (self.at.float() >= self.below.float()).all()
        )
        return rises and all(
            all(length == 1 for length in x.shape[2:])
            for x in (self.threshold, self.below, self.at, self.above)
        )


@dataclass(frozen=True)
class Signs(Levels):
    """low + (high - low) (1 + s) / 2, where s is the sign of `signed`, times -1 where it is `flipped`."""

    signed: View
    flipped: bool

    def sign_of(self, value: float) -> int | None:
        """Return the s, 0 included, that stands for a padded value; None where there is none."""
        s = (value - self.middle) / self.half
        return int(s) if s in (-1.0, 0.0, 1.0) else None


def signs_of(b: Builder, steps: Steps) -> Signs | None:
    """Return a value of two values as signs; None where it has more, or others in each place.

    The 0 of ONNX's Sign, between its two values, counts as the lower: the reader says so, or refuses it.
    """
    below, at, high = (np.unique(x.float().numpy()) for x in (steps.below, steps.at, steps.above))
    if (
        max(map(len, (below, at, high))) > 1
        or below[0] == high[0]
        or at[0] not in (below[0], high[0], (below[0] + high[0]) / 2)
    ):
        return None
    strict = at[0] != high[0]
    if at[0] not in (below[0], high[0]):
        steps.note_third()
    source, t = steps.source, steps.threshold.float()
    if strict:
        return Signs(float(below[0]), float(high[0]), _shifted(b, source, 1.0, -t), False)
    return Signs(float(below[0]), float(high[0]), _shifted(b, source, -1.0, t), True)


def _shifted(b: Builder, x: View, factor: float, shift: Tensor) -> View:
    """Return factor x + shift, which a threshold takes in; the difference of two floats has their order."""
    if factor == 1 and not bool(shift.any()):
        return x
    x, shifts = b.constant(b.real(x), shift)
    channels = b.shape(x.name)[0]
    return b.alike("affine", x, scale=np.full(channels, factor, np.float32), shift=_each(shifts, channels))


def _each(shifts: np.ndarray, channels: int) -> np.ndarray:
    return np.repeat(shifts, channels) if shifts.shape == (1,) and channels > 1 else shifts


def real(b: Builder, value: "View | Tensor | Steps") -> View | Tensor:
    """Return a value as real numbers."""
    if not isinstance(value, Steps):
        return value
    below, at, high = value.below.float(), value.at.float(), value.above.float()
    x, t = value.source, value.threshold.float()
    if torch.equal(at, below):
        return where(b, above(b, x, t), high, below)
    if torch.equal(at, high):
        return where(b, at_least(b, x, t), high, below)
    middle = (high + below) / 2
    s = sign(b, sub(b, x, t))
    if torch.equal(at, middle):
        return add(b, mul(b, s, high - middle), middle)
    return where(b, above(b, x, t), high, where(b, at_least(b, x, t), at, below))
