"""What public functions are given, checked: arrays by shape and dtype, sizes."""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import expect_that, shown
from bitfactor.common.errors import InputError

Axes = tuple[int | str | EllipsisType, ...]

MOST_SIZE = 1 << 20
_KINDS = {"f": "floating-point values", "fiu": "values", "bfiu": "values", "u": "unsigned integers"}


def expect_array(where: str, value: object, axes: Axes, kinds: str = "fiu") -> None:
    """Raise InputError unless `value` is an array with these axes, whose dtype is of one of these kinds.

    Parameters
    ----------
    where
        Names the array in the message.
    axes
        Lengths, names of axes of any length, and first `...` where axes may come before.
    kinds
        Letters of `numpy.dtype.kind`.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in kinds and _fits(value.shape, axes):
        return
    named = ", ".join("..." if axis is ... else str(axis) for axis in axes)
    raise InputError(
        where,
        expected=f"an array of {_KINDS[kinds]} shaped ({named}{',' if len(axes) == 1 else ''})",
        found=f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else shown(value),
        fix="pass one of that shape",
    )


def expect_image(where: str, image: Any, *, colour: bool = False) -> None:
    """Raise InputError unless `image` is (H, W, 3), or with `colour` False (H, W), of uint8 and not empty."""
    usable = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.size > 0
    if usable and (image.shape[2:] == (3,) or (image.ndim == 2 and not colour)):
        return
    raise InputError(
        where,
        expected=f"uint8 values of 0 to 255 shaped (H, W, 3), RGB{'' if colour else ', or (H, W)'}",
        found=f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else shown(image),
        fix=_fix_of_image(image),
    )


def expect_channels(where: str, image: Any, channels: int) -> NDArray[np.uint8]:
    """Return an array (H, W, channels) of uint8 that is not empty; raise InputError if it is none."""
    usable = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.size > 0
    if usable and image.ndim == 3 and image.shape[2] == channels:
        return np.asarray(image)
    raise InputError(
        where,
        expected=f"an array of uint8 values of 0 to 255 shaped (H, W, {channels})",
        found=f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else shown(image),
        fix="files hold one channel or three; pass an array, or call the session with what is prepared",
    )


def _fix_of_image(image: object) -> str:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return "pass the pixels as they were decoded"
    if not image.size:
        return "pass an image with pixels"
    if image.ndim == 4:
        return "pass a list of images, as list(x) makes"
    if image.ndim == 3 and image.shape[0] == 3:
        return "put the channels last, as in x.transpose(1, 2, 0)"
    if image.ndim == 3 and image.shape[2] == 1:
        return "pass the one channel, x[..., 0]"
    return "leave the transparency out, x[..., :3]" if image.shape[-1] == 4 else "pass one image"


def expect_above_0(where: str, value: float) -> None:
    """Raise InputError unless `value` is above 0."""
    expect_that(value > 0, where, expected="a value above 0", found=value)


def expect_sizes(**sizes: int | Sequence[int]) -> None:
    """Raise InputError unless each number, or each of a sequence, can be a count of what a network has."""
    for name, value in sizes.items():
        numbers = value if isinstance(value, Sequence) else (value,)
        fits = len(numbers) > 0 and all(1 <= number <= MOST_SIZE for number in numbers)
        expect_that(fits, name, expected=f"1 to {MOST_SIZE}", found=value)


def expect_stages(blocks: Sequence[int], widths: Sequence[int]) -> None:
    """Raise InputError unless there is a count of blocks and of channels for each stage."""
    expect_sizes(blocks=blocks, widths=widths)
    found = f"{len(blocks)} and {len(widths)}"
    expect_that(len(blocks) == len(widths), "blocks and widths", expected="one per stage", found=found)


def _fits(shape: tuple[int, ...], axes: Axes) -> bool:
    if axes and axes[0] is ...:
        axes = axes[1:]
        shape = shape[len(shape) - len(axes) :] if len(shape) >= len(axes) else shape
    return len(shape) == len(axes) and all(
        isinstance(axis, str) or axis == length for axis, length in zip(axes, shape, strict=True)
    )


def same_class(found: NDArray[Any], expected: NDArray[Any]) -> int:
    """Return of how many samples (N, ...) the largest entry is the same."""
    first, second = (scores.reshape(len(scores), -1).argmax(1) for scores in (found, expected))
    return int((first == second).sum())


_MASKED = np.float32(1e29)


def relative_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, as a fraction of the largest expected magnitude.

    What is masked counts as neither: values beyond 1e29 are the same where they are of the same sign.
    """
    found, expected = (np.clip(x.astype(np.float32), -_MASKED, _MASKED) for x in (found, expected))
    inside = np.abs(expected[np.abs(expected) < _MASKED])
    largest = max(float(inside.max(initial=0)), float(np.finfo(np.float32).tiny))
    return float(np.abs(found - expected).max(initial=0)) / largest
