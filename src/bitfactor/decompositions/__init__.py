"""A weight from factors. Knows neither signs nor layers."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from bitfactor.common.checks import checked, expect, expect_new_name, name_of, remember, shown
from bitfactor.common.errors import InputError
from bitfactor.decompositions.contract import check_latent
from bitfactor.decompositions.latent import (
    WITH_FACTORS,
    Initialisation,
    Latent,
    Rank,
    once,
    once_for_all,
    orthogonality_penalty,
)
from bitfactor.decompositions.precision import working
from bitfactor.decompositions.shared import Bank, BankSlice, SharedTucker, build_bank, build_shared
from bitfactor.decompositions.svd import SVD, Dense, Product
from bitfactor.decompositions.tucker import TensorTrain, Tucker
from bitfactor.decompositions.window import Cosine, Window

LatentLike = str | type[Latent] | Callable[[Tensor, Rank, Initialisation], Latent]

_LAYERWISE: dict[str, type[Latent]] = {
    "none": Dense,
    "svd": SVD,
    "tucker": Tucker,
    "tt": TensorTrain,
    "product": Product,
    "cosine": Cosine,
    "window": Window,
}

# Of one layer each.
LAYERWISE: dict[str, Callable[[Tensor, Rank, Initialisation], Latent]] = {
    name: kind.from_weight for name, kind in _LAYERWISE.items()
}

ALONE = "tucker"
"""The default latent of a layer that is alone: in no group of a holistic decomposition, or made by hand."""

# Of several layers together; the latents come in the order of the weights.
JOINT: dict[str, Callable[..., Sequence[Latent]]] = {"holistic": build_bank, "shared": build_shared}

_CLASSES: dict[str, type[Latent]] = {**_LAYERWISE, "holistic": BankSlice, "shared": SharedTucker}


@checked
def class_of(name: str) -> type[Latent]:
    """Return the class of the latents of this name, `Latent` where it is not registered.

    >>> class_of("cosine").takes
    ()
    """
    return _CLASSES.get(name, Latent)


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
    expect_new_name("register", name, [*LAYERWISE, *JOINT])
    expect("register(build)", build, Callable[..., object])
    _add(name, build, joint)
    remember("latent", name, build)


def latent_name(value: LatentLike, known: Collection[str]) -> str:
    """Return the name of a decomposition; a class, or a function that builds one, is registered too.

    >>> latent_name("svd", LAYERWISE)
    'svd'
    """

    def add(name: str) -> None:
        _add(name, getattr(value, "from_weight", value), joint=False)

    own = [name for name, kind in _CLASSES.items() if kind is value]
    return own[0] if own else name_of("latent", value, known, add)


def _add(name: str, build: Any, joint: bool) -> None:
    weight = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    built: Any = build([weight, weight], None, "factorised") if joint else build(weight, None, "factorised")
    for latent in built if joint else [built]:
        _expect_latent(f"decomposition {name!r}", latent, weight)
    table: dict[str, Any] = JOINT if joint else LAYERWISE
    table[name] = build
    _CLASSES[name] = type(built[0] if joint else built)


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
    "JOINT",
    "LAYERWISE",
    "SVD",
    "WITH_FACTORS",
    "Bank",
    "BankSlice",
    "Cosine",
    "Dense",
    "Initialisation",
    "Latent",
    "LatentLike",
    "Product",
    "Rank",
    "SharedTucker",
    "TensorTrain",
    "Tucker",
    "Window",
    "build_bank",
    "build_shared",
    "check_latent",
    "class_of",
    "latent_name",
    "once",
    "once_for_all",
    "orthogonality_penalty",
    "register",
    "working",
]
