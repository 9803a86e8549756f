"""What helps: latents in other bases, factors that stop early, and where the energy of a gradient lies.

bitfactor --import docs/results/bases.py ablate ... --latent turned_window turned_channels --factor-rate 0
python docs/results/bases.py CIFAR-10
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import bitfactor
from bitfactor.data import Cifar10
from bitfactor.decompositions import Initialisation, Latent, Rank, Tucker, Window, register
from bitfactor.decompositions.mixing import project, tucker_weight
from bitfactor.decompositions.precision import working
from bitfactor.decompositions.window import window_basis
from bitfactor.models import ResNet


def turned(*modes: int) -> Callable[[Tensor, Rank, Initialisation], Latent]:
    """Return what builds a Tucker decomposition in random orthonormal bases of `modes`."""

    def build(weight: Tensor, rank: Rank, initialisation: Initialisation) -> Latent:
        factors = [
            torch.linalg.qr(torch.randn(size, size)).Q if mode in modes else torch.eye(size)
            for mode, size in enumerate(weight.shape)
        ]
        return Tucker(project(weight.detach(), factors), factors)

    return build


class Early(Tucker):
    """A Tucker decomposition whose factors learn for the first two fifths of 1,404 steps."""

    steps = 0

    def reconstruct(self) -> Tensor:
        factors = [working(factor) for factor in self.factors]
        self.steps += self.training
        if self.steps > 560:
            factors = [factor.detach() for factor in factors]
        return tucker_weight(working(self.core), factors)


def window(basis_of: Callable[[Tensor, Tensor], Tensor], *, unit: bool = False) -> Callable[..., Latent]:
    """Return what builds a `Window` in a basis; with `unit`, A's columns have length 1, B their lengths."""

    def build(weight: Tensor, rank: Rank, initialisation: Initialisation) -> Latent:
        cosines = window_basis(tuple(weight.shape[2:]))
        matrix = weight.detach().double().reshape(-1, len(cosines))
        basis = basis_of(matrix, cosines)
        coefficients = matrix @ basis
        lengths = coefficients.norm(dim=0) if unit else torch.ones(len(basis))
        parts = (coefficients / lengths).to(weight.dtype), (basis * lengths).to(weight.dtype)
        return Window(*parts, tuple(weight.shape))

    return build


def _cosines(matrix: Tensor, cosines: Tensor) -> Tensor:
    return cosines


def _taps(matrix: Tensor, cosines: Tensor) -> Tensor:
    return torch.eye(len(cosines), dtype=cosines.dtype)


def _own(matrix: Tensor, cosines: Tensor) -> Tensor:
    basis: Tensor = torch.linalg.eigh(matrix.mT @ matrix)[1].flip(1)
    return basis


register("window_cosines", window(_cosines))
register("window_own", window(_own))
# the name that the package's `window` has in logs from before it was one, and the same with taps
register("window_unit", window(_cosines, unit=True))
register("taps_unit", window(_taps, unit=True))
register("window_own_unit", window(_own, unit=True))
register("early", Early.from_weight)
register("turned", turned(0, 1, 2, 3))
register("turned_channels", turned(0, 1))
register("turned_window", turned(2, 3))


def energies(data: Path, steps: int = 80) -> tuple[Tensor, Tensor]:
    """Return the fraction of the gradient's energy in each tap, and in each cosine, of a 3x3 window.

    Of a free weight, mean of the layers, over the second half of the steps.
    """
    torch.manual_seed(0)
    network = ResNet((2, 2, 2), (32, 64, 128), 10, stem="halving", activation="prelu", shortcuts="conv")
    bitfactor.binarize_(network, bitfactor.Binarization(latent="none", scale="learned"))
    weights = [p for p in network.parameters() if p.dim() == 4 and p.shape[1] > 3 and p.shape[-1] == 3]
    optimizer = torch.optim.Adam(network.parameters(), lr=0.008)
    basis, sums = window_basis((3, 3)).float(), torch.zeros(2, len(weights), 9)
    for step, batch in zip(range(steps), Cifar10.load(data).train_batches(128, 0, 0), strict=False):
        optimizer.zero_grad()
        cross_entropy(network(batch[0]), batch[1]).backward()
        if step >= steps // 2:
            gradients = [_gradient(weight) for weight in weights]
            sums[0] += torch.stack([g.square().mean(0) for g in gradients])
            sums[1] += torch.stack([(g @ basis).square().mean(0) for g in gradients])
        optimizer.step()
    taps, cosines = (sums / sums.sum(2, keepdim=True)).mean(1).view(2, 3, 3)
    return taps, cosines


def _gradient(weight: nn.Parameter) -> Tensor:
    assert weight.grad is not None
    return weight.grad.reshape(-1, 9)


if __name__ == "__main__":
    for name, fractions in zip(("taps", "cosines"), energies(Path(sys.argv[1])), strict=True):
        print(name)
        for row in fractions.tolist():
            print("  " + " ".join(f"{fraction:6.1%}" for fraction in row))
