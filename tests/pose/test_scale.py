"""Maps of each scale are turned to that of the target."""

import numpy as np
import pytest

from bitfactor.pose import encode
from bitfactor.pose.heatmap import on_target_scale


@pytest.fixture
def heatmap():
    maps, _ = encode(np.array([[33.5, 29.5]]), np.array([True]), (16, 16), 4)
    return maps[0]


@pytest.mark.parametrize("scale", ["linear", "logits", "softmax"])
def test_ideal_maps_are_the_target(heatmap, scale):
    with np.errstate(divide="ignore"):
        ideal = {
            "linear": heatmap,
            "logits": np.log(heatmap.astype(float)) - np.log1p(-heatmap.astype(float)),
            "softmax": np.log(heatmap) + 7,
        }[scale]
    np.testing.assert_allclose(on_target_scale(np.maximum(ideal, -1e4), scale), heatmap, atol=2e-3)


def test_a_flat_softmax_map_is_nearly_nothing():
    assert on_target_scale(np.full((16, 16), 3.0), "softmax").max() == pytest.approx(2 * np.pi / 256)


def test_large_values_do_not_overflow():
    with np.errstate(over="raise", invalid="raise"):
        for scale in ("logits", "softmax"):
            found = on_target_scale(np.array([[-1e4, 1e4]]), scale)
            assert found[0, 0] == pytest.approx(0, abs=1e-30)
            assert found[0, 1] >= 1
