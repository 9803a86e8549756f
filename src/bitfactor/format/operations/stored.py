"""Operations that give what stands in the file: a constant, rows of a table."""

import numpy as np

from bitfactor.format.operations.operation import (
    FLOAT,
    FLOATS,
    Float,
    Node,
    Onnx,
    Operation,
    Place,
    Shape,
    bad,
)
from bitfactor.format.program import Instruction


def _infer_constant(node: Node) -> Shape:
    return node.tensors["value"].shape


def _constant(node: Node) -> Float:
    return node.tensors["value"][None]


def _onnx_constant(b: Onnx, node: Node) -> None:
    """A batch of one, which broadcasts; a constant that is joined must have that of the input."""
    b.samples(b.constant(node.tensors["value"][None], f"{node.name}:value"), node.name)


def _constant_rows(node: Node, place: Place) -> Instruction:
    value = node.tensors["value"]
    return Instruction.of("constant", value=value.reshape(len(value), -1).T)


CONSTANT = Operation(
    inputs=(),
    dtype="float32",
    tensors={"value": FLOATS},
    infer=_infer_constant,
    reference=_constant,
    onnx=_onnx_constant,
    rows=_constant_rows,
)


def _infer_embedding(node: Node, x: Shape) -> Shape:
    table = node.tensors["table"].shape
    if len(table) != 2 or table[0] > 1 << 24:
        raise bad(node, "a table (rows, channels) of 2^24 rows at most", str(table))
    return (table[1], *x[1:], x[0])


def _embedding(node: Node, x: Float) -> Float:
    """(N, S, ...) -> (N, channels, ..., S): the row that each number stands for."""
    rows = np.clip(x, 0, len(node.tensors["table"]) - 1).astype(np.int64)
    return np.moveaxis(node.tensors["table"][np.moveaxis(rows, 1, -1)], -1, 1)


def _onnx_embedding(b: Onnx, node: Node, x: str) -> None:
    rank = len(b.shape(x))
    rows = b.emit("Cast", [x], attributes={"to": 7})  # onnx.TensorProto.INT64
    last = b.emit("Transpose", [rows], attributes={"perm": [0, *range(2, rank + 1), 1]})
    taken = b.emit("Gather", [b.constant(node.tensors["table"], f"{node.name}:table"), last])
    b.emit("Transpose", [taken], node.name, {"perm": [0, rank + 1, *range(1, rank + 1)]})


def _embedding_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of("embedding", source=place.sources[0], table=node.tensors["table"])


EMBEDDING = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    tensors={"table": FLOATS},
    infer=_infer_embedding,
    reference=_embedding,
    onnx=_onnx_embedding,
    rows=_embedding_rows,
)
