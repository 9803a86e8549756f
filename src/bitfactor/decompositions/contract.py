"""What every latent keeps, to test one of one's own."""

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.common.checks import expect
from bitfactor.common.errors import InputError
from bitfactor.decompositions.latent import Latent, once, orthogonality_penalty

_SHAPES = ((8, 4, 3, 3), (4, 8, 1, 1), (6, 4, 3), (10, 6))


def check_latent(
    build: Callable[..., Any], *, joint: bool = False, shapes: Sequence[tuple[int, ...]] = _SHAPES
) -> list[str]:
    """Return what is wrong with a decomposition of one's own, a line each: nothing, for one that is right.

    It looks at values, gradients (against differences, in float64), types, strides, copies, state, compiling,
    and at what the latent's class declares in `takes`.

    Parameters
    ----------
    build
        A class, or a function as `register` takes it.
    joint
        Whether it takes several weights.
    shapes
        Of the weights to try it with.

    Example
    -------
    >>> assert bitfactor.decompositions.check_latent(Hadamard.from_weight) == []
    """
    expect("check_latent", build, Callable[..., Any])
    build, found = getattr(build, "from_weight", build), dict[str, str]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for shape in shapes:
            for look in (_values, _gradients, _types, _copies, _compiled, _declared):
                lines = said_by(look, partial(_built, build, joint), shape)
                found = {line: f"{shape}: {line}" for line in lines} | found
    return list(found.values())


def said_by(look: Callable[..., Iterator[str]], *given: Any) -> Iterator[str]:
    """Yield what a look says; an error that it ends in is said too."""
    try:
        yield from look(*given)
    except Exception as error:  # whatever code of the user's own raises
        text = str(error).strip().partition("\n")[0]
        about = "values" if look.__name__ == "<lambda>" else look.__name__.strip("_")
        yield f"{about}: {type(error).__name__}: {text}"


def _built(build: Callable[..., Any], joint: bool, weight: Tensor, rank: Any = None) -> Latent:
    given = [weight, weight.flip(0)] if joint else weight
    made = build(given, rank, "factorised")
    made = made[0] if joint else made
    if not isinstance(made, Latent):
        raise TypeError(f"{type(made).__name__} is no Latent: derive its class from it")
    return made


def _values(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    latent = build(torch.randn(shape))
    W = latent()
    if latent.shape != shape or W.shape != shape:
        yield f"shape: expected {shape} of the latent and W, found {latent.shape} and {tuple(W.shape)}"
        return
    if not W.isfinite().all():
        yield "values: NaN or infinity in W"
    with torch.no_grad():
        if not torch.equal(latent(), W):
            yield "values: W differs where gradients are off, so the file would not be what is trained"
    if not torch.equal(latent(), W):
        yield "values: W differs from call to call"
    with once(latent):
        if latent() is not latent():
            yield "values: forward() is overridden, so `once` holds nothing; define reconstruct()"


def _gradients(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    latent = build(torch.randn(shape, dtype=torch.float64))
    parameters = dict(latent.named_parameters())
    if not parameters:
        yield "gradients: no parameters; keep them as nn.Parameter"
        return
    gradients = torch.autograd.grad(latent().square().sum(), list(parameters.values()), allow_unused=True)
    yield from (
        f"gradients: none reaches {name}"
        for name, gradient in zip(parameters, gradients, strict=True)
        if gradient is None
    )
    if not all(parameter.dtype == torch.float64 for parameter in parameters.values()):
        return  # _types says so
    values = tuple(parameter.detach().requires_grad_() for parameter in parameters.values())

    def weight(*values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        W: Tensor = torch.func.functional_call(latent, named)
        return W.square().sum()

    if not torch.autograd.gradcheck(weight, values, raise_exception=False):
        yield "gradients: they differ from those by differences"


def _types(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):
        latent = build(torch.randn(shape, dtype=dtype))
        others = [name for name, p in latent.named_parameters() if p.dtype != dtype]
        yield from (f"dtype: of a weight of {dtype}, {name} is of another" for name in others)
        if latent().dtype != dtype and not others:
            yield f"dtype: W is {latent().dtype}, expected {dtype}"
    latent = build(torch.randn(shape))
    W = latent()
    with torch.autocast("cpu", torch.bfloat16):
        if not torch.equal(latent(), W):
            yield "dtype: W differs inside autocast; define reconstruct(), not forward()"
    half = latent.bfloat16()
    if half().dtype != torch.float32:
        yield "dtype: W of bfloat16 parameters is rough; compute with decompositions.working(parameter)"
    elif not torch.equal(half(), latent.float()()):
        yield "dtype: W of bfloat16 parameters differs from that of the same in float32"
    if tuple(latent().stride()) != torch.empty(shape).stride():
        yield "strides: those of W are not torch.empty(shape)'s; define reconstruct(), not forward()"


def _copies(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    latent = build(torch.randn(shape))
    yield from copy_faults(latent, build(torch.randn(shape)), lambda made: made())
    W = latent().detach().clone()
    with torch.no_grad():
        for parameter in latent.parameters():
            parameter.mul_(2)
    if torch.equal(latent(), W):
        yield "state: W does not follow when the parameters change"


def copy_faults(module: nn.Module, other: nn.Module, result: Callable[[nn.Module], Tensor]) -> Iterator[str]:
    """Yield whether a copy of a module, or another that loads its state, gives another result."""
    expected, copied = result(module).detach().clone(), copy.deepcopy(module)
    own = {parameter.data_ptr() for parameter in module.parameters()}
    if any(p.data_ptr() in own for p in copied.parameters()) or not torch.equal(result(copied), expected):
        yield "deepcopy: a copy gives another result, or shares parameters"
    if any(p.data_ptr() in own for p in other.parameters()):
        yield "state: two layers share its parameters; make new ones for each"
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    if not torch.equal(result(other), expected):
        yield "state: loaded into another it gives another result; register all it needs"


def _compiled(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    latent = build(torch.randn(shape))
    torch.compiler.reset()
    compiled: Any = torch.compile(latent, fullgraph=True, backend="eager")
    if not torch.allclose(compiled(), latent(), rtol=1e-4, atol=1e-5):
        yield "compile: torch.compile gives another W"


def _declared(build: Callable[..., Latent], shape: tuple[int, ...]) -> Iterator[str]:
    latent = build(torch.randn(shape))
    takes, parameters = type(latent).takes, dict(latent.named_parameters())
    names = set(latent.factor_ranks())
    if not names <= parameters.keys():
        yield f"factor_ranks: names {', '.join(sorted(names - parameters.keys()))}, which are no parameters"
    if bool(names) != ("factor_rate" in takes):
        yield "takes: 'factor_rate' goes with factor_ranks() that name the factors, and their ranks"
    orthonormal = latent.orthonormal()
    if bool(orthonormal) != ("orthogonality" in takes):
        yield "takes: 'orthogonality' goes with orthonormal() that names the factors that start so"
    elif orthonormal and float(orthogonality_penalty(latent)) > 1e-6:
        yield "orthonormal: the columns of its factors do not start orthonormal"
    yield from _rank(build, shape, "rank" in takes, latent)


def _rank(build: Callable[..., Latent], shape: tuple[int, ...], taken: bool, full: Latent) -> Iterator[str]:
    try:
        lower = build(torch.randn(shape), 1)
    except InputError:
        if taken:
            yield "takes: 'rank' is there, and rank=1 is refused"
        return
    sizes = [sum(p.numel() for p in latent.parameters()) for latent in (lower, full)]
    if taken and sizes[0] >= sizes[1] and prod(shape[2:]) > 1:
        yield "takes: 'rank' is there, and rank=1 makes it no smaller"
