"""A whole model: copies of it, what it is called with, and layers that say the same of every input.

Also the parameters that it no longer has, so that no optimizer goes on with them in silence.
"""

import copy
import inspect
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _every
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from bitfactor.common.errors import InputError

_Model = TypeVar("_Model", bound=nn.Module)


def expect_weights(model: nn.Module) -> None:
    """Raise InputError where a lazy layer has not seen its first batch."""
    for name, module in model.named_modules():
        values = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(nn.parameter.is_lazy(value) for value in values):
            found, fix = f"{type(module).__name__}, which has none yet", "call the model on a batch first"
            raise InputError(f"layer {name}", expected="weights", found=found, fix=fix)


def copied(model: _Model) -> _Model:
    """Return a deep copy."""
    expect_weights(model)
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                raise InputError(
                    f"layer {name}" if name else "the model",
                    expected=f"a {key} that is a parameter or a buffer",
                    found="one computed from parameters, as torch.nn.utils.weight_norm and prune keep it",
                    fix="use torch.nn.utils.parametrizations instead, or remove_weight_norm or prune.remove",
                )
    return copy.deepcopy(model)


def become(module: nn.Module, other: nn.Module) -> None:
    """Turn a module into another one, the same object, so that whoever holds it calls the new one.

    Models hold layers in lists, dicts and closures beside their attributes, and call them there.
    """
    module.__class__ = type(other)
    vars(module).clear()
    vars(module).update(vars(other))


Example = Tensor | tuple[Any, ...] | Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """Arguments of a model. Tensors are inputs, (N, ...) with the same N; all else is fixed."""

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
        """Return what the model gives; one that changes its inputs gets copies."""
        own = self.mapped(torch.clone)
        return model(*own.args, **own.kwargs)

    def tried(self, model: nn.Module) -> Any:
        """Return what the model gives; what its code raises is an InputError with the layer and the line."""
        try:
            return self(model)
        except InputError:
            raise
        except Exception as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in self.tensors)
            fix = f"pass another example (--input, --example), or see {line_of(error) or 'above'}"
            if self._runs_as_a_batch(model):
                fix = "add the dimension of the batch: pass x[None]"
            raise InputError(
                _layer_of(model, error),
                expected=f"a model that runs on the example of shape {shapes}",
                found=f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}",
                fix=fix,
            ) from error

    def _runs_as_a_batch(self, model: nn.Module) -> bool:
        """Whether the model takes these inputs as one sample."""
        try:
            with torch.no_grad():
                self.mapped(lambda x: x[None])(model)
        except Exception:  # whatever its code raises
            return False
        return True

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
        last = [name for name, value in self.kwargs.items() if isinstance(value, Tensor)]
        return [name for name in names if name not in last] + last  # as the call gives them


def _layer_of(model: nn.Module, error: Exception) -> str:
    """Return the class of the model, and the name of the innermost layer that was running."""
    names = {id(module): name for name, module in model.named_modules()}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    running = (names.get(id(frame.f_locals.get("self"))) for frame in reversed(frames))
    name = next(filter(None, running), "")
    return f"{type(model).__name__}: layer {name!r}" if name else type(model).__name__


def line_of(error: Exception) -> str:
    """Return where an error was raised, in the model's own file if it is in none of torch's."""
    return own_line([(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)])


def own_line(frames: Sequence[tuple[str, Any]]) -> str:
    """Return the innermost of places in files that is neither torch's nor of what runs it, as file:line."""
    own = [(file, n) for file, n in frames if not any(Path(file).is_relative_to(room) for room in _OTHERS)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


_ROOMS = Path(__file__).parents[1]
_OTHERS = (Path(torch.__file__).parent, *(_ROOMS / name for name in ("binarization", "exporter", "nn")))


def noise_like(x: Tensor) -> Tensor:
    """Return other values for an input: normal noise, or of integers and bool the same ones shuffled.

    They are shuffled among samples, so that each place has values of its own; of one sample among places.
    """
    generator = torch.Generator().manual_seed(0)
    if x.is_floating_point():
        return torch.randn(x.shape, generator=generator)
    if len(x) > 1:
        return x.gather(0, torch.rand(x.shape, generator=generator).argsort(0))
    return x.flatten()[torch.randperm(x.numel(), generator=generator)].reshape(x.shape)


_NEARLY_ALL = 0.9  # of a layer's channels


def dead_layers(model: nn.Module, layers: Iterable[str], call: Call, *, training: bool) -> list[str]:
    """Return a sentence for each layer whose input signs, or whose outputs, do not vary over a batch.

    What follows a sigmoid or a square is positive throughout. A binary layer then sees +1 alone, gives the
    same output for every input, and learns nothing. The batch goes through a copy of the model; in training
    mode where BatchNorm has no statistics yet.
    """
    model = copied(model).train(training)
    signs: dict[str, list[Tensor]] = {}
    outputs: dict[str, list[Tensor]] = {}
    for name in layers:
        hook = partial(_note, signs.setdefault(name, []), outputs.setdefault(name, []))
        model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        call(model)
    sentences = []
    for name in signs:
        of_input, of_output = (_fraction(found[name]) for found in (signs, outputs))
        if of_input >= _NEARLY_ALL:
            sentences.append(
                f"{name}: {of_input:.0%} of its input channels have one sign all over the example (after a "
                "sigmoid, say), so they tell it nothing; put a BatchNorm before it, or keep it real"
            )
        elif of_output >= _NEARLY_ALL:
            sentences.append(f"{name}: {of_output:.0%} of its outputs are the same all over the example")
    return sentences


def first_tensor(values: object) -> Tensor | None:
    """Return the first tensor of the arguments of a call."""
    return next((value for value in tree_leaves(values) if isinstance(value, Tensor)), None)


def _note(
    signs: list[Tensor], outputs: list[Tensor], layer: nn.Module, args: Any, kwargs: Any, output: Tensor
) -> None:
    last, x = hasattr(layer, "in_features"), first_tensor((args, kwargs))
    x = getattr(layer, "sign_input", nn.Identity())(x)
    signs.append(_constant(x > 0, last))
    outputs.append(_constant(output, last))


def _constant(x: Tensor, channels_last: bool) -> Tensor:
    """Return for each channel whether all its values are equal; nothing where it has one value alone."""
    channels = x.movedim(-1 if channels_last or x.dim() < 2 else 1, 0).flatten(1)
    if channels.shape[1] < 2:
        return torch.zeros(0)
    return (channels == channels[:, :1]).all(1)


def _fraction(calls: Sequence[Tensor]) -> float:
    """Return the fraction of channels that are constant in all calls of a layer."""
    if not calls or not calls[0].numel() or len({call.shape for call in calls}) > 1:
        return 0.0
    return float(torch.stack(list(calls)).all(0).float().mean())


def is_watched(module: nn.Module) -> bool:
    """Return whether hooks, or a forward of the object's own, see or change what a module computes."""
    hooks = [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks]
    hooks += [module._backward_pre_hooks, _every._global_forward_hooks, _every._global_forward_pre_hooks]
    hooks += [_every._global_backward_hooks, _every._global_backward_pre_hooks]
    return any(hooks) or "forward" in vars(module)


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
