"""What the latents of a plan weigh, before any is made."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch
from torch import nn

from bitfactor.convert.binarization import Binarization
from bitfactor.convert.layers import PlannedLayer, filters_of, weight_shape
from bitfactor.decompositions import JOINT, LAYERWISE, Latent, Rank
from bitfactor.errors import InputError
from bitfactor.format.bits import words_for
from bitfactor.nn import BinaryLayer

_MANY = 2  # times the bytes of the weight itself
_FRACTIONS = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02, 0.01)


def packed_bytes(layer: nn.Module) -> int:
    """Return the bytes of the signs of a layer in the file: channels padded to words of 64."""
    shape = filters_of(layer, torch.empty(weight_shape(layer), device="meta")).shape
    return 8 * shape[0] * prod(shape[2:]) * words_for(shape[1])


def grows(layer: nn.Module) -> str:
    """Return why a layer takes more bytes at 1 bit than in float32, or nothing."""
    packed, real = packed_bytes(layer), 4 * prod(weight_shape(layer))
    if isinstance(layer, BinaryLayer) or packed <= real:
        return ""
    return f"depthwise: {packed:,} bytes at 1 bit, {real:,} in float32"


def with_sizes(planned: Sequence[PlannedLayer], binarization: Binarization) -> list[PlannedLayer]:
    """Return the layers with ranks and bytes, from latents that are made without memory."""
    groups: dict[tuple[str, str], list[PlannedLayer]] = {}
    for layer in planned:
        if layer.binary:
            alone = "" if layer.bank or layer.latent in JOINT else layer.name
            groups.setdefault((layer.bank or layer.latent, alone), []).append(layer)
    sized = {}
    for group in groups.values():
        latents: Sequence[Latent | None] = _latents(group, binarization.rank) or [None] * len(group)
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
    weights, name = [torch.empty(layer.shape, device="meta") for layer in group], group[0].latent
    try:
        if group[0].bank:
            return JOINT[name](weights, [layer.place for layer in group], rank)
        return (
            JOINT[name](weights, rank) if name in JOINT else [LAYERWISE[name](weights[0], rank, "factorised")]
        )
    except InputError as error:
        error.add_note(f"in layer {group[0].name}")
        raise
    except (RuntimeError, NotImplementedError):
        return None


def _ranks(latent: Latent | None) -> tuple[int, ...]:
    if latent is None:
        return ()
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
        latents = _latents([layer], fraction)
        if latents and 4 * sum(p.numel() for p in latents[0].parameters()) <= _MANY * layer.weight_bytes:
            return f"; rank={fraction} would bring it below {_MANY} times"
    return "; keep it real, or take latent='none'"
