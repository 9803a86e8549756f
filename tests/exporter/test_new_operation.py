"""An operation is added in three places: entry, lowering, and a native step, which this one needs not."""

import numpy as np
import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter.operators import LOWERING
from bitfactor.format import load
from bitfactor.format.graph import cost
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.move import Move
from bitfactor.runtime import Session, instruction_sets
from bitfactor.targets.onnx import check, to_onnx


class Rot180(Move):
    def reference(self, node: Node, x: np.ndarray) -> np.ndarray:
        return x[..., ::-1, ::-1]

    def onnx(self, b, node: Node, x: str) -> None:
        for axis, output in ((2, None), (3, node.name)):
            ends = (b.constant(np.array([n]), f"integer:{n}") for n in (-1, np.iinfo(np.int64).min, axis, -1))
            x = b.emit("Slice", [x, *ends], output)


@torch.library.custom_op("another::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return torch.rot90(x, 2, (2, 3)).clone()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = bitfactor.nn.BinaryConv2d(6, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(turned(x))


def test_without_it_the_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"another\.turned\.default"):
        bitfactor.export(Turned().eval(), tmp_path / "net.safetensors", torch.randn(1, 6, 7, 8))


def test_with_it_the_model_is_exported_run_and_written_as_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(OPERATIONS, "rot180", Rot180())
    monkeypatch.setitem(LOWERING, "another.turned.default", lambda b, x: b.alike("rot180", x))
    model, x = Turned().eval(), torch.randn(3, 6, 7, 8)
    bitfactor.export(model, tmp_path / "net.safetensors", x[:1])
    expected = model(x).detach().numpy()
    for isa in (*instruction_sets(), "reference"):
        session = Session(tmp_path / "net.safetensors", isa=isa)
        np.testing.assert_allclose(session(x.numpy()), expected, rtol=1e-6)
    file = load(tmp_path / "net.safetensors")
    node = next(node for node in file.graph.nodes if node.op == "rot180")
    assert cost(node, file.graph).real_macs == 0
    check(file.graph, to_onnx(file), x.numpy())
