"""Turn the layers of a model binary, in place."""

import warnings
from collections.abc import Mapping, Sequence

from torch import nn

from bitfactor.convert.binarization import Binarization
from bitfactor.convert.build import binary_form, latent_key, latents_of, scale_key, scale_of
from bitfactor.convert.groups import Grid
from bitfactor.convert.outputs import output_sizes
from bitfactor.convert.plan import Plan, make_plan
from bitfactor.errors import InputError
from bitfactor.nn import BinaryConv, BinaryLayer, SignActivation
from bitfactor.nn.scale import MAPS


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
    if binarization.weight_estimator == "identity" and binarization.latent != "none":
        warnings.warn(
            "weight_estimator 'identity' lets factors grow without bound", UserWarning, stacklevel=2
        )
    for planned in plan.layers:
        if not planned.binary:
            model.get_submodule(planned.name).kept_real = planned.reason  # type: ignore[assignment]
    sizes = _sizes(model, binarization, input_shape)
    latents = latents_of(model, plan, binarization)
    for planned in plan.binary:
        latent, layer = latents[planned.name], model.get_submodule(planned.name)
        scale = scale_of(layer, latent, binarization, sizes.get(planned.name))
        if isinstance(layer, BinaryLayer):
            layer.latent, layer.scale = latent, scale
        else:
            layer = binary_form(layer, latent, scale).train(layer.training)
            layer.name = planned.name
            _replace(model, planned.name, layer)
        _set_signs(layer, binarization)
        layer.made_as = (latent_key(planned, binarization), scale_key(binarization))
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
