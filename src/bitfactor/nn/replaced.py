"""Parameters that a model no longer has, so that no optimizer goes on with them in silence."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bitfactor.errors import InputError

_replaced: dict[int, weakref.ref[Tensor]] = {}
_watching: list[object] = []


def watch_optimizers(parameters: Iterable[Tensor]) -> None:
    """Let any optimizer that steps one of these parameters from now on raise InputError."""
    for parameter in parameters:
        key = id(parameter)
        _replaced[key] = weakref.ref(parameter, lambda _, key=key: _replaced.pop(key, None))  # type: ignore[misc]
    if not _watching:
        _watching.append(register_optimizer_step_pre_hook(_expect_current))


def _expect_current(optimizer: Optimizer, *_: Any) -> None:
    if not _replaced:
        return
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    stale = sum(id(parameter) in _replaced for parameter in held)
    if stale:
        raise InputError(
            type(optimizer).__name__,
            expected="the parameters of the binary model",
            found=f"{stale} of {len(held)} that are gone from it",
            fix="make the optimizer after binarize_ and merge_, from model.parameters()",
        )
