"""What a conversion will do, layer by layer, and what its latents weigh, before any is made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from bitfactor.binarization.binarization import Binarization, Choice
from bitfactor.binarization.ends import bypassed, ends_of
from bitfactor.binarization.layers import (
    Grid,
    PlannedLayer,
    can_turn_binary,
    check_groups,
    expect_matches,
    filters_of,
    groups_of,
    names_matching,
    places,
    weight_layers,
    weight_shape,
    why_not,
)
from bitfactor.common.errors import InputError
from bitfactor.common.result import Result, text_table
from bitfactor.decompositions import ALONE, JOINT, LAYERWISE, Initialisation, Latent, Rank
from bitfactor.format.bits import words_for
from bitfactor.nn import BinaryLayer
from bitfactor.nn.model import Call, dead_layers, expect_weights

# Shown where a layer has another one.
_USUAL = {"activation_estimator": "clipped", "weight_estimator": "clipped", "weight_transform": "none"}
_MANY = 2  # times the bytes of the weight itself
_SLIM = "svd"  # its factors are two, of the smaller side's rank
_FRACTIONS = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02, 0.01)


def packed_bytes(layer: nn.Module, *, real_inputs: bool = False) -> int:
    """Return the bytes of the signs of a layer in the file: channels padded to words of 64.

    A layer whose inputs are real computes with numbers, so that its signs lie in the file without a gap.
    """
    if real_inputs:
        return -(-prod(weight_shape(layer)) // 8)
    shape = filters_of(layer, torch.empty(weight_shape(layer), device="meta")).shape
    return 8 * shape[0] * prod(shape[2:]) * words_for(shape[1])


def grows(layer: nn.Module) -> str:
    """Return why a layer takes more bytes at 1 bit than in float32, or nothing."""
    packed, real = packed_bytes(layer), 4 * prod(weight_shape(layer))
    if isinstance(layer, BinaryLayer) or packed <= real:
        return ""
    return f"depthwise: {packed:,} bytes at 1 bit, {real:,} in float32"


def joint(planned: Sequence[PlannedLayer]) -> list[list[PlannedLayer]]:
    """Return binary layers that share parameters together: each bank, all of a joint latent, others alone."""
    groups: dict[tuple[str, str, str], list[PlannedLayer]] = {}
    for layer in planned:
        alone = "" if layer.bank or layer.latent in JOINT else layer.name
        groups.setdefault((layer.latent, layer.bank, alone), []).append(layer)
    return list(groups.values())


def rank_of(group: Sequence[PlannedLayer], choices: Mapping[str, Choice]) -> Rank:
    """Return the rank of layers that share parameters."""
    ranks = [choices[layer.name].rank for layer in group]
    for layer, rank in zip(group, ranks, strict=True):
        if rank != ranks[0]:
            raise InputError(
                f"rank of {layer.name}",
                expected=f"{ranks[0]}, as {group[0].name} has it: latent {layer.latent!r} joins them",
                found=str(rank),
                fix="give both the same, or another latent",
            )
    return ranks[0]


def built_of(
    group: Sequence[PlannedLayer], weights: Sequence[Tensor], rank: Rank, initialisation: Initialisation
) -> Sequence[Latent]:
    """Return the latents of layers that share parameters, from their weights."""
    name = group[0].latent
    try:
        if group[0].bank:
            return JOINT[name](weights, [layer.place for layer in group], rank, initialisation)
        if name in JOINT:
            return JOINT[name](weights, rank, initialisation)
        return [LAYERWISE[name](weights[0], rank, initialisation)]
    except InputError as error:
        error.add_note(f"in layer {group[0].name}")
        raise


def with_sizes(planned: Sequence[PlannedLayer], choices: Mapping[str, Choice]) -> list[PlannedLayer]:
    """Return the layers with ranks and bytes, from latents that are made without memory."""
    sized = {}
    for group in joint([layer for layer in planned if layer.binary]):
        latents: Sequence[Latent | None] = _latents(group, rank_of(group, choices)) or [None] * len(group)
        seen: set[int] = set()
        for layer, latent in zip(group, latents, strict=True):
            new = {} if latent is None else {id(p): p for p in latent.parameters() if id(p) not in seen}
            seen.update(new)
            sized[layer.name] = replace(
                layer,
                rank=_ranks(latent),
                latent_bytes=None if latent is None else 4 * sum(p.numel() for p in new.values()),
            )
    return [sized.get(layer.name, layer) for layer in planned]


def _latents(group: Sequence[PlannedLayer], rank: Rank) -> Sequence[Latent] | None:
    """Return the latents of layers on the meta device; None for a decomposition that cannot live there."""
    try:
        weights = [torch.empty(layer.shape, device="meta") for layer in group]
        return built_of(group, weights, rank, "factorised")
    except RuntimeError:
        return None


def _ranks(latent: Latent | None) -> tuple[int, ...]:
    core = getattr(latent, "core", getattr(latent, "s", None))
    return () if core is None else tuple(core.shape)


def size_warnings(planned: Sequence[PlannedLayer]) -> list[str]:
    """Return what is to be said of latents that outweigh their layers, and which rank would do."""
    large = [
        layer
        for layer in planned
        if not layer.bank and layer.latent_bytes and layer.latent_bytes > _MANY * layer.weight_bytes
    ]
    if not large:
        return []
    worst = max(large, key=lambda layer: layer.latent_bytes or 0)
    names = worst.name if len(large) == 1 else f"{worst.name} and {len(large) - 1} other layers"
    return [
        f"the {worst.latent} latent of {names} takes {worst.latent_bytes:,} bytes in training, "
        f"{(worst.latent_bytes or 0) / worst.weight_bytes:.1f} times the weight{_advice(worst)}"
    ]


def _advice(layer: PlannedLayer) -> str:
    for fraction in _FRACTIONS:
        if _bytes(layer, fraction) <= _MANY * layer.weight_bytes:
            return f"; rank={fraction} would bring it below {_MANY} times{_other_latent(layer)}"
    return f"; keep it real, or take latent='none'{_other_latent(layer)}"


def _other_latent(layer: PlannedLayer) -> str:
    """Return the words that name a decomposition whose factors at full rank are not that large."""
    found = _bytes(replace(layer, latent=_SLIM), None)
    return f"; latent={_SLIM!r} takes {found:,}" if found <= _MANY * layer.weight_bytes else ""


def _bytes(layer: PlannedLayer, rank: Rank) -> float:
    latents = _latents([layer], rank)
    return 4 * sum(p.numel() for p in latents[0].parameters()) if latents else math.inf


@dataclass(frozen=True)
class Plan(Result):
    """All convolutions and linear layers of a model, in their order. `print` shows a table.

    A bank belongs to all of its layers: who freezes, casts or stores one does so with the whole bank.
    """

    layers: tuple[PlannedLayer, ...]
    warnings: tuple[str, ...] = ()

    @property
    def binary(self) -> tuple[PlannedLayer, ...]:
        return tuple(layer for layer in self.layers if layer.binary)

    def __str__(self) -> str:
        head = ["layer", "shape", "kind", "latent", "rank", "bank", "place", "scale"]
        head += ["float bytes", "latent bytes", "file bytes"]
        named = [
            name for name, usual in _USUAL.items() if any(getattr(x, name) != usual for x in self.binary)
        ]
        rows = [[*_cells(x), *(getattr(x, name) for name in named), x.reason] for x in self.layers]
        head += [*(name.replace("_", " ") for name in named), "reason"]
        table = text_table(head, rows, right={8, 9, 10})
        return "\n".join([table, *(f"warning: {warning}" for warning in self.warnings)])


def _cells(layer: PlannedLayer) -> list[str]:
    shape, rank = "x".join(map(str, layer.shape)), "x".join(map(str, layer.rank))
    place = ",".join(map(str, layer.place))
    latent_bytes = "" if layer.latent_bytes is None else f"{layer.latent_bytes:,}"
    sizes = [f"{layer.weight_bytes:,}", latent_bytes, f"{layer.packed_bytes:,}" if layer.binary else ""]
    return [layer.name, shape, layer.kind, layer.latent, rank, layer.bank, place, layer.scale, *sizes]


def _reasons(real: Mapping[str, str]) -> str:
    """Return why layers are kept real, with the first few of each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in real.items():
        names.setdefault(reason, []).append(name)
    shown = {reason: [*some[:3], "..."] if len(some) > 3 else some for reason, some in names.items()}
    return "; ".join(f"{', '.join(some)} ({reason})" for reason, some in shown.items())


def make_plan(
    model: nn.Module,
    binarization: Binarization,
    keep_real: Sequence[str] = (),
    groups: Mapping[str, Grid] | None = None,
    example: Call | None = None,
) -> Plan:
    """Decide every layer of a model; see `binarize_` for the arguments."""
    layers = weight_layers(model)
    real = _real_layers(model, layers, binarization, keep_real, example)
    binary = {name: layer for name, layer in layers.items() if name not in real}
    if not layers:
        fix = "pass a model with nn.Conv2d, nn.Linear or their like"
        raise InputError(
            type(model).__name__, expected="a layer that can turn binary", found="none with a weight", fix=fix
        )
    if not binary:
        raise InputError(
            type(model).__name__,
            expected="a layer that can turn binary",
            found=f"{len(layers)} convolutions and linear layers, all kept real: {_reasons(real)}",
            fix="name fewer in keep_real, or set real_ends=False",
        )
    choices = binarization.choices(binary)
    joined = {name: layer for name, layer in binary.items() if choices[name].latent == "holistic"}
    banks = _banks(model, binarization, layers, joined, groups)
    planned = [_planned(name, layer, real, banks, choices, binarization) for name, layer in layers.items()]
    planned = with_sizes(planned, choices)
    dead = [] if example is None else dead_layers(model, binary, example, training=True)
    return Plan(tuple(planned), (*dead, *size_warnings(planned)))


def _real_layers(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    binarization: Binarization,
    keep_real: Sequence[str],
    example: Call | None,
) -> dict[str, str]:
    """Return the layers that stay real, with the reason."""
    expect_weights(model)
    candidates = {name: layer for name, layer in layers.items() if can_turn_binary(layer)}
    real = {name: why_not(layer) for name, layer in layers.items() if name not in candidates}
    ends = ends_of(model, layers, example)
    real = {**bypassed(model, candidates, ends), **real}
    if not binarization.depthwise:
        real |= {name: reason for name, layer in candidates.items() if (reason := grows(layer))}
    if binarization.real_ends and candidates:
        guess, names = "", list(layers)
        first, last = (names[:1], names[-1:]) if ends is None else (ends.first, ends.last)
        if ends is None:
            guess = ", in the order of modules; an example tells better"
        at_ends = dict.fromkeys(last, f"last layer{guess}") | dict.fromkeys(first, f"first layer{guess}")
        real |= {name: reason for name, reason in at_ends.items() if name in candidates}
    hint = getattr(model, "keep_real", None)
    for pattern in hint() if callable(hint) else ():
        real |= dict.fromkeys(names_matching(pattern, candidates), "the model keeps it real")
    real |= dict.fromkeys(
        expect_matches("keep_real", keep_real, layers) & set(candidates), "named in keep_real"
    )
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
    """Return layer -> (bank, place), of those in `binary`, whose latent is holistic."""
    if not binary:
        if groups is not None:
            raise needs_holistic(binarization)
        return {}
    if groups is None:
        groups = _preset(model, binarization, binary)
    check_groups(groups, layers)
    members = {name: (group, place) for group, grid in groups.items() for name, place in places(grid)}
    for name, (group, _) in members.items():
        if name not in binary:
            raise InputError(
                f"group {group!r}",
                expected="layers that turn binary, by latent 'holistic'",
                found=f"{name!r}, which stays real or has another latent",
                fix="take it out of keep_real or of the group, or set groups='auto'",
            )
    return members


def needs_holistic(binarization: Binarization) -> InputError:
    """Return what to say where groups are given and no layer has the latent that joins them."""
    return InputError(
        "groups",
        expected="latent 'holistic', which joins the layers of a group",
        found=f"latent {binarization.latent!r}",
        fix="leave groups out",
    )


def _preset(
    model: nn.Module, binarization: Binarization, binary: Mapping[str, nn.Module]
) -> Mapping[str, Grid]:
    preset = getattr(model, "holistic_groups", None)
    by_layer = binarization.groups is None and not isinstance(binarization.latent, str)
    if binarization.groups != "auto" and callable(preset) and not by_layer:
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
    choices: Mapping[str, Choice],
    binarization: Binarization,
) -> PlannedLayer:
    shape, inputs, weights = weight_shape(layer), binarization.activations, binarization.weights
    if name in real:
        return PlannedLayer(name, shape, False, real[name], weight_bytes=4 * prod(shape))
    reason = "is binary already" if isinstance(layer, BinaryLayer) else "turns binary"
    choice, (bank, place) = choices[name], banks.get(name, ("", ()))
    latent = choice.latent
    if latent == "holistic" and not bank:
        latent, reason = ALONE, "in no group: layer-wise"
    return PlannedLayer(
        name,
        shape,
        True,
        reason,
        latent,
        (),
        bank,
        place,
        choice.scale,
        4 * prod(shape),
        None,
        packed_bytes(layer, real_inputs=not inputs) if weights else 4 * prod(shape),
        choice.activation_estimator,
        choice.weight_estimator,
        choice.weight_transform,
        {(True, True): "binary", (True, False): "binary inputs", (False, True): "binary weights"}.get(
            (inputs, weights), "real"
        ),
    )
