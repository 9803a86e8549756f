"""Where numbers first stop being numbers."""

import torch
from torch import Tensor, nn


def bad_parameter(model: nn.Module) -> str | None:
    """Return the name of the first parameter or statistic that holds NaN or infinity."""
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            return name
    return None


@torch.no_grad()
def origin(model: nn.Module, inputs: Tensor) -> str:
    """Tell where NaN or infinity comes from: the inputs, a parameter, or the first module that gives it.

    Example
    -------
    >>> origin(model, inputs)
    'the output of layer1.0.conv1 (BinaryConv2d)'
    """
    if not inputs.isfinite().all():
        return "the inputs"
    for name, parameter in model.named_parameters():  # statistics may have been spoiled by these very inputs
        if not parameter.isfinite().all():
            return f"the parameter {name}"
    found: list[str] = []
    handles = [
        module.register_forward_hook(_watch(f"the output of {name} ({type(module).__name__})", found))
        for name, module in model.named_modules()
        if name
    ]
    try:
        model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss"


def _watch(what: str, found: list[str]):  # type: ignore[no-untyped-def]
    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not output.isfinite().all():
            found.append(what)

    return hook
