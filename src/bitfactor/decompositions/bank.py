"""Holistic Tucker decomposition: layers of one weight shape form a single tensor."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions.latent import WITH_FACTORS, Initialisation, Latent, Rank, resolve_rank
from bitfactor.decompositions.mixing import hosvd, tucker_weights
from bitfactor.decompositions.precision import working
from bitfactor.decompositions.shared import Shared


class Bank(Shared):
    """W' = G' x_0 U0 x_1 U1 ... (equation 8): the weights of a grid of layers in one decomposition.

    The first modes are the grid's (the layer's index; for an hourglass depth, pathway and convolution), the
    others the weight's. The shapes are core (R_grid..., R0, R1, ...) and factors[n] (D_n, R_n).

    A layer's weight is a slice of W'. The grid factors' rows for its place select and mix slices of the core
    first; what follows costs as much as a layer-wise Tucker decomposition.
    """

    @checked
    def __init__(self, core: Tensor, factors: Sequence[Tensor], grid: tuple[int, ...]) -> None:
        super().__init__()
        self.core = nn.Parameter(core)
        self.factors = nn.ParameterList([nn.Parameter(factor) for factor in factors])
        self.grid = grid

    def weight(self, place: Tensor, number: int) -> Tensor:
        """Return W'(place, :, :, ...), of the layer at this place (modes of the grid,), the `number`-th."""
        if self.held is not None and torch.is_grad_enabled():
            if not self.held:
                self.held.append(self._weights())
            W: Tensor = self.held[0][number]
            return W
        return self._weights(place)[0]

    def _weights(self, place: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the weight of one place, or of all in order."""
        core, order = working(self.core), len(self.grid)
        factors = [working(factor) for factor in self.factors]
        rows = factors[:order]
        if place is not None:
            rows = [factor.index_select(0, i) for factor, i in zip(rows, torch.split(place, 1), strict=True)]
        return tucker_weights(core, rows, factors[order:])

    def extra_repr(self) -> str:
        return f"grid={self.grid}, core={tuple(self.core.shape)}"


class BankSlice(Latent):
    """One layer's view of a bank, which belongs to all layers of its group alike (see `Shared`)."""

    takes = (*WITH_FACTORS, "orthogonality")
    look = ("#d55e00", "D")

    index: Tensor

    @checked
    def __init__(self, bank: Bank, place: tuple[int, ...]) -> None:
        super().__init__()
        self.bank = bank
        self.place, self.number = place, int(np.ravel_multi_index(place, bank.grid))
        # A tensor, so that torch.compile makes one program for all places.
        self.register_buffer("index", self._index(), persistent=False)
        self.shape = tuple(factor.shape[0] for factor in bank.factors)[len(bank.grid) :]

    @property
    def core(self) -> nn.Parameter:
        return self.bank.core

    @property
    def factors(self) -> nn.ParameterList:
        return self.bank.factors

    def reconstruct(self) -> Tensor:
        return self.bank.weight(self.index, self.number)

    def orthonormal(self) -> dict[str, Tensor]:
        return {f"bank.factors.{mode}": factor for mode, factor in enumerate(self.factors)}

    def factor_ranks(self) -> dict[str, int]:
        return {f"bank.factors.{mode}": factor.shape[1] for mode, factor in enumerate(self.factors)}

    def derive(self) -> None:
        self.index = self._index()

    def _index(self) -> Tensor:
        return torch.tensor(self.place, device=self.bank.core.device)

    def _device(self) -> str:
        return self.bank.core.device.type

    def extra_repr(self) -> str:
        return f"place={self.place}"


@checked
def build_bank(
    weights: Sequence[Tensor],
    places: Sequence[tuple[int, ...]],
    rank: Rank = None,
    initialisation: Initialisation = "factorised",
) -> list[BankSlice]:
    """Join weights of one shape into a bank; weights[i] goes to places[i], which fill a grid.

    A rank with one entry per mode of a weight leaves the grid's modes at full rank.

    Example
    -------
    >>> first, second = build_bank([torch.randn(8, 8, 3, 3)] * 2, [(0,), (1,)])
    >>> first.bank is second.bank, first.core.shape
    (True, torch.Size([2, 8, 8, 3, 3]))
    """
    order = dict(sorted(zip(places, weights, strict=True), key=lambda pair: pair[0]))
    grid = tuple(index + 1 for index in max(order))
    stacked = torch.stack([weight.detach() for weight in order.values()]).double()
    stacked = stacked.view(*grid, *weights[0].shape)
    ranks = resolve_rank(_with_grid(rank, grid, weights[0].dim()), stacked.shape)
    core, factors = hosvd(stacked, ranks, initialisation)
    dtype = weights[0].dtype
    bank = Bank(core.to(dtype), [factor.to(dtype) for factor in factors], grid)
    return [BankSlice(bank, place) for place in places]


def _with_grid(rank: Rank, grid: tuple[int, ...], order: int) -> Rank:
    if rank is None or isinstance(rank, int | float) or len(rank) != order:
        return rank
    return (*grid, *rank)
