"""Which layers of a model can turn binary, what a plan says of one, and the grids that a bank joins."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bitfactor.common.errors import InputError, near_matches
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


# A layer name, or a list of such: one nesting level per mode of the grid.
Grid = Sequence[Any]


def group_by_shape(
    model: nn.Module,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    at_least: int = 2,
) -> dict[str, list[str]]:
    """Return the layers of equal weight shape, of those included and not excluded, named by the shape.

    Patterns are names, globs or regular expressions.

    Example
    -------
    >>> group_by_shape(resnet18(), include=["layer[234].*"])["128x128x3x3"]
    ['layer2.0.conv2', 'layer2.1.conv1', 'layer2.1.conv2']
    """
    layers = {name: layer for name, layer in weight_layers(model).items() if can_turn_binary(layer)}
    chosen = {name for pattern in include for name in names_matching(pattern, layers)}
    chosen -= {name for pattern in exclude for name in names_matching(pattern, layers)}
    return groups_of({name: layer for name, layer in layers.items() if name in chosen}, at_least)


def groups_of(layers: Mapping[str, nn.Module], at_least: int = 2) -> dict[str, list[str]]:
    """Return the names of layers of one weight shape, for each shape that occurs often enough."""
    groups = defaultdict(list)
    for name, layer in layers.items():
        groups["x".join(map(str, weight_shape(layer)))].append(name)
    return {shape: names for shape, names in groups.items() if len(names) >= at_least}


def places(grid: Grid) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each layer name of a grid with its place.

    >>> list(places([["a", "b"]]))
    [('a', (0, 0)), ('b', (0, 1))]
    """
    for i, entry in enumerate(grid):
        if isinstance(entry, str):
            yield entry, (i,)
        else:
            for name, rest in places(entry):
                yield name, (i, *rest)


def check_groups(groups: Mapping[str, Grid], layers: Mapping[str, nn.Module]) -> None:
    """Raise InputError unless each grid is full, of one weight shape, of known layers that stand once."""
    seen: set[str] = set()
    for group, grid in groups.items():
        members = list(places(grid))
        for name, _ in members:
            _expect_layer(group, name, layers, seen)
        shapes = {weight_shape(layers[name]) for name, _ in members}
        if len(shapes) != 1:
            raise _bad(group, "layers of one weight shape", f"{sorted(shapes)}")
        _expect_full(group, [place for _, place in members])


def _expect_layer(group: str, name: str, layers: Mapping[str, nn.Module], seen: set[str]) -> None:
    if name not in layers:
        raise InputError(
            f"group {group!r}",
            expected="names of convolutions or linear layers",
            found=repr(name),
            fix=near_matches(name, layers),
        )
    if name in seen:
        raise _bad(group, "every layer in one place", f"{name!r} twice")
    seen.add(name)


def _expect_full(group: str, found: list[tuple[int, ...]]) -> None:
    depths = {len(place) for place in found}
    if len(depths) != 1:
        raise _bad(group, "a grid: lists nested to one depth", f"names at depths {sorted(depths)}")
    size = 1
    for mode in zip(*found, strict=True):
        size *= max(mode) + 1
    if size != len(found):
        raise _bad(group, f"a full grid of {size} layers", f"{len(found)}")


def _bad(group: str, expected: str, found: str) -> InputError:
    return InputError(f"group {group!r}", expected=expected, found=found, fix="change the groups")
