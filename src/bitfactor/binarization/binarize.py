"""Turn the layers of a model binary, in place."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bitfactor.binarization.binarization import Binarization, Choice
from bitfactor.binarization.ends import output_sizes, zeros
from bitfactor.binarization.layers import BINARY_FORMS, Grid, PlannedLayer, float_type, own_padding
from bitfactor.binarization.plan import Plan, built_of, joint, make_plan, needs_holistic, rank_of
from bitfactor.common.checks import checked, options_from
from bitfactor.common.errors import InputError
from bitfactor.common.result import plain
from bitfactor.decompositions import Latent, Rank, class_of
from bitfactor.nn import BinaryConv, BinaryLayer, SignActivation, open_attention_
from bitfactor.nn.model import Call, Example, become, copied, watch_optimizers
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
from bitfactor.nn.transform import WEIGHT_TRANSFORMS

_LARGE = 2**25  # bytes of a latent that are worth a warning before it is made


@checked
def binarize_(
    model: nn.Module,
    binarization: Binarization | None = None,
    keep_real: str | nn.Module | Sequence[str | nn.Module] = (),
    *,
    groups: Mapping[str, Grid] | Literal["paper", "auto"] | None = None,
    input_shape: Sequence[int] | None = None,
    example: Example | None = None,
    dry_run: bool = False,
    **options: Any,
) -> Plan:
    """Turn convolutions and linear layers of any model binary, in place, and return what was done.

    Layers that read the input or give the output stay real, and so do depthwise ones. So do those that
    `model.keep_real()` names, and those whose weight other code reads. A second call changes only what
    differs. Latents, scales and parameters that the new choices keep are the same objects as before.
    BatchNorm is never touched. Of a `torch.nn.MultiheadAttention` the projections become layers, see
    `bitfactor.nn.MultiheadAttention`, which turn binary as others do.

    Make the optimizer afterwards: one that was made before holds parameters that are gone, and raises
    InputError when it steps.

    Parameters
    ----------
    binarization, options
        The choices, as a `Binarization` or as its fields: `latent="tucker", scale="learned"`.
    keep_real
        Layers to keep real: a name, a module's name (all its layers), a glob, a regular expression or the
        module itself; or several of these.
    groups
        For holistic: bank name -> names of layers, nested one list deep per mode of the grid. It replaces the
        model's `holistic_groups()` and the grouping by shape. Or one of these two, as in `Binarization`.
    input_shape
        The shape of a batch; only a scale per position needs it, where no example is given.
    example
        A batch, or the model's several inputs in their order, or by name. With it the plan says which layers
        read the input and give the output, which are bypassed and which would see one sign alone. Without it
        a batch is guessed. `bitfactor.check` also says what cannot be exported.
    dry_run
        Return the plan and change nothing.

    Raises
    ------
    InputError
        If a name matches no layer, a group is no full grid of equal shapes, or nothing would turn binary.

    Example
    -------
    >>> plan = binarize_(model, latent="tucker", scale="learned", keep_real=["layer*.downsample.*"])
    >>> print(plan)
    """
    if isinstance(groups, str):
        options, groups = {**options, "groups": groups}, None
    binarization = _chosen(binarization, options)
    if options.get("groups") is not None and "holistic" not in binarization.every("latent"):
        raise needs_holistic(binarization)
    call = None if example is None else Call.of(example)
    kept = [*binarization.keep_real, *_names(model, keep_real)]
    plan = make_plan(_opened(model), binarization, kept, groups, call)
    if dry_run:
        return plan
    choices = binarization.choices(one.name for one in plan.binary)
    if any(one.weight_estimator == "identity" and class_of(one.latent).takes for one in plan.binary):
        warnings.warn(
            "weight_estimator 'identity' lets factors grow without bound", UserWarning, stacklevel=3
        )
    if any((one.latent_bytes or 0) > max(2 * one.weight_bytes, _LARGE) for one in plan.layers):
        warnings.warn(plan.warnings[-1], UserWarning, stacklevel=3)
    before = {id(parameter): parameter for parameter in model.parameters()}
    open_attention_(model)
    for planned in plan.layers:
        if not planned.binary:
            model.get_submodule(planned.name).kept_real = planned.reason  # type: ignore[assignment]
    sizes = _sizes(model, choices.values(), input_shape, call)
    hooked = [one.name for one in plan.binary if _has_hooks(model.get_submodule(one.name))]
    if hooked:
        warnings.warn(
            f"hooks of {', '.join(hooked)} are gone with the float layers: register them after binarize_",
            UserWarning,
            stacklevel=3,
        )
    latents = latents_of(model, plan, binarization, choices)
    ranks = {one.name: rank_of(group, choices) for group in joint(plan.binary) for one in group}
    for planned in plan.binary:
        choice, layer = choices[planned.name], model.get_submodule(planned.name)
        if isinstance(layer, BinaryLayer):
            layer.latent = latents[planned.name]
        else:
            become(layer, binary_form(layer, latents[planned.name]))
        assert isinstance(layer, BinaryLayer)
        layer.name = planned.name
        if layer.made_as[2:] != (choice.weight_transform,):
            layer.set_transform(WEIGHT_TRANSFORMS[choice.weight_transform])
        layer.scale = scale_of(layer, choice, binarization, sizes.get(planned.name))
        _set_signs(layer, choice, binarization)
        keys = latent_key(planned, ranks[planned.name], binarization), scale_key(choice, binarization)
        layer.made_as = (*keys, choice.weight_transform)
        layer.train(layer.training)
    for parameter in model.parameters():
        before.pop(id(parameter), None)
    watch_optimizers(before.values())
    real = [one.name for one in plan.layers if not one.binary]
    sizes_of = None if input_shape is None else list(input_shape)
    made = {
        "binarization": plain(binarization),
        "keep_real": real,
        "groups": plain(groups),
        "input_shape": sizes_of,
    }
    model.__dict__["_binarized"] = [*calls_of(model), made]
    return plan


def calls_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return the calls of `binarize_` that made a model binary, as plain types: replayed, they make it again.

    Layers that stayed in full precision are named, so that no example is needed.
    """
    return list(model.__dict__.get("_binarized", ()))


def _has_hooks(layer: nn.Module) -> bool:
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks
    return not isinstance(layer, BinaryLayer) and any(hooks)


def _chosen(binarization: Binarization | None, options: Mapping[str, Any]) -> Binarization:
    if binarization is None:
        made = options_from(Binarization, options, "binarize_()")
        for name in ("initialisation", "orthogonality"):
            taken = any(name in class_of(latent).takes for latent in made.every("latent"))
            made.expect_effect(name, taken, f"a latent that takes {name}")
        return made
    if options:
        raise InputError(
            "binarize_()",
            expected="a Binarization or its fields",
            found=f"both, as {next(iter(options))}",
            fix="use dataclasses.replace on the Binarization",
        )
    return binarization


def _opened(model: nn.Module) -> nn.Module:
    """Return the model, or a copy of it where its attention has to be opened first."""
    if not any(type(module) is nn.MultiheadAttention for module in model.modules()):
        return model
    model = copied(model)
    open_attention_(model)
    return model


def _names(model: nn.Module, keep_real: str | nn.Module | Sequence[str | nn.Module]) -> list[str]:
    """Return keep_real as names and patterns."""
    wanted = [keep_real] if isinstance(keep_real, str | nn.Module) else keep_real
    known = {id(module): name for name, module in model.named_modules()}
    for module in wanted:
        if isinstance(module, nn.Module) and not known.get(id(module)):
            raise InputError(
                "keep_real", expected="modules of the model", found=type(module).__name__, fix="pass its name"
            )
    return [known[id(one)] if isinstance(one, nn.Module) else one for one in wanted]


def _sizes(
    model: nn.Module, choices: Iterable[Choice], input_shape: Sequence[int] | None, call: Call | None
) -> dict[str, tuple[int, ...]]:
    scales = [choice.scale for choice in choices if choice.scale in MAPS]
    if not scales:
        return {}
    if input_shape is not None:
        call = zeros(model, input_shape)
    if call is None:
        raise InputError(
            f"scale {scales[0]!r}",
            expected="input_shape or example, for the size of each layer's output",
            found="none",
            fix="call binarize_(..., input_shape=(1, 3, 224, 224))",
        )
    return output_sizes(model, call)


def _set_signs(layer: BinaryLayer, choice: Choice, binarization: Binarization) -> None:
    if layer.sign_input.estimator != choice.activation_estimator:
        layer.sign_input = SignActivation(choice.activation_estimator)
    if layer.weight_estimator != choice.weight_estimator:
        layer.weight_estimator = choice.weight_estimator
    layer.input_scale = binarization.input_scale
    layer.binary_activations, layer.binary_weights = binarization.activations, binarization.weights
    if isinstance(layer, BinaryConv):
        layer.padding_value = binarization.padding_value


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
        learning = [*map(_learns, layers)]
        if not any(learning):
            for latent in built:
                latent.requires_grad_(False)
        elif not all(learning):
            frozen = [planned.name for planned, learns in zip(group, learning, strict=True) if not learns]
            warnings.warn(
                f"{', '.join(frozen)}: frozen, but in one decomposition with layers that learn, so it learns "
                "too; freeze all of them or none, or take a latent of single layers",
                UserWarning,
                stacklevel=2,
            )
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
        # Of a transposed weight, (C, O, ...), torch calls the outputs "in".
        transposed = isinstance(layer, nn.modules.conv._ConvTransposeNd)
        mode: Literal["fan_in", "fan_out"] = "fan_in" if transposed else "fan_out"
        return nn.init.kaiming_normal_(torch.empty_like(weight), mode=mode, nonlinearity="relu")
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
        W = layer.first_filters()
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
