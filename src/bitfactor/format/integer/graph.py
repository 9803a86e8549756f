"""A network as integer operations.

A value is of one of five types:

- `pixel`: a byte of an image minus 128, int8;
- `bit`: signs;
- `sum`: sums of a binary layer, which fit 16 bits;
- `stream`: 16 bits, within +-32767; the real number is the scale, a power of two, times it;
- `output`: sums of the last real layer, 32 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.image_spec import InputSpec
from bitfactor.format.operations import Node
from bitfactor.format.operations.integer import LARGEST, PIXEL
from bitfactor.format.operations.operation import Shape

Type = Literal["pixel", "bit", "sum", "stream", "output"]
MOVES = (
    "concat", "join", "upsample_nearest", "flatten", "reshape", "permute", "slice", "rearrange", "take",
    "pad",
)  # fmt: skip


@dataclass(frozen=True)
class IntegerValue:
    """A value's name, shape without the batch dimension, type, and what 1 stands for."""

    name: str
    shape: Shape
    type: Type
    scale: float = 1.0


@dataclass(frozen=True)
class IntegerGraph:
    """A network in integers: nodes in an order in which they can run, names of outputs, all values by name.

    `spec` says how an image becomes pixels; a network of other inputs has none.
    """

    input: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, IntegerValue]
    spec: InputSpec | None = None

    def levels(self) -> tuple[NDArray[np.float32], NDArray[np.float32], int, int]:
        """Return what makes integers of the inputs: factor and offset of each channel, and the bounds."""
        channels = self.values[self.input].shape[0]
        if self.spec is None:
            factor = np.full(channels, 1 / self.values[self.input].scale, np.float32)
            return factor, np.zeros(channels, np.float32), -LARGEST, LARGEST
        mean, std = (np.array(part) for part in (self.spec.mean, self.spec.std))
        return (255 * std).astype(np.float32), (255 * mean - PIXEL).astype(np.float32), -PIXEL, PIXEL - 1
