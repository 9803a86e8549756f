"""Multiplications and bytes of a graph, counted by hand."""

import numpy as np

from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import Cost, cost, total

SLIDING = {"stride": (2, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 2}


def test_a_binary_convolution(graph):
    found = [cost(node, graph) for node in graph.nodes]
    assert found[1] == Cost(binary_macs=3 * 8 * 8 * 3 * 3 * 70, binary_bytes=3 * 3 * 3 * 2 * 8)
    assert found[0] == Cost(real_bytes=70 * (4 + 1))
    assert total(graph) == found[0] + found[1] + found[2]
    assert total(graph).binary_fraction == 1


def test_real_layers_count_groups_strides_and_their_types():
    weight, bias = np.ones((6, 3, 3, 2), np.float16), np.ones(6, np.float32)
    conv = Node("conv", "conv2d", ("x",), SLIDING, {"weight": weight, "bias": bias})
    flat = Node("flat", "flatten", ("conv",))
    step = np.ones(5, np.float32)
    tensors = {"weight": np.full((5, 6 * 4 * 8), 2, np.int8), "bias": step, "step": step}
    graph = Graph(
        Value("x", (4, 8, 8), "float32"), (conv, flat, Node("y", "linear", ("flat",), {}, tensors)), ("y",)
    )
    assert cost(conv, graph) == Cost(real_macs=6 * 4 * 8 * 3 * 3 * 2, real_bytes=2 * 6 * 9 * 2 + 4 * 6)
    assert cost(graph.nodes[2], graph) == Cost(real_macs=5 * 6 * 4 * 8, real_bytes=5 * 6 * 4 * 8 + 2 * 4 * 5)
    assert total(graph).binary_fraction == 0


def test_operations_without_weights_cost_nothing():
    graph = Graph(Value("x", (4,), "float32"), (Node("y", "relu", ("x",)),), ("y",))
    assert total(graph) == Cost()
    assert total(graph).binary_fraction == 0
