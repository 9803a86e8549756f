"""Operations that give what stands in the file: a constant, rows of a table."""

import numpy as np

from bitfactor.format.operations.operation import (
    FLOATS,
    Float,
    Node,
    Onnx,
    Place,
    Rows,
    Shape,
    bad,
)
from bitfactor.format.program import Instruction


class Constant(Rows):
    inputs = ()
    tensors = {"value": FLOATS}

    def infer(self, node: Node) -> Shape:
        return node.tensors["value"].shape

    def reference(self, node: Node) -> Float:
        return node.tensors["value"][None]

    def onnx(self, b: Onnx, node: Node) -> None:
        """A batch of one, which broadcasts; a constant that is joined must have that of the input."""
        b.samples(b.constant(node.tensors["value"][None], f"{node.name}:value"), node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        value = node.tensors["value"]
        return Instruction.of("constant", value=value.reshape(len(value), -1).T)


class Embedding(Rows):
    tensors = {"table": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        table = node.tensors["table"].shape
        if len(table) != 2 or table[0] > 1 << 24:
            raise bad(node, "a table (rows, channels) of 2^24 rows at most", str(table))
        return (table[1], *x[1:], x[0])

    def reference(self, node: Node, x: Float) -> Float:
        """(N, S, ...) -> (N, channels, ..., S): the row that each number stands for."""
        rows = np.clip(x, 0, len(node.tensors["table"]) - 1).astype(np.int64)
        return np.moveaxis(node.tensors["table"][np.moveaxis(rows, 1, -1)], -1, 1)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        rank = len(b.shape(x))
        rows = b.emit("Cast", [x], attributes={"to": 7})  # onnx.TensorProto.INT64
        last = b.emit("Transpose", [rows], attributes={"perm": [0, *range(2, rank + 1), 1]})
        taken = b.emit("Gather", [b.constant(node.tensors["table"], f"{node.name}:table"), last])
        b.emit("Transpose", [taken], node.name, {"perm": [0, rank + 1, *range(1, rank + 1)]})

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of("embedding", source=place.sources[0], table=node.tensors["table"])
