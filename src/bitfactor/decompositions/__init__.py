"""Real-valued decompositions of a weight. Each is a module that gives W; none knows that W will be signed."""

from collections.abc import Callable, Sequence

from torch import Tensor

from bitfactor.decompositions.bank import Bank, BankSlice, build_bank
from bitfactor.decompositions.cp import CP
from bitfactor.decompositions.dense import Dense
from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.orthogonality import orthogonality_penalty
from bitfactor.decompositions.product import Product
from bitfactor.decompositions.shared import SharedTucker, build_shared
from bitfactor.decompositions.svd import SVD
from bitfactor.decompositions.tt import TensorTrain
from bitfactor.decompositions.tucker import Tucker

# Of one layer each.
LAYERWISE: dict[str, Callable[[Tensor, Rank, Initialisation], Latent]] = {
    "none": Dense.from_weight,
    "svd": SVD.from_weight,
    "tucker": Tucker.from_weight,
    "cp": CP.from_weight,
    "tt": TensorTrain.from_weight,
    "product": Product.from_weight,
}

# Of several layers together; the latents come in the order of the weights.
JOINT: dict[str, Callable[..., Sequence[Latent]]] = {
    "holistic": build_bank,
    "shared": build_shared,
}

__all__ = [
    "CP",
    "JOINT",
    "LAYERWISE",
    "SVD",
    "Bank",
    "BankSlice",
    "Dense",
    "Initialisation",
    "Latent",
    "Product",
    "Rank",
    "SharedTucker",
    "TensorTrain",
    "Tucker",
    "build_bank",
    "build_shared",
    "orthogonality_penalty",
]
