"""What every estimator and every scale keeps, to test one of one's own."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.common.checks import expect
from bitfactor.decompositions.contract import copy_faults, said_by
from bitfactor.nn.scale import Scale, scale_faults
from bitfactor.nn.sign import Estimator, EstimatorLike, SignActivation, estimator_faults, estimator_of


def check_estimator(estimator: EstimatorLike) -> list[str]:
    """Return what is wrong with an estimator of one's own, a line each: nothing, for one that is right.

    It looks at values, gradients, types, copies, state, compiling, and whether torch exports its module.

    Parameters
    ----------
    estimator
        As a layer takes it: a slope, a class of modules, or a module.

    Example
    -------
    >>> assert bitfactor.nn.check_estimator(lambda x: (1 - x.abs()).clamp_min(0)) == []
    """
    expect("check_estimator", estimator, Callable[..., Any])
    made = estimator_of(estimator)
    faults = list(said_by(lambda: map(_line, estimator_faults(made))))
    if faults:
        return faults
    looks: list[Callable[..., Iterator[str]]] = [_types_of_sign]
    if made.surrogate is not None:
        looks += [_copies, _exported]
    return [line for look in looks for line in said_by(look, made)]


def _line(fault: dict[str, str]) -> str:
    return "expected {expected}, found {found}; {fix}".format(**fault)


class _OfOne(SignActivation):
    """The sign of an input with an estimator that no table has."""

    def __init__(self, made: Estimator) -> None:
        super().__init__()
        self.slope = made.slope
        self.surrogate = None if made.surrogate is None else made.surrogate()


def _types_of_sign(made: Estimator) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(4, 3, dtype=dtype, requires_grad=True)
        sign = _OfOne(made).to(dtype).eval()
        y = sign(x)
        y.sum().backward()
        if y.dtype != dtype or x.grad is None or x.grad.dtype != dtype:
            yield f"dtype: of {dtype} it makes {y.dtype}"
        elif not x.grad.isfinite().all():
            yield f"gradients: NaN or infinity in {dtype}"
        if not set(y.flatten().tolist()) <= {-1.0, 1.0}:
            yield f"values: others than -1 and 1 in {dtype}"
    torch.compiler.reset()
    x, sign = torch.randn(4, 3), _OfOne(made).eval()
    compiled: Any = torch.compile(sign, fullgraph=True, backend="eager")
    if not torch.equal(compiled(x), sign(x)):
        yield "compile: torch.compile gives other signs"


def _copies(made: Estimator) -> Iterator[str]:
    first, x = _OfOne(made).eval(), torch.randn(64, 3)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.25)
    yield from copy_faults(first, _OfOne(made).eval(), lambda module: module(x))


def _exported(made: Estimator) -> Iterator[str]:
    assert made.surrogate is not None
    surrogate = made.surrogate()
    if isinstance(surrogate, nn.Module):
        torch.export.export(surrogate.eval(), (torch.randn(2, 3, 4, 4),), strict=False)
    yield from ()


def check_scale(build: Callable[[Tensor], Scale]) -> list[str]:
    """Return what is wrong with a scale of one's own, a line each: nothing, for one that is right.

    It looks at values, gradients, types, copies, state, compiling, and whether a file can hold the scale.

    Parameters
    ----------
    build
        As `register_scale` takes it: from the filters of a first weight, (O, ...), to a `Scale`.

    Example
    -------
    >>> assert bitfactor.nn.check_scale(Largest) == []
    """
    expect("check_scale", build, Callable[..., Any])
    faults = list(said_by(lambda: map(_line, scale_faults(build))))
    looks = [] if faults else [_gradients_of_scale, _types_of_scale, _state_of_scale]
    return faults + [line for look in looks for line in said_by(look, build)]


def _gradients_of_scale(build: Callable[[Tensor], Scale]) -> Iterator[str]:
    for shape in ((6, 4, 3, 3), (6, 4)):
        W = torch.randn(shape)
        scale, y = build(W), torch.randn(2, 6, *shape[2:])
        learned = dict(scale.named_parameters())
        if not learned:
            continue
        found = torch.autograd.grad(scale(y, W).square().sum(), list(learned.values()), allow_unused=True)
        for name, gradient in zip(learned, found, strict=True):
            if gradient is None or not gradient.isfinite().all():
                yield f"gradients: none that is finite reaches {name}"


def _types_of_scale(build: Callable[[Tensor], Scale]) -> Iterator[str]:
    W = torch.randn(6, 4, 3, 3)
    scale = build(W)
    for dtype in (torch.float32, torch.bfloat16):
        if scale(torch.randn(2, 6, 5, 5, dtype=dtype), W).dtype != dtype:
            yield f"dtype: of an output of {dtype} it makes another"
    if scale.double().alpha_of(W.double()).dtype != torch.float64:
        yield "dtype: alpha of float64 filters is of another type"
    torch.compiler.reset()
    scale, y = scale.float(), torch.randn(2, 6, 5, 5)
    compiled: Any = torch.compile(scale, fullgraph=True, backend="eager")
    if not torch.allclose(compiled(y, W), scale(y, W)):
        yield "compile: torch.compile gives another result"


def _state_of_scale(build: Callable[[Tensor], Scale]) -> Iterator[str]:
    W, y = torch.randn(6, 4, 3, 3), torch.randn(2, 6, 5, 5)
    yield from copy_faults(build(W), build(torch.randn(6, 4, 3, 3)), lambda scale: scale(y, W))
