"""Grids of layers that a holistic decomposition joins."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from bitfactor.binarization.plan import can_turn_binary, names_matching, weight_layers, weight_shape
from bitfactor.common.errors import InputError, near_matches

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
