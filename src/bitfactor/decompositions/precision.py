"""Arithmetic of at least float32: a sign must not depend on autocast, TF32 or a half-precision parameter.

Reconstructed in bfloat16, about one weight in a thousand changes its sign. The trained network would then no
longer be the exported one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bitfactor.decompositions.compiled import is_followed


def working(parameter: Tensor) -> Tensor:
    """Return a half-precision tensor as float32, any other as it is."""
    return parameter.float() if parameter.dtype in (torch.float16, torch.bfloat16) else parameter


_rough: ContextVar[bool] = ContextVar("rough", default=False)


@contextmanager
def bfloat16_training(device: str) -> Iterator[None]:
    """Let gradients that are formed of what is computed here be rough, if bfloat16 is quick on the device.

    They come from products of bfloat16 anyway; what is computed, W above all, stays exact.
    """
    token = _rough.set(device != "cpu" or cpu_multiplies_bfloat16())
    try:
        yield
    finally:
        _rough.reset(token)


def gradients_are_rough() -> bool:
    """Return whether products of gradients may be of bfloat16."""
    return not is_followed() and _rough.get()


@cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether the CPU has instructions for products of bfloat16."""
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b, of matrices or batches, in the tensors' own type, whatever `torch.backends` allows."""
    if a.dim() == b.dim() == 3 and len(a) == len(b) == 1:
        return matmul(a[0], b[0])[None]
    if torch.is_grad_enabled() and (gradients_are_rough() or _onednn_takes(a, b)):
        return _Product.apply(a, b)  # type: ignore[no-any-return, no-untyped-call]
    return _product(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.float32 and _precision_is_reduced():
        product: Tensor = _matmul_in_full(a, b)
        return product
    return _matmul(a, b)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.rough = gradients_are_rough()
        return _product(a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        dtype = torch.bfloat16 if ctx.rough else gradient.dtype
        of_y, (needs_a, needs_b) = gradient.to(dtype), ctx.needs_input_grad
        of_a = _product(of_y, b.mT.to(dtype)).to(a.dtype) if needs_a else None
        of_b = _product(a.mT.to(dtype), of_y).to(b.dtype) if needs_b else None
        return of_a, of_b


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() == 3:
        return torch.bmm(a, b)
    if _onednn_takes(a, b):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.mT, None, "none", [], None)
        return product
    return a @ b


def _onednn_takes(a: Tensor, b: Tensor) -> bool:
    """Return whether oneDNN is to multiply these, float32 matrices on a CPU.

    torch gives them to MKL, which uses registers half as wide on AMD's CPUs with AVX-512 as on Intel's.
    """
    return (
        a.dtype == b.dtype == torch.float32
        and a.dim() == b.dim() == 2
        and min(*a.shape, *b.shape) > 0
        and a.device.type == b.device.type == "cpu"
        and not is_followed()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _precision_is_reduced() -> bool:
    return any(backend.fp32_precision not in ("ieee", "none") for backend in _backends())


# Read once per trace: torch.compile guards on these settings and traces again when they change. That is all
# that torch.compiler.assume_constant_result does, but it imports the compiler: a second at every start.
_precision_is_reduced._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _backends() -> tuple[Any, Any]:
    return torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


# An operator of its own, because a compiled graph cannot change a setting of the process on its way.
@torch.library.custom_op("bitfactor::matmul_in_full", mutates_args=())
def _matmul_in_full(a: Tensor, b: Tensor) -> Tensor:
    cuda, cpu = _backends()
    before = cuda.fp32_precision, cpu.fp32_precision
    cuda.fp32_precision = cpu.fp32_precision = "ieee"
    try:
        return _matmul(a, b)
    finally:
        cuda.fp32_precision, cpu.fp32_precision = before


@_matmul_in_full.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _keep_operands(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor
) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor]:
    a, b = ctx.saved_tensors  # type: ignore[attr-defined]
    return _matmul_in_full(gradient, b.mT), _matmul_in_full(a.mT, gradient)


_matmul_in_full.register_autograd(_gradients, setup_context=_keep_operands)
