"""The layers of a program as C: constants, and for each layer a function that makes it pixel by pixel.

A map lies in the arena as cells of 4 bytes: the channels of a pixel one behind the other, or its signs, 32 to
a cell. A layer makes a pixel in `row`, takes it through its stages there, and stores it. A binary convolution
makes integers; they turn real where a scale or a store follows, and not at all where the next sign does.
"""

import textwrap
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitfactor.common.errors import InputError
from bitfactor.runtime.program import Layer, Program
from bitfactor.targets.c99.instructions import ON_SUMS, ROWS, STAGES, WIDTH, Arguments, Constants

_WITHOUT_NODE = ("pointwise", "store")


@dataclass
class Layers:
    """The C of a program's layers: `functions`, their `calls`, and the `constants` that they read.

    `row_cells` and `taps_cells` are the room for a row, and for the signs or levels under a window.
    """

    program: Program
    constants: Constants = field(default_factory=Constants)
    functions: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    row_cells: int = 1
    taps_cells: int = 0

    def __post_init__(self) -> None:
        for layer in self.program.layers[1:-1]:
            self._write(layer)

    def _write(self, layer: Layer) -> None:
        nodes = iter(layer.names)
        first, *stages = layer.instructions
        _expect_known(layer)
        row = ROWS[first.kind](self._arguments(nodes, layer, 0))
        self.row_cells = max(self.row_cells, row.channels)
        self.taps_cells = max(self.taps_cells, row.taps)
        statements, sums = [row.statement], row.sums
        for i, stage in enumerate(stages, 1):
            kind = ON_SUMS[stage.kind] if sums else stage.kind
            statements.append(STAGES[kind](self._arguments(nodes, layer, i), row.channels))
            sums = sums and kind != "scale_sums"
        name = self.constants.unused(f"run_{layer.names[0]}")
        ran = [op for op in layer.operations if op != "store"]
        title = ", ".join(f"{node} ({op})" for node, op in zip(layer.names, ran, strict=True))
        lines = [
            textwrap.fill(f"/* {title} */", WIDTH, subsequent_indent="   "),
            f"static void {name}(void)",
            "{",
            *(f"    {line}" for line in row.declarations),
            f"    for (int32_t pixel = 0; pixel < {row.pixels}; pixel++) {{",
            *(f"        {line}" for line in statements),
            "    }",
            "}",
        ]
        self.functions.append("\n".join(lines))
        self.calls.append(f"{name}();")

    def _arguments(self, nodes: Any, layer: Layer, i: int) -> Arguments:
        instruction = layer.instructions[i]
        node = layer.names[0] if instruction.kind in _WITHOUT_NODE else next(nodes)
        return Arguments(instruction, lambda role, array: self.constants.define(f"{node}_{role}", array))


def _expect_known(layer: Layer) -> None:
    """Raise InputError where a layer holds what kernels.c has no function for."""
    first, *stages = layer.instructions
    several = int(first.arguments.get("maps", np.array(1)).item()) > 1
    if several or first.kind not in ROWS or any(stage.kind not in STAGES for stage in stages):
        raise InputError(
            f"node {layer.names[0]!r}",
            expected="operations that the C form has",
            found=", ".join(layer.operations),
            fix="run the file with bitfactor.runtime, or keep this part out of the network",
        )
