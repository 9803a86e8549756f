"""Folding changes the number of operations and nothing else."""

import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.exporter.fold import fold, fold_affine, fold_pads, fold_signs, remove_dead
from bitfactor.exporter.lower import lower
from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import run
from bitfactor.models import ResNet
from bitfactor.nn import LearnedScale


def randomised(model, seed=0):
    """Give every BatchNorm statistics as after training, zero and negative gamma among them."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.normal_(generator=generator)
            module.weight.data[0] = 0
            module.bias.data.normal_(generator=generator)
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.1, 2, generator=generator)
    return model.eval()


@pytest.fixture
def lowered():
    model = ResNet((1, 1), (8, 16), 10, 1, "cifar")
    binarize_(model, Binarization(latent="none"))
    for module in model.modules():
        if isinstance(module, LearnedScale):
            module.alpha.data[::2] *= -1
            module.alpha.data[1] = 0
    return lower(randomised(model), torch.zeros(2, 1, 8, 8)).graph


def test_a_value_with_two_readers_keeps_its_second_affine(lowered):
    """The stem feeds a shortcut and a BatchNorm; only the stem's own BatchNorm may go into its weight."""
    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    (expected,), (found,) = run(lowered, x), run(fold_affine(lowered)[0], x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert [n.op for n in fold_affine(lowered)[0].nodes[:2]] == ["conv2d", "affine"]


def test_thresholds_leave_every_bit(lowered):
    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    for expected, found in zip(run(lowered, x), run(fold_signs(lowered), x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_fold_leaves_no_affine_before_a_sign(lowered):
    graph, _ = fold(lowered)
    nodes = {node.name: node for node in graph.nodes}
    signs = [node for node in graph.nodes if node.op == "threshold"]
    assert len(signs) == 4
    assert all(nodes[node.inputs[0]].op in ("conv2d", "binary_conv2d", "add") for node in signs)


def test_dead_nodes_go():
    nodes = (Node("a", "relu", ("x",)), Node("b", "relu", ("x",)), Node("c", "relu", ("b",)))
    graph = remove_dead(Graph(Value("x", (4,), "float32"), nodes, ("a",)))
    assert [node.name for node in graph.nodes] == ["a"]


PADS = {
    "same as Keras": ((0, 1, 0, 1), {"stride": 2}, (0, 0, 1, 1)),
    "beside its own": ((1, 0, 0, 2), {"padding": 1, "dilation": 2}, (1, 2, 3, 1)),
    "of width alone": ((2, 1), {"groups": 3, "kernel_size": (1, 4)}, (0, 2, 0, 1)),
    "farther than a window": ((0, 3, 0, 0), {}, (0, 0, 0, 0)),
    "of the batch's next": ((0, 0, 0, 0, 0, 3), {}, (0, 0, 0, 0)),
}


@pytest.mark.parametrize("case", PADS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_zeros_around_a_map_are_a_convolutions_own(case, value):
    widths, options, expected = PADS[case]
    conv = nn.Conv2d(6 if len(widths) == 6 else 3, 6, **{"kernel_size": 3, **options})
    model, x = nn.Sequential(nn.ConstantPad2d(widths, value), conv), torch.randn(2, 3, 11, 9)
    folded = fold(lower(model, x).graph)[0]
    (found,) = run(folded, x.numpy())
    np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)
    taken = value == 0 and any(expected)
    assert ("pad" not in [node.op for node in folded.nodes]) == taken
    (layer,) = [node for node in folded.nodes if node.op == "conv2d"]
    if taken:
        assert layer.attributes["padding"] == expected


def test_a_padded_map_that_another_reads_stays():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.pad, self.conv = nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 3, 3)

        def forward(self, x):
            padded = self.pad(x)
            return self.conv(padded), padded

    model, x = Both(), torch.randn(1, 3, 6, 6)
    folded = fold_pads(lower(model, x).graph)
    for found, expected in zip(run(folded, x.numpy()), model(x), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)
