"""Branches and numbers that a model takes from its own buffers, followed with the value that it has.

`if self.temperature < 1e-7` and `self.tau.item()` depend on no input, but torch.export knows a buffer's shape
alone. So the model runs once, what it asks of such tensors is written down, and the trace gets it again.
Nor does a trace see what goes through `x.data`, which is there what `x.detach()` is.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bitfactor.nn.model import Call

_DATA = Tensor.data.__get__  # type: ignore[attr-defined]
_ASKING = (Tensor.__bool__, Tensor.item, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.tolist)


class _Written(TorchFunctionMode):
    """Write down what is asked of tensors that depend on no input."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()
        self.answers: list[Any] = []
        self.moving: dict[int, Tensor] = {id(x): x for x in inputs}
        self.takes_data = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.takes_data |= func == _DATA
        if self._depends(args, kwargs):
            self.moving |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        elif func in _ASKING:
            self.answers.append(result)
        return result

    def _depends(self, args: Any, kwargs: Any) -> bool:
        return any(id(x) in self.moving for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))


class _Answered(TorchFunctionMode):
    """Give the answers again, in the same order, to those who ask the same."""

    def __init__(self, written: _Written, inputs: list[Tensor]) -> None:
        super().__init__()
        self.answers: Iterator[Any] = iter(written.answers)
        self.moving = _Written(inputs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ASKING and not self.moving._depends(args, kwargs):
            return next(self.answers)
        if func == _DATA:
            return args[0].detach()  # which the trace can see
        return self.moving.__torch_function__(func, types, args, kwargs)


def follow_(model: nn.Module, call: Call) -> None:
    """Let a model, when it is traced, take each branch on its own buffers as it does on `call`."""
    with torch.no_grad(), _Written(call.tensors) as written:
        call(model)
    if not written.answers and not written.takes_data:
        return
    forward = model.forward

    @functools.wraps(forward)
    def followed(*args: Any, **kwargs: Any) -> Any:
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        with _Answered(written, inputs):
            return forward(*args, **kwargs)

    model.forward = followed
