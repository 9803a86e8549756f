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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bitfactor.nn.model import Call

_DATA = Tensor.data.__get__  # type: ignore[attr-defined]
_ASKING = (Tensor.__bool__, Tensor.item, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.tolist)
_DEPENDS = object()


class _Moving(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Knows the tensors that depend on an input."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors = {id(x): x for x in inputs}

    def depends(self, *values: Any) -> bool:
        return any(id(x) in self.tensors for x in tree_leaves(values) if isinstance(x, Tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.depends(args, kwargs):
            self.tensors |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        return result


class _Written(TorchFunctionMode):
    """Writes down what is asked of tensors; of those that depend on an input, that they do."""

    def __init__(self, moving: _Moving) -> None:
        super().__init__()
        self.moving, self.answers, self.takes_data = moving, list[Any](), False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.takes_data |= func == _DATA
        if func in _ASKING:
            self.answers.append(_DEPENDS if self.moving.depends(args) else result)
        return result


class _Answered(TorchFunctionMode):
    """Gives the answers again, in the same order."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__()
        self.answers: Iterator[Any] = iter(answers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _DATA:
            return args[0].detach()
        answer = next(self.answers, _DEPENDS) if func in _ASKING else _DEPENDS
        return func(*args, **(kwargs or {})) if answer is _DEPENDS else answer


def follow_(model: nn.Module, call: Call) -> None:
    """Let a model, when it is traced, take each branch on its own buffers as it does on `call`."""
    with torch.no_grad(), _Moving(call.tensors) as moving, _Written(moving) as written:
        call(model)
    if all(answer is _DEPENDS for answer in written.answers) and not written.takes_data:
        return
    forward = model.forward

    @functools.wraps(forward)
    def followed(*args: Any, **kwargs: Any) -> Any:
        with _Answered(written.answers):
            return forward(*args, **kwargs)

    model.forward = followed
