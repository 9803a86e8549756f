"""The contract of latents finds what is wrong with one, and nothing in those of the package."""

import pytest
import torch
from torch import Tensor, nn

from bitfactor.decompositions import LAYERWISE, Latent, Window, build_shared, check_latent


@pytest.mark.parametrize("name", LAYERWISE)
def test_those_of_the_package_keep_it(name) -> None:
    assert check_latent(LAYERWISE[name], shapes=[(4, 6, 3, 3), (6, 4)]) == []


def test_of_several_layers() -> None:
    assert check_latent(build_shared, joint=True, shapes=[(6, 4, 3, 3)]) == []


class Scaled(Latent):
    """W = v g."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(weight.detach().clone()), nn.Parameter(torch.ones(()).to(weight))
        self.shape = tuple(weight.shape)

    def reconstruct(self) -> Tensor:
        return self.v.float() * self.g.float() if self.v.dtype == torch.bfloat16 else self.v * self.g


def built(kind):
    return lambda weight, rank, initialisation: kind(weight)


class Rough(Scaled):
    def reconstruct(self):
        return self.v * self.g


class Unused(Scaled):
    def __init__(self, weight):
        super().__init__(weight)
        self.idle = nn.Parameter(torch.zeros(3).to(weight))


class Single(Scaled):
    def __init__(self, weight):
        super().__init__(weight.float())


class Unsaved(Scaled):
    def __init__(self, weight):
        super().__init__(weight)
        self.start = 1 + float(weight.abs().mean())

    def reconstruct(self):
        return super().reconstruct() * self.start


class Forward(Scaled):
    def forward(self):
        return self.v * self.g


class Ranked(Scaled):
    takes = ("rank", "factor_rate", "orthogonality")


class Other(Scaled):
    def factor_ranks(self):
        return {"u": 3}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Rough, "rough"),
        (Unused, "none reaches idle"),
        (Single, "of another"),
        (Unsaved, "state"),
        (Forward, "once"),
        (Ranked, "rank"),
        (Ranked, "factor_ranks"),
        (Ranked, "orthonormal"),
        (Other, "no parameters"),
    ],
)
def test_what_is_wrong_is_a_line(kind, words) -> None:
    lines = check_latent(built(kind), shapes=[(4, 6, 3, 3)])
    assert any(words in line for line in lines), lines
    assert all("\n" not in line for line in lines)


def test_one_of_ones_own_may_keep_it() -> None:
    assert check_latent(built(Scaled), shapes=[(4, 6, 3, 3), (6, 4)]) == []


def test_it_takes_a_class_and_says_a_thing_once() -> None:
    assert check_latent(Window) == []
    assert len(check_latent(built(Rough))) == 1
