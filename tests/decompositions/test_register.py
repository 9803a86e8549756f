"""Decompositions of one's own."""

import pytest
import torch
from torch import Tensor, nn

from bitfactor.common.errors import InputError
from bitfactor.decompositions import LAYERWISE, Latent, register
from bitfactor.nn import BinaryConv2d


class Gated(Latent):
    """W = V exp(g), one gate per filter."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(weight.clone()), nn.Parameter(torch.zeros(len(weight), 1, 1, 1))
        self.shape = tuple(weight.shape)

    def reconstruct(self) -> Tensor:
        return self.v * self.g.exp()


@pytest.fixture(autouse=True)
def _table():

    yield
    LAYERWISE.pop("gated", None)


def test_it_is_used_like_any_other() -> None:
    register("gated", lambda weight, rank, initialisation: Gated(weight.detach()))
    assert isinstance(BinaryConv2d(4, 8, 3, latent="gated").latent, Gated)


@pytest.mark.parametrize(
    ("name", "build", "words"),
    [
        ("svd", lambda weight, rank, initialisation: Gated(weight), "which is taken|a new name"),
        ("no name", lambda weight, rank, initialisation: Gated(weight), "letters"),
        ("gated", lambda weight, rank, initialisation: weight, "a Latent"),
        ("gated", lambda weight, rank, initialisation: Gated(weight[:2]), r"\(8, 4, 3, 3\)"),
        ("gated", lambda weight, rank, initialisation: Gated(weight / 0), "NaN"),
        ("gated", lambda weight, rank, initialisation: Gated(weight).requires_grad_(False), "gradient"),
        ("gated", 3, "a function"),
    ],
)
def test_what_is_no_decomposition_is_refused(name, build, words) -> None:
    with pytest.raises(InputError, match=words):
        register(name, build)
    assert "gated" not in LAYERWISE
