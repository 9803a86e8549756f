"""An operation of one's own in the model file: half a turn of a map, as a custom operator of torch.

Import it before `bitfactor.export(network, "net.safetensors", x)`. For a run whose network has it:

bitfactor --import examples/own_operation.py export RUN -o net.safetensors
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.operators import LOWERING
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.move import Move


@torch.library.custom_op("another::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    """Turn a map (N, C, H, W) by half a turn."""
    return torch.rot90(x, 2, (2, 3)).clone()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Rot180(Move):
    """What the file calls it: the same numbers, elsewhere, so that `reference` says all."""

    def reference(self, node: Node, x: Any) -> Any:
        return x[..., ::-1, ::-1]

    def onnx(self, b: Any, node: Node, x: str) -> None:
        """Write it as ONNX: two slices, from the last to the first."""
        for axis, output in ((2, None), (3, node.name)):
            ends = (b.constant(np.array([n]), f"integer:{n}") for n in (-1, np.iinfo(np.int64).min, axis, -1))
            x = b.emit("Slice", [x, *ends], output)


OPERATIONS["rot180"] = Rot180()
LOWERING["another.turned.default"] = lambda b, x: b.alike("rot180", x)
