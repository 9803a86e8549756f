"""Build the latents, the scale and the binary form of layers, or keep what they have."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.binarization.binarization import Binarization, Choice
from bitfactor.binarization.layers import BINARY_FORMS, PlannedLayer, float_type, own_padding
from bitfactor.binarization.plan import Plan, built_of, joint, rank_of
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Latent, Rank
from bitfactor.nn import BinaryLayer
from bitfactor.nn.scale import (
    LEARNED,
    MAPS,
    PER_CHANNEL,
    AnalyticScale,
    LearnedMapScale,
    LearnedScale,
    Scale,
    analytic_alpha,
)


def latents_of(
    model: nn.Module, plan: Plan, binarization: Binarization, choices: Mapping[str, Choice]
) -> dict[str, Latent]:
    """Return the latent of each binary layer: the one it has, where the plan asks for no other."""
    latents: dict[str, Latent] = {}
    for group in joint(plan.binary):
        layers, rank = [model.get_submodule(planned.name) for planned in group], rank_of(group, choices)
        keys = [latent_key(planned, rank, binarization) for planned in group]
        if all(
            isinstance(x, BinaryLayer) and x.made_as[:1] == (k,) for x, k in zip(layers, keys, strict=True)
        ):
            latents |= {p.name: x.latent for p, x in zip(group, layers, strict=True)}  # type: ignore[misc]
            continue
        weights = [_first_weight(p.name, x, binarization) for p, x in zip(group, layers, strict=True)]
        built = built_of(group, weights, rank, binarization.initialisation)
        if not any(map(_learns, layers)):
            for latent in built:
                latent.requires_grad_(False)
        latents |= {planned.name: latent for planned, latent in zip(group, built, strict=True)}
    return latents


def latent_key(planned: PlannedLayer, rank: Rank, binarization: Binarization) -> tuple[object, ...]:
    return planned.latent, rank, binarization.initialisation, planned.bank, planned.place


def scale_key(choice: Choice, binarization: Binarization) -> tuple[object, ...]:
    return choice.scale, binarization.detach_alpha, binarization.alpha_start


def _learns(layer: nn.Module) -> bool:
    """Whether the weight of a layer does."""
    carriers = layer.latent.parameters() if isinstance(layer, BinaryLayer) else [layer.weight]
    return any(parameter.requires_grad for parameter in carriers)


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
    layer: BinaryLayer, choice: Choice, binarization: Binarization, size: tuple[int, ...] | None
) -> Scale:
    """Return the scale of a layer that has its latent: the one it has, where no other is asked for."""
    if layer.made_as[1:2] == (scale_key(choice, binarization),):
        return layer.scale
    if choice.scale == "analytic":
        return AnalyticScale(detach=binarization.detach_alpha)
    with torch.no_grad():
        W = layer.real_filters()
    if choice.scale not in LEARNED:
        return PER_CHANNEL[choice.scale](W)
    alpha = analytic_alpha(W)
    if binarization.alpha_start == "ones":
        alpha = torch.ones_like(alpha)
    if choice.scale in MAPS and size:
        return LearnedMapScale(MAPS[choice.scale](alpha, size))
    return LearnedScale(alpha)


def binary_form(layer: nn.Module, latent: Latent) -> BinaryLayer:
    """Return the binary form of a float layer: its geometry, and its bias as the same parameter."""
    kind = float_type(layer)
    assert kind is not None
    form: Any = BINARY_FORMS[kind]
    if isinstance(layer, nn.Linear):
        binary: BinaryLayer = form.of(latent, bias=layer.bias)
    else:
        own = "output_padding" if isinstance(layer, nn.modules.conv._ConvTransposeNd) else "padding_mode"
        names = ("stride", "padding", "dilation", "groups", "bias", own)
        geometry = {name: getattr(layer, name) for name in names}
        padding = own_padding(layer)
        if padding is not None:
            geometry |= {"padding": padding, "padding_mode": "zeros"}
        binary = form.of(latent, **geometry)
    return binary.train(layer.training)
