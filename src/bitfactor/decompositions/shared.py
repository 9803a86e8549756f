"""Tucker decompositions of all layers over common channel factors, across weight shapes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.multilinear import (
    gram,
    leading_basis,
    mode_product,
    project,
    tucker_weight,
)
from bitfactor.decompositions.precision import working
from bitfactor.decompositions.rank import expect_full, resolve_rank


class ChannelFactor(nn.Module):
    """The factor (D, R) of every output or input channel mode that is D wide."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor)


class SharedTucker(Latent):
    """W = G x_0 U_O x_1 U_C x_2 U2 x_3 U3 with U_O, U_C common to all layers that are O or C channels wide.

    Not in the paper: the holistic decomposition joins layers of one shape, this one every layer of a network,
    strided and 1x1 ones too. core and the spatial factors are the layer's own.

    A channel factor is a submodule of the first layer that uses it and an unregistered reference in the
    others, as a bank is (see `BankSlice`).
    """

    output: ChannelFactor
    channel: ChannelFactor

    def __init__(
        self, core: Tensor, output: ChannelFactor, channel: ChannelFactor, spatial: Sequence[Tensor]
    ):
        super().__init__()
        self.core = nn.Parameter(core)
        self.spatial = nn.ParameterList([nn.Parameter(factor) for factor in spatial])
        self.__dict__["output"], self.__dict__["channel"] = output, channel
        self.shape = tuple(factor.shape[0] for factor in self.factors)

    @property
    def factors(self) -> list[Tensor]:
        return [self.output.factor, self.channel.factor, *self.spatial]

    def adopt(self, name: str) -> None:
        """Own the channel factor of this name: hold it as a submodule."""
        setattr(self, name, self.__dict__.pop(name))

    def reconstruct(self) -> Tensor:
        return tucker_weight(working(self.core), [working(factor) for factor in self.factors])

    def orthonormal(self) -> dict[str, Tensor]:
        spatial = {f"spatial.{mode}": factor for mode, factor in enumerate(self.spatial)}
        return {"output.factor": self.output.factor, "channel.factor": self.channel.factor, **spatial}


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
    factors: dict[int, ChannelFactor] = {}
    latents = []
    grams = _channel_grams(weights)
    for weight in weights:
        own = [width for width in weight.shape[:2] if width not in factors]
        for width in own:
            basis = _basis(grams[width], rank, initialisation)
            factors.setdefault(width, ChannelFactor(basis.to(weight.dtype)))
        output, channel = (factors[width] for width in weight.shape[:2])
        latent = _factorise(weight, output, channel, rank, initialisation)
        for name, width in zip(("output", "channel"), weight.shape, strict=False):
            if width in own:
                own = [other for other in own if other != width]
                latent.adopt(name)
        latents.append(latent)
    return latents


def _channel_grams(weights: Sequence[Tensor]) -> dict[int, Tensor]:
    grams: dict[int, Tensor] = {}
    for weight in weights:
        for mode, width in enumerate(weight.shape[:2]):
            matrix = gram(weight.detach().double(), mode)
            grams[width] = grams[width] + matrix if width in grams else matrix
    return grams


def _basis(matrix: Tensor, rank: Rank, initialisation: Initialisation) -> Tensor:
    (r,) = resolve_rank(rank, matrix.shape[:1])
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
