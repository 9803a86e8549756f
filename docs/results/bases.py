"""Tucker decompositions in random orthonormal bases of some modes, to train with frozen factors.

bitfactor --import docs/results/bases.py ablate ... --latent turned turned_window --factor-rate 0
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bitfactor.decompositions import Initialisation, Latent, Rank, Tucker, register
from bitfactor.decompositions.multilinear import project


def turned(*modes: int) -> Callable[[Tensor, Rank, Initialisation], Latent]:
    """Return what builds a Tucker decomposition whose factors are unit matrices but for those of `modes`."""

    def build(weight: Tensor, rank: Rank, initialisation: Initialisation) -> Latent:
        factors = [
            torch.linalg.qr(torch.randn(size, size)).Q if mode in modes else torch.eye(size)
            for mode, size in enumerate(weight.shape)
        ]
        return Tucker(project(weight.detach(), factors), factors)

    return build


register("turned", turned(0, 1, 2, 3))
register("turned_channels", turned(0, 1))
register("turned_window", turned(2, 3))
