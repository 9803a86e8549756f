"""Turn the layers of a model binary, in place."""

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bitfactor.convert.binarization import Binarization
from bitfactor.convert.groups import Grid
from bitfactor.convert.layers import BINARY_FORMS
from bitfactor.convert.outputs import output_sizes
from bitfactor.convert.plan import Plan, PlannedLayer, make_plan
from bitfactor.decompositions import LAYERWISE, Latent, build_bank, build_shared
from bitfactor.errors import InputError
from bitfactor.nn import BinaryConv, BinaryLayer, SignActivation
from bitfactor.nn.scale import (
    MAPS,
    AnalyticScale,
    LearnedMapScale,
    LearnedScale,
    NoScale,
    Scale,
    analytic_alpha,
)


def binarize_(
    model: nn.Module,
    binarization: Binarization = Binarization(),  # noqa: B008, the dataclass is frozen
    keep_real: Sequence[str] = (),
    *,
    groups: Mapping[str, Grid] | None = None,
    input_shape: Sequence[int] | None = None,
    dry_run: bool = False,
) -> Plan:
    """Turn convolutions and linear layers of any model binary, in place, and return what was done.

    The first and the last stay real, so do those that `model.keep_real()` names, if it has that method. A
    second call changes only what differs: latents, scales and their parameters that the new choices keep are
    the same objects as before, and BatchNorm is never touched.

    Parameters
    ----------
    keep_real
        Layers to keep real: a layer, a module (all its layers), a glob or a regular expression.
    groups
        For holistic: bank name -> names of layers, nested one list deep per mode of the grid; instead of
        the model's `holistic_groups()` or the grouping by shape.
    input_shape
        The shape of a batch; only a scale per position needs it.
    dry_run
        Return the plan and change nothing.

    Raises
    ------
    InputError
        If a name matches no layer, a group is no full grid of equal shapes, or nothing would turn binary.

    Example
    -------
    >>> plan = binarize_(model, Binarization(latent="tucker"), keep_real=["layer*.downsample.*"])
    >>> print(plan)
    """
    plan = make_plan(model, binarization, keep_real, groups)
    if dry_run:
        return plan
    if binarization.weight_estimator == "identity":
        warnings.warn(
            "weight_estimator 'identity' lets factors grow without bound", UserWarning, stacklevel=2
        )
    sizes = _sizes(model, binarization, input_shape)
    latents = _latents(model, plan, binarization)
    for planned in plan.binary:
        latent, layer = latents[planned.name], model.get_submodule(planned.name)
        scale = _scale(layer, latent, binarization, sizes.get(planned.name))
        if isinstance(layer, BinaryLayer):
            layer.latent, layer.scale = latent, scale
        else:
            layer = _binary_form(layer, latent, scale)
            layer.name = planned.name
            _replace(model, planned.name, layer)
        _set_signs(layer, binarization)
        layer.made_as = (_latent_key(planned, binarization), _scale_key(binarization))
    return plan


def _sizes(
    model: nn.Module, binarization: Binarization, input_shape: Sequence[int] | None
) -> dict[str, tuple[int, ...]]:
    if binarization.scale not in MAPS:
        return {}
    if input_shape is None:
        raise InputError(
            f"scale {binarization.scale!r}",
            expected="input_shape, for the size of each layer's output",
            found="none",
            fix="call binarize_(..., input_shape=(1, 3, 224, 224))",
        )
    return output_sizes(model, input_shape)


def _latents(model: nn.Module, plan: Plan, binarization: Binarization) -> dict[str, Latent]:
    """Return the latent of each binary layer: the one it has, where the plan asks for no other."""
    latents: dict[str, Latent] = {}
    for group in _joint(plan):
        layers = [model.get_submodule(planned.name) for planned in group]
        keys = [_latent_key(planned, binarization) for planned in group]
        if all(
            isinstance(x, BinaryLayer) and x.made_as[:1] == (k,) for x, k in zip(layers, keys, strict=True)
        ):
            latents |= {p.name: x.latent for p, x in zip(group, layers, strict=True)}  # type: ignore[misc]
            continue
        weights = [_first_weight(p.name, x, binarization) for p, x in zip(group, layers, strict=True)]
        built = _build(group, weights, binarization)
        latents |= {planned.name: latent for planned, latent in zip(group, built, strict=True)}
    return latents


def _joint(plan: Plan) -> list[list[PlannedLayer]]:
    """Return the layers that share parameters, together: each bank, all of `shared`, each other alone."""
    groups = defaultdict(list)
    for planned in plan.binary:
        alone = "" if planned.bank or planned.latent == "shared" else planned.name
        groups[planned.latent, planned.bank, alone].append(planned)
    return list(groups.values())


def _latent_key(planned: PlannedLayer, binarization: Binarization) -> tuple[object, ...]:
    return planned.latent, binarization.rank, planned.bank, planned.place


def _scale_key(binarization: Binarization) -> tuple[object, ...]:
    return binarization.scale, binarization.detach_alpha


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
    if not weight.isfinite().all():
        raise InputError(
            f"layer {name}",
            expected="a weight of finite numbers",
            found="NaN or infinity in it",
            fix="initialise the model, or load another checkpoint",
        )
    if binarization.start == "he":
        return nn.init.kaiming_normal_(torch.empty_like(weight), mode="fan_out", nonlinearity="relu")
    return weight


def _scale(
    layer: nn.Module, latent: Latent, binarization: Binarization, size: tuple[int, ...] | None
) -> Scale:
    if isinstance(layer, BinaryLayer) and layer.made_as[1:] == (_scale_key(binarization),):
        return layer.scale
    if binarization.scale == "none":
        return NoScale()
    if binarization.scale == "analytic":
        return AnalyticScale(detach=binarization.detach_alpha)
    with torch.no_grad():
        alpha = analytic_alpha(latent())
    if binarization.alpha_start == "ones":
        alpha = torch.ones_like(alpha)
    if binarization.scale in MAPS and size:
        return LearnedMapScale(MAPS[binarization.scale](alpha, size))
    return LearnedScale(alpha)


def _binary_form(layer: nn.Module, latent: Latent, scale: Scale) -> BinaryLayer:
    """Return the binary twin of a float layer: its geometry, and its bias as the same parameter."""
    form = BINARY_FORMS[type(layer)]
    if isinstance(layer, nn.Linear):
        binary = form(latent, scale, bias=layer.bias)
    else:
        names = ("stride", "padding", "dilation", "groups", "bias", "padding_mode")
        binary = form(latent, scale, **{name: getattr(layer, name) for name in names})
    return binary.train(layer.training)


def _set_signs(layer: BinaryLayer, binarization: Binarization) -> None:
    if layer.sign_input.estimator != binarization.activation_estimator:
        layer.sign_input = SignActivation(binarization.activation_estimator)
    layer.weight_estimator = binarization.weight_estimator
    layer.binary_activations, layer.binary_weights = binarization.activations, binarization.weights
    if isinstance(layer, BinaryConv):
        layer.padding_value = binarization.padding_value


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Put a layer in place of the module of this name, under every name that the module has."""
    old = model.get_submodule(name)
    for parent in list(model.modules()):
        for key, child in parent._modules.items():
            if child is old:
                setattr(parent, key, layer)
