"""An example of what a model is called with: a batch, several inputs in their order, or by name."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.errors import InputError

Example = Tensor | tuple[Any, ...] | Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """Arguments of a model. Tensors are inputs, (N, ...) with the same N; all else is fixed.

    Example
    -------
    >>> Call.of({"image": x, "heads": 2})(model)
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, example: "Example | Call") -> "Call":
        """Return the call of an example: a tensor, a tuple of arguments, or a dict of them by name."""
        if isinstance(example, Call):
            return example
        if isinstance(example, Mapping):
            return cls(kwargs=dict(example))
        return cls(example if isinstance(example, tuple) else (example,))

    def __call__(self, model: nn.Module) -> Any:
        """Return what the model gives."""
        return model(*self.args, **self.kwargs)

    def values(self) -> Iterator[Any]:
        """Yield the arguments in their order."""
        yield from self.args
        yield from self.kwargs.values()

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs, in their order."""
        return [value for value in self.values() if isinstance(value, Tensor)]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Call":
        """Return the call with each input changed."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        return Call(tuple(map(changed, self.args)), {k: changed(v) for k, v in self.kwargs.items()})

    def names(self, model: nn.Module) -> list[str]:
        """Return the names that the model's forward has for the inputs."""
        try:
            bound = inspect.signature(model.forward).bind(*self.args, **self.kwargs)
        except TypeError as error:
            found = f"{len(self.args)} and {', '.join(self.kwargs) or 'none by name'} ({error})"
            fix = "pass a list for several batches of one input, a tuple for several inputs"
            raise InputError("example", expected="what the model takes", found=found, fix=fix) from error
        names = []
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                several = {f"{name}.{i}": one for i, one in enumerate(value)}
            else:
                several = value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
            names += [one for one, given in several.items() if isinstance(given, Tensor)]
        return names if len(self.kwargs) == 0 else _in_order(names, self)


def _in_order(names: list[str], call: Call) -> list[str]:
    """Return the names in the order in which the call gives them, those by name last."""
    last = [name for name, value in call.kwargs.items() if isinstance(value, Tensor)]
    return [name for name in names if name not in last] + last


def noise_like(x: Tensor) -> Tensor:
    """Return other values for an input: normal noise, or of integers and bool the same ones shuffled."""
    generator = torch.Generator().manual_seed(0)
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator)
    return x.flatten()[torch.randperm(x.numel(), generator=generator)].reshape(x.shape)
