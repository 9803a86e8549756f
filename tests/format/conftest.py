"""A small graph with a binary convolution, and the file of it."""

import numpy as np
import pytest

from bitfactor.format import Graph, InputSpec, ModelFile, Node, Value, pack_signs

SLIDING = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture
def graph():
    """A sign, a binary 3x3 convolution of 70 channels into 3, its alpha."""
    signs = np.where(np.random.default_rng(0).random((3, 3, 3, 70)) > 0.5, 1, -1).astype(np.int8)
    nodes = (
        Node(
            "sign",
            "threshold",
            ("x",),
            {},
            {"threshold": np.zeros(70, np.float32), "direction": np.ones(70, np.int8)},
        ),
        Node("conv", "binary_conv2d", ("sign",), SLIDING | {"pad_value": 0}, {"weight": pack_signs(signs)}),
        Node("y", "scale", ("conv",), {}, {"alpha": np.ones(3, np.float32)}),
    )
    return Graph(Value("x", (70, 8, 8), "float32"), nodes, ("y",))


@pytest.fixture
def model(graph):
    spec = InputSpec((8, 8), (8, 8), (0.5,) * 70, (0.25,) * 70)
    golden = (np.ones((1, 3, 8, 8), np.float32),)
    return ModelFile(graph, golden, spec, ("zero", "one", "two"), provenance={"recipe": "digits"})
