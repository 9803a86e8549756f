"""An operation is added in three places: entry, lowering, and a native step, which this one needs not."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter.operators import LOWERING
from bitfactor.format import load
from bitfactor.format.graph import cost
from bitfactor.format.operations import OPERATIONS
from bitfactor.runtime import Session, instruction_sets
from bitfactor.targets.onnx import check, to_onnx


@pytest.fixture
def known(monkeypatch):
    """The operation of the example, for one test."""
    for table in (OPERATIONS, LOWERING):
        for name, one in ADDED[id(table)].items():
            monkeypatch.setitem(table, name, one)


def _added():
    """Run the example, and return what it adds to each table, without it."""
    before = {id(table): dict(table) for table in (OPERATIONS, LOWERING)}
    example = runpy.run_path(str(EXAMPLE))
    added = {}
    for table in (OPERATIONS, LOWERING):
        added[id(table)] = {name: table.pop(name) for name in table.keys() - before[id(table)].keys()}
    return example["turned"], added


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_operation.py"
turned, ADDED = _added()


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = bitfactor.nn.BinaryConv2d(6, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(turned(x))


def test_without_it_the_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"another\.turned\.default"):
        bitfactor.export(Turned().eval(), tmp_path / "net.safetensors", torch.randn(1, 6, 7, 8))


def test_with_it_the_model_is_exported_run_and_written_as_onnx(tmp_path, known):
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
