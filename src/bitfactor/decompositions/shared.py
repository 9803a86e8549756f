"""Tucker decompositions of several layers, over common channel factors, or of one shape as one tensor."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked, shown
from bitfactor.common.errors import InputError
from bitfactor.decompositions.latent import (
    Initialisation,
    OfFactors,
    Rank,
    Unlaid,
    expect_full,
    rank_of_mode,
    resolve_rank,
)
from bitfactor.decompositions.mixing import (
    gram,
    hosvd,
    leading_basis,
    mode_product,
    project,
    tucker_weight,
    tucker_weights,
)
from bitfactor.decompositions.precision import working


class Shared(Unlaid):
    """A submodule of several latents at once.

    Its parameters stand once in `parameters()`, as of any module that is used twice. In a `state_dict()` they
    stand under the first layer that has them. They belong to all of these layers alike. Who freezes, moves or
    casts one layer does so with all of them. The state of a part of a model holds what its layers share with
    others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(_forgive)  # type: ignore[no-untyped-call]

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        own = next(self.parameters())
        if destination is not None and any(_is(value, own) for value in destination.values()):
            return destination
        return super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """As of any module. So asks `fully_shard` for what it is to shard: that can be done once."""
        sharded = any(hasattr(own, "placements") for own in self._parameters.values())
        if sharded and remove_duplicate and not recurse:
            raise InputError(
                "fully_shard",
                expected="all layers that share a decomposition in one call",
                found="some of them, after others",
                fix="call fully_shard(model) alone, or fully_shard([...]) on those layers together",
            )
        return super().named_parameters(prefix, recurse, remove_duplicate)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: Any,
        *rest: Any,
    ) -> None:
        if any(name.startswith(prefix) for name in state_dict):
            self.__dict__["_loaded"] = missing  # the list tells this call of load_state_dict from others
        elsewhere = self.__dict__.get("_loaded") is missing
        self.__dict__["_absent"] = prefix if elsewhere else None
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)


def _forgive(shared: nn.Module, keys: Any) -> None:
    """Let the names be missing under which another layer has what was loaded."""
    if absent := shared.__dict__.get("_absent"):
        keys.missing_keys[:] = [name for name in keys.missing_keys if not name.startswith(absent)]


def _is(value: object, parameter: Tensor) -> bool:
    """Return whether a value of a state is this parameter."""
    if value is parameter or not isinstance(value, Tensor) or parameter.is_meta:
        return value is parameter
    return value.shape == parameter.shape and value.data_ptr() == parameter.data_ptr()


class ChannelFactor(Shared):
    """The factor (D, R) of every output or input channel mode that is D wide."""

    @checked
    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor)


class SharedTucker(OfFactors):
    """W = G x_0 U_O x_1 U_C x_2 U2 x_3 U3 with U_O, U_C common to all layers that are O or C channels wide.

    Not in the paper. The holistic decomposition joins layers of one shape, this one every layer of a network,
    strided and 1x1 ones too. Core and spatial factors are the layer's own. A channel factor belongs to all
    layers that use it (see `Shared`).
    """

    look = ("#8c6d31", "*")

    @checked
    def __init__(
        self, core: Tensor, output: ChannelFactor, channel: ChannelFactor, spatial: Sequence[Tensor]
    ):
        super().__init__()
        self.core = nn.Parameter(core)
        self.spatial = nn.ParameterList([nn.Parameter(factor) for factor in spatial])
        self.output, self.channel = output, channel
        self.shape = tuple(factor.shape[0] for factor in self.factors)

    @property
    def factors(self) -> list[Tensor]:
        return [self.output.factor, self.channel.factor, *self.spatial]

    def reconstruct(self) -> Tensor:
        parts = [working(part) for part in (self.core, *self.factors)]
        dtype = reduce(torch.promote_types, (part.dtype for part in parts))  # one layer may have been cast
        core, *factors = (part.to(dtype) for part in parts)
        return tucker_weight(core, factors)

    def orthonormal(self) -> dict[str, Tensor]:
        spatial = {f"spatial.{mode}": factor for mode, factor in enumerate(self.spatial)}
        return {"output.factor": self.output.factor, "channel.factor": self.channel.factor, **spatial}


@checked
def build_shared(
    weights: Sequence[Tensor], rank: Rank = None, initialisation: Initialisation = "factorised"
) -> list[SharedTucker]:
    """Factorise weights over common channel factors; exact at full rank. A rank is one number.

    U_D holds the leading eigenvectors of the summed Gram matrices of all unfoldings that are D wide.

    Example
    -------
    >>> wide, strided = build_shared([torch.randn(8, 8, 3, 3), torch.randn(8, 4, 3, 3)])
    >>> wide.output is wide.channel is strided.output
    True
    """
    if not weights or any(weight.dim() < 2 for weight in weights):
        raise InputError(
            "weights", expected="weights (O, C, ...)", found=shown(weights), fix="pass those of layers"
        )
    resolve_rank(rank, (max(max(weight.shape) for weight in weights),))
    dtype = weights[0].dtype
    factors = {
        width: ChannelFactor(_basis(gram, rank, initialisation).to(dtype))
        for width, gram in _channel_grams(weights).items()
    }
    return [
        _factorise(weight, factors[weight.shape[0]], factors[weight.shape[1]], rank, initialisation)
        for weight in weights
    ]


def _channel_grams(weights: Sequence[Tensor]) -> dict[int, Tensor]:
    grams: dict[int, Tensor] = {}
    for weight in weights:
        for mode, width in enumerate(weight.shape[:2]):
            matrix = gram(weight.detach().double(), mode)
            grams[width] = grams[width] + matrix if width in grams else matrix
    return grams


def _basis(matrix: Tensor, rank: Rank, initialisation: Initialisation) -> Tensor:
    r = rank_of_mode(rank, len(matrix))
    if initialisation == "factorised":
        return leading_basis(matrix, r)
    expect_full((r,), matrix.shape[:1])
    return torch.eye(r, dtype=matrix.dtype, device=matrix.device)


def _factorise(
    weight: Tensor, output: ChannelFactor, channel: ChannelFactor, rank: Rank, initialisation: Initialisation
) -> SharedTucker:
    channels = [output.factor.detach().double(), channel.factor.detach().double()]
    core = project(weight.detach().double(), channels)
    spatial = [_basis(gram(core, mode), rank, initialisation) for mode in range(2, core.dim())]
    for mode, factor in enumerate(spatial, start=2):
        core = mode_product(core, factor.mT, mode)
    dtype = weight.dtype
    return SharedTucker(
        core.contiguous().to(dtype), output, channel, [factor.to(dtype) for factor in spatial]
    )


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


class BankSlice(OfFactors):
    """One layer's view of a bank, which belongs to all layers of its group alike (see `Shared`)."""

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
