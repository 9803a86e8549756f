"""Build the latents, the scale and the binary form of layers, or keep what they have."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.binarization.binarization import Binarization
from bitfactor.binarization.layers import BINARY_FORMS, PlannedLayer, filters_of, float_type, own_padding
from bitfactor.binarization.plan import Plan
from bitfactor.common.errors import InputError
from bitfactor.decompositions import LAYERWISE, Latent, build_bank, build_shared
from bitfactor.nn import BinaryLayer
from bitfactor.nn.scale import (
    MAPS,
    AnalyticScale,
    LearnedMapScale,
    LearnedScale,
    NoScale,
    Scale,
    analytic_alpha,
)


def latents_of(model: nn.Module, plan: Plan, binarization: Binarization) -> dict[str, Latent]:
    """Return the latent of each binary layer: the one it has, where the plan asks for no other."""
    latents: dict[str, Latent] = {}
    for group in _joint(plan):
        layers = [model.get_submodule(planned.name) for planned in group]
        keys = [latent_key(planned, binarization) for planned in group]
        if all(
            isinstance(x, BinaryLayer) and x.made_as[:1] == (k,) for x, k in zip(layers, keys, strict=True)
        ):
            latents |= {p.name: x.latent for p, x in zip(group, layers, strict=True)}  # type: ignore[misc]
            continue
        weights = [_first_weight(p.name, x, binarization) for p, x in zip(group, layers, strict=True)]
        built = _build(group, weights, binarization)
        if not any(map(_learns, layers)):
            for latent in built:
                latent.requires_grad_(False)
        latents |= {planned.name: latent for planned, latent in zip(group, built, strict=True)}
    return latents


def _joint(plan: Plan) -> list[list[PlannedLayer]]:
    """Return the layers that share parameters, together: each bank, all of `shared`, each other alone."""
    groups = defaultdict(list)
    for planned in plan.binary:
        alone = "" if planned.bank or planned.latent == "shared" else planned.name
        groups[planned.latent, planned.bank, alone].append(planned)
    return list(groups.values())


def latent_key(planned: PlannedLayer, binarization: Binarization) -> tuple[object, ...]:
    return planned.latent, binarization.rank, binarization.initialisation, planned.bank, planned.place


def scale_key(binarization: Binarization) -> tuple[object, ...]:
    return binarization.scale, binarization.detach_alpha, binarization.alpha_start


def _learns(layer: nn.Module) -> bool:
    """Whether the weight of a layer does."""
    carriers = layer.latent.parameters() if isinstance(layer, BinaryLayer) else [layer.weight]
    return any(parameter.requires_grad for parameter in carriers)


def _build(
    group: Sequence[PlannedLayer], weights: Sequence[Tensor], binarization: Binarization
) -> Sequence[Latent]:
    rank, initialisation, latent = binarization.rank, binarization.initialisation, group[0].latent
    try:
        if latent == "holistic":
            return build_bank(weights, [planned.place for planned in group], rank, initialisation)
        if latent == "shared":
            return build_shared(weights, rank, initialisation)
        return [LAYERWISE[latent](weights[0], rank, initialisation)]
    except InputError as error:
        error.add_note(f"in layer {group[0].name}")
        raise


def _first_weight(name: str, layer: nn.Module, binarization: Binarization) -> Tensor:
    """Return what the factors start from: the layer's weight, the same object, or a fresh draw."""
    if isinstance(layer, BinaryLayer):
        return layer.latent().detach()  # type: ignore[no-any-return]
    weight = layer.weight
    assert isinstance(weight, Tensor)
    if weight.is_meta or not weight.isfinite().all():
        raise InputError(
            f"layer {name}",
            expected="a weight of finite numbers",
            found="one on the meta device" if weight.is_meta else "NaN or infinity in it",
            fix="initialise the model, or load another checkpoint",
        )
    if binarization.start == "he":
        return nn.init.kaiming_normal_(torch.empty_like(weight), mode="fan_out", nonlinearity="relu")
    return weight


def scale_of(
    layer: nn.Module, latent: Latent, binarization: Binarization, size: tuple[int, ...] | None
) -> Scale:
    if isinstance(layer, BinaryLayer) and layer.made_as[1:] == (scale_key(binarization),):
        return layer.scale
    if binarization.scale == "none":
        return NoScale()
    if binarization.scale == "analytic":
        return AnalyticScale(detach=binarization.detach_alpha)
    with torch.no_grad():
        alpha = analytic_alpha(filters_of(layer, latent()))
    if binarization.alpha_start == "ones":
        alpha = torch.ones_like(alpha)
    if binarization.scale in MAPS and size:
        return LearnedMapScale(MAPS[binarization.scale](alpha, size))
    return LearnedScale(alpha)


def binary_form(layer: nn.Module, latent: Latent, scale: Scale) -> BinaryLayer:
    """Return the binary form of a float layer: its geometry, and its bias as the same parameter."""
    kind = float_type(layer)
    assert kind is not None
    form: Any = BINARY_FORMS[kind]
    if isinstance(layer, nn.Linear):
        binary: BinaryLayer = form.of(latent, scale, bias=layer.bias)
    else:
        own = "output_padding" if isinstance(layer, nn.modules.conv._ConvTransposeNd) else "padding_mode"
        names = ("stride", "padding", "dilation", "groups", "bias", own)
        geometry = {name: getattr(layer, name) for name in names}
        padding = own_padding(layer)
        if padding is not None:
            geometry |= {"padding": padding, "padding_mode": "zeros"}
        binary = form.of(latent, scale, **geometry)
    return binary.train(layer.training)
