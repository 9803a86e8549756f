"""Turn the layers of a model binary, in place."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import nn

from bitfactor.binarization.binarization import Binarization, Choice
from bitfactor.binarization.build import binary_form, latent_key, latents_of, scale_key, scale_of
from bitfactor.binarization.ends import output_sizes, zeros
from bitfactor.binarization.layers import Grid
from bitfactor.binarization.plan import Plan, joint, make_plan, rank_of
from bitfactor.common.checks import checked, options_from
from bitfactor.common.errors import InputError
from bitfactor.common.result import plain
from bitfactor.decompositions import class_of
from bitfactor.nn import BinaryConv, BinaryLayer, SignActivation, open_attention_
from bitfactor.nn.model import Call, Example, become, copied, watch_optimizers
from bitfactor.nn.scale import MAPS
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
        raise InputError(
            "groups",
            expected="latent 'holistic', which joins the layers of a group",
            found=f"latent {binarization.latent!r}",
            fix="leave groups out",
        )
    call = None if example is None else Call.of(example)
    plan = make_plan(_opened(model), binarization, _names(model, keep_real), groups, call)
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
    model: nn.Module,
    choices: Iterable[Choice],
    input_shape: Sequence[int] | None,
    call: Call | None,
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
