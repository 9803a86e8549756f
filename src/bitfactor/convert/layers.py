"""Which layers of a model can turn binary, which of them a pattern names, and what a plan says of one."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from bitfactor.errors import InputError, near_matches
from bitfactor.nn import (
    BinaryConv1d,
    BinaryConv2d,
    BinaryConv3d,
    BinaryConvTranspose1d,
    BinaryConvTranspose2d,
    BinaryLayer,
    BinaryLinear,
)

# Float layer -> its binary form. Exact types alone: a subclass computes something else with its weight.
BINARY_FORMS: dict[type[nn.Module], type[BinaryLayer]] = {
    nn.Conv1d: BinaryConv1d,
    nn.Conv2d: BinaryConv2d,
    nn.Conv3d: BinaryConv3d,
    nn.ConvTranspose1d: BinaryConvTranspose1d,
    nn.ConvTranspose2d: BinaryConvTranspose2d,
    nn.Linear: BinaryLinear,
}


def weight_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the convolutions and linear layers of a model by name, binary or not, in their order."""
    kinds = (nn.modules.conv._ConvNd, nn.Linear, nn.Bilinear, BinaryLayer)
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}


def can_turn_binary(layer: nn.Module) -> bool:
    return type(layer) in BINARY_FORMS or isinstance(layer, BinaryLayer)


def weight_shape(layer: nn.Module) -> tuple[int, ...]:
    return layer.latent.shape if isinstance(layer, BinaryLayer) else tuple(layer.weight.shape)  # type: ignore[arg-type]


def filters_of(layer: nn.Module, W: Tensor) -> Tensor:
    """Return a weight of a layer as filters, one for each output channel: (O, C / groups, ...)."""
    form = type(layer) if isinstance(layer, BinaryLayer) else BINARY_FORMS.get(type(layer), BinaryLinear)
    return form.filters(W, getattr(layer, "groups", 1))


def names_matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern means: a layer, all layers of a module, a glob or a whole regex.

    >>> names_matching("layer*.conv1", ["conv1", "layer1.conv1"])
    ['layer1.conv1']
    """
    names = list(names)
    plain = [name for name in names if name == pattern or name.startswith(pattern + ".")]
    globbed = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    return plain or globbed or _regex_matches(pattern, names)


def _regex_matches(pattern: str, names: list[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error:
        return []


def expect_matches(argument: str, patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """Return all names that the patterns mean.

    Raises
    ------
    InputError
        If one of them means no name; it lists names that are close.
    """
    names = list(names)
    found: set[str] = set()
    for pattern in patterns:
        matching = names_matching(pattern, names)
        if not matching:
            raise InputError(
                argument,
                expected="names of convolutions or linear layers, globs or regular expressions",
                found=f"{pattern!r}, which matches none",
                fix=near_matches(pattern, names),
            )
        found.update(matching)
    return found


@dataclass(frozen=True)
class PlannedLayer:
    """One layer's fate.

    `bank` and `place` say where in which bank its weight stands, `rank` the rank of each mode. Bytes: of the
    weight in float32; of what it is made of in training, for a bank at the first of its layers; of its signs
    in the file.
    """

    name: str
    shape: tuple[int, ...]
    binary: bool
    reason: str
    latent: str = ""
    rank: tuple[int, ...] = ()
    bank: str = ""
    place: tuple[int, ...] = ()
    scale: str = ""
    weight_bytes: int = 0
    latent_bytes: int | None = None
    packed_bytes: int = 0
