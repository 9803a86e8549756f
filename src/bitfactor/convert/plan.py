"""What a conversion will do, layer by layer, before it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from bitfactor.convert.binarization import Binarization
from bitfactor.convert.groups import Grid, check_groups, groups_of, places
from bitfactor.convert.layers import (
    can_turn_binary,
    expect_matches,
    names_matching,
    weight_layers,
    weight_shape,
)
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer
from bitfactor.table import text_table


@dataclass(frozen=True)
class PlannedLayer:
    """One layer's fate; `bank` and `place` say where in which bank its weight stands."""

    name: str
    shape: tuple[int, ...]
    binary: bool
    reason: str
    latent: str = ""
    bank: str = ""
    place: tuple[int, ...] = ()
    scale: str = ""


@dataclass(frozen=True)
class Plan:
    """All convolutions and linear layers of a model, in their order. `print` shows a table."""

    layers: tuple[PlannedLayer, ...]

    @property
    def binary(self) -> tuple[PlannedLayer, ...]:
        return tuple(layer for layer in self.layers if layer.binary)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        head = ["layer", "shape", "kind", "latent", "bank", "place", "scale", "reason"]
        return text_table(head, [_cells(layer) for layer in self.layers])


def _cells(layer: PlannedLayer) -> list[str]:
    shape, place = "x".join(map(str, layer.shape)), ",".join(map(str, layer.place))
    kind = "binary" if layer.binary else "real"
    return [layer.name, shape, kind, layer.latent, layer.bank, place, layer.scale, layer.reason]


def make_plan(
    model: nn.Module,
    binarization: Binarization,
    keep_real: Sequence[str] = (),
    groups: Mapping[str, Grid] | None = None,
) -> Plan:
    """Decide every layer of a model; see `binarize_` for the arguments."""
    layers = weight_layers(model)
    real = _real_layers(model, layers, binarization, keep_real)
    binary = {name: layer for name, layer in layers.items() if name not in real}
    if not binary:
        raise InputError(
            type(model).__name__,
            expected="a layer that can turn binary",
            found=f"{len(layers)} convolutions and linear layers, all kept real",
            fix="name fewer in keep_real, or set real_ends=False",
        )
    banks = _banks(model, binarization, layers, binary, groups)
    return Plan(tuple(_planned(name, layer, real, banks, binarization) for name, layer in layers.items()))


def _real_layers(
    model: nn.Module, layers: Mapping[str, nn.Module], binarization: Binarization, keep_real: Sequence[str]
) -> dict[str, str]:
    """Return the layers that stay real, with the reason."""
    candidates = [name for name, layer in layers.items() if can_turn_binary(layer)]
    real = {name: "has no binary form" for name in layers if name not in candidates}
    if binarization.real_ends and candidates:
        real |= {candidates[-1]: "last layer", candidates[0]: "first layer"}
    hint = getattr(model, "keep_real", None)
    for pattern in hint() if callable(hint) else ():
        real |= dict.fromkeys(names_matching(pattern, candidates), "the model keeps it real")
    real |= dict.fromkeys(expect_matches("keep_real", keep_real, candidates), "named in keep_real")
    for name in real:
        if isinstance(layers[name], BinaryLayer):
            raise InputError(
                f"layer {name}",
                expected="a layer that is still real",
                found=f"a binary one, to be kept real ({real[name]})",
                fix="build the model anew: a conversion is not undone",
            )
    return real


def _banks(
    model: nn.Module,
    binarization: Binarization,
    layers: Mapping[str, nn.Module],
    binary: Mapping[str, nn.Module],
    groups: Mapping[str, Grid] | None,
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return layer -> (bank, place)."""
    if binarization.latent != "holistic":
        return {}
    if groups is None:
        groups = _preset(model, binarization, binary)
    check_groups(groups, layers)
    members = {name: (group, place) for group, grid in groups.items() for name, place in places(grid)}
    for name, (group, _) in members.items():
        if name not in binary:
            raise InputError(
                f"group {group!r}",
                expected="layers that turn binary",
                found=f"{name!r}, which stays real",
                fix="take it out of keep_real or of the group, or set groups='auto'",
            )
    return members


def _preset(
    model: nn.Module, binarization: Binarization, binary: Mapping[str, nn.Module]
) -> Mapping[str, Grid]:
    preset = getattr(model, "holistic_groups", None)
    if binarization.groups != "auto" and callable(preset):
        return preset()  # type: ignore[no-any-return]
    if binarization.groups == "paper":
        raise InputError(
            "groups 'paper'",
            expected="a model with holistic_groups()",
            found=type(model).__name__,
            fix="take groups='auto', or pass groups to binarize_",
        )
    return groups_of(binary)


def _planned(
    name: str,
    layer: nn.Module,
    real: Mapping[str, str],
    banks: Mapping[str, tuple[str, tuple[int, ...]]],
    binarization: Binarization,
) -> PlannedLayer:
    shape = weight_shape(layer)
    if name in real:
        return PlannedLayer(name, shape, binary=False, reason=real[name])
    reason = "is binary already" if isinstance(layer, BinaryLayer) else "turns binary"
    latent, (bank, place) = binarization.latent, banks.get(name, ("", ()))
    if latent == "holistic" and not bank:
        latent, reason = "tucker", "in no group: layer-wise"
    return PlannedLayer(name, shape, True, reason, latent, bank, place, binarization.scale)
