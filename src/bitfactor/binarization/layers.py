"""Which layers of a model can turn binary, what a plan says of one, and the grids that a bank joins."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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

# Float layer -> its binary form.
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
    return isinstance(layer, BinaryLayer) or float_type(layer) is not None


def float_type(layer: nn.Module) -> type[nn.Module] | None:
    """Return which of torch's layers this is, or computes the same as; None where it is none of them.

    A subclass may compute anything with its weight, so one with a forward of its own is tried.
    """
    kind = next((kind for kind in BINARY_FORMS if isinstance(layer, kind)), None)
    if kind is None or type(layer).forward is kind.forward:
        return kind
    held = {name for name, _ in (*layer.named_parameters(), *layer.named_buffers())}
    if not held <= {"weight", "bias"}:
        return None
    return kind if _computes(layer, kind) or own_padding(layer) is not None else None


def why_not(layer: nn.Module) -> str:
    """Return why a layer with a weight cannot turn binary."""
    kind = next((kind for kind in BINARY_FORMS if isinstance(layer, kind)), None)
    if kind is None:
        return "has no binary form"
    return f"its class {type(layer).__name__} computes something else than {kind.__name__}"


def own_padding(layer: nn.Module) -> Literal["same"] | tuple[tuple[int, int], ...] | None:
    """Return the padding of a 2-d convolution whose class pads before it convolves; None where it does not.

    "same" pads so that a side has ceil(side / stride) outputs, as Keras does; else they are fixed.
    """
    if not isinstance(layer, nn.Conv2d) or type(layer).forward is nn.Conv2d.forward:
        return None
    if _computes(layer, nn.Conv2d):
        return None
    reach = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if _gives(layer, lambda x: _padded(layer, x, _same(layer, x))):
        return "same"
    for less in range(max(reach) + 1):
        fixed = tuple(((n - less) // 2, (n - less + 1) // 2) for n in reach)
        if min(reach) >= less and _gives(layer, partial(_padded, layer, padding=fixed)):
            return fixed
    return None


_SIDES = (15, 16)  # odd and even


def _computes(layer: nn.Module, kind: type[nn.Module]) -> bool:
    return _gives(layer, lambda x: kind.forward(layer, x))


def _same(layer: nn.Conv2d, x: Tensor) -> tuple[tuple[int, int], ...]:
    sizes = zip(x.shape[2:], layer.stride, layer.dilation, layer.kernel_size, strict=True)
    total = [max(d * (k - 1) - (n - 1) % s, 0) for n, s, d, k in sizes]
    return tuple((n // 2, n - n // 2) for n in total)


def _padded(layer: nn.Conv2d, x: Tensor, padding: tuple[tuple[int, int], ...]) -> Tensor:
    sides = [n for side in reversed(padding) for n in side]
    return F.conv2d(F.pad(x, sides), layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)


def _gives(layer: nn.Module, expected: Callable[[Tensor], Tensor]) -> bool:
    """Whether a layer gives on noise what a function gives."""
    weight = layer.weight
    if not isinstance(weight, Tensor) or weight.is_meta:
        return False
    draw = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for side in _SIDES:
                sides = (side,) * (weight.dim() - 2)
                channels = getattr(layer, "in_channels", weight.shape[1])
                x = torch.randn((2, channels, *sides), generator=draw).to(weight)
                if not torch.allclose(layer.forward(x), expected(x), rtol=1e-4, atol=1e-5):
                    return False
    except Exception:  # whatever its own code says of an input that it was not made for
        return False
    return True


def weight_shape(layer: nn.Module) -> tuple[int, ...]:
    return layer.latent.shape if isinstance(layer, BinaryLayer) else tuple(layer.weight.shape)  # type: ignore[arg-type]


def filters_of(layer: nn.Module, W: Tensor) -> Tensor:
    """Return a weight of a layer as filters, one for each output channel: (O, C / groups, ...)."""
    kind = float_type(layer)
    form = type(layer) if isinstance(layer, BinaryLayer) else BINARY_FORMS[kind] if kind else BinaryLinear
    return form.filters(W, getattr(layer, "groups", 1))


def names_matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern means: a layer, all layers of a module, a glob or a whole regex."""
    names = list(names)
    plain = [name for name in names if name == pattern or name.startswith(pattern + ".")]
    globbed = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not plain and not globbed:
        with suppress(re.error):
            return [name for name in names if re.fullmatch(pattern, name)]
    return plain or globbed


def expect_matches(argument: str, patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """Return all names that the patterns mean."""
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

    `bank` and `place` say where in which bank its weight stands, `rank` the rank of each mode. Bytes of the
    weight in float32, of its latent in training, and of its signs in the file. A bank counts at its first
    layer.
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
    activation_estimator: str = ""
    weight_estimator: str = ""
    weight_transform: str = ""
    kind: str = "real"
    """What turns binary: binary, binary inputs, binary weights, or real while neither does."""


# A layer name, or a list of such: one nesting level per mode of the grid.
Grid = Sequence[Any]


def groups_of(layers: Mapping[str, nn.Module], at_least: int = 2) -> dict[str, list[str]]:
    """Return the names of layers of one weight shape, for each shape that occurs often enough."""
    groups = defaultdict(list)
    for name, layer in layers.items():
        groups["x".join(map(str, weight_shape(layer)))].append(name)
    return {shape: names for shape, names in groups.items() if len(names) >= at_least}


def places(grid: Grid) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each layer name of a grid with its place."""
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
    size = prod(max(mode) + 1 for mode in zip(*found, strict=True))
    if size != len(found):
        raise _bad(group, f"a full grid of {size} layers", f"{len(found)}")


def _bad(group: str, expected: str, found: str) -> InputError:
    return InputError(f"group {group!r}", expected=expected, found=found, fix="change the groups")
