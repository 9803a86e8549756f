"""A weight from factors. Knows neither signs nor layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bitfactor.common.checks import expect, shown
from bitfactor.common.errors import InputError
from bitfactor.decompositions.bank import Bank, BankSlice, build_bank
from bitfactor.decompositions.cp import CP
from bitfactor.decompositions.latent import (
    Initialisation,
    Latent,
    Rank,
    once,
    once_for_all,
    orthogonality_penalty,
)
from bitfactor.decompositions.shared import SharedTucker, build_shared
from bitfactor.decompositions.svd import SVD, Dense, Product
from bitfactor.decompositions.tt import TensorTrain
from bitfactor.decompositions.tucker import Tucker
from bitfactor.decompositions.window import Cosine, Window

# Of one layer each.
LAYERWISE: dict[str, Callable[[Tensor, Rank, Initialisation], Latent]] = {
    "none": Dense.from_weight,
    "svd": SVD.from_weight,
    "tucker": Tucker.from_weight,
    "cp": CP.from_weight,
    "tt": TensorTrain.from_weight,
    "product": Product.from_weight,
    "cosine": Cosine.from_weight,
    "window": Window.from_weight,
}

WITHOUT_FACTORS = ("none", "cosine")
WITHOUT_ORTHONORMAL_FACTORS = (*WITHOUT_FACTORS, "cp", "window")

# Of several layers together; the latents come in the order of the weights.
JOINT: dict[str, Callable[..., Sequence[Latent]]] = {
    "holistic": build_bank,
    "shared": build_shared,
}


def register(
    name: str, build: Callable[..., Latent] | Callable[..., Sequence[Latent]], *, joint: bool = False
) -> None:
    """Make a decomposition of one's own known by a name, as `Binarization(latent=name)` and `--latent name`.

    Parameters
    ----------
    build
        From (weight, rank, initialisation) to a `Latent`; with `joint` from a list of weights to one latent
        for each.

    Raises
    ------
    InputError
        If the name is taken, or what `build` makes of a weight (8, 4, 3, 3) is no latent of it.

    Example
    -------
    >>> bitfactor.decompositions.register("hadamard", Hadamard.from_weight)
    """
    if not isinstance(name, str) or not name.isidentifier() or name in LAYERWISE or name in JOINT:
        raise InputError(
            "register", expected="a new name of letters, digits and _", found=shown(name), fix="rename it"
        )
    expect("register(build)", build, Callable[..., object])
    weight = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    built: Any = build([weight, weight], None, "factorised") if joint else build(weight, None, "factorised")
    for latent in built if joint else [built]:
        _expect_latent(f"decomposition {name!r}", latent, weight)
    table: dict[str, Any] = JOINT if joint else LAYERWISE
    table[name] = build


def _expect_latent(where: str, latent: object, weight: Tensor) -> None:
    if not isinstance(latent, Latent):
        raise InputError(where, expected="a Latent", found=shown(latent), fix="derive its class from Latent")
    W = latent()
    if W.shape != weight.shape or not W.isfinite().all():
        raise InputError(
            where,
            expected=f"a finite weight {tuple(weight.shape)}",
            found=f"one of shape {tuple(W.shape)}" if W.isfinite().all() else "NaN or infinity in it",
            fix="let reconstruct() return what from_weight() was given, and set shape",
        )
    if not W.requires_grad:
        raise InputError(
            where, expected="a gradient to its parameters", found="none", fix="keep them as nn.Parameter"
        )


__all__ = [
    "CP",
    "JOINT",
    "LAYERWISE",
    "SVD",
    "WITHOUT_FACTORS",
    "WITHOUT_ORTHONORMAL_FACTORS",
    "Bank",
    "BankSlice",
    "Cosine",
    "Dense",
    "Initialisation",
    "Latent",
    "Product",
    "Rank",
    "SharedTucker",
    "TensorTrain",
    "Tucker",
    "Window",
    "build_bank",
    "build_shared",
    "once",
    "once_for_all",
    "orthogonality_penalty",
    "register",
]
