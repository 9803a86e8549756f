"""Arithmetic of at least float32: a sign must not depend on autocast, TF32 or a half-precision parameter.

Reconstructed in bfloat16, about one weight in a thousand changes its sign, and the network that is trained
would no longer be the one that is exported.
"""

from typing import Any

import torch
from torch import Tensor


def working(parameter: Tensor) -> Tensor:
    """Return a half-precision tensor as float32, any other as it is."""
    return parameter.float() if parameter.dtype in (torch.float16, torch.bfloat16) else parameter


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b with products and sums in the tensors' own type, whatever `torch.backends` allows."""
    return _matmul_in_full(a, b) if _precision_is_reduced() else a @ b


# Read once per trace: torch.compile guards on these settings and traces again when they change.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _precision_is_reduced() -> bool:
    return any(backend.fp32_precision not in ("ieee", "none") for backend in _backends())


def _backends() -> tuple[Any, Any]:
    return torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


# An operator of its own, because a compiled graph cannot change a setting of the process on its way.
@torch.library.custom_op("bitfactor::matmul_in_full", mutates_args=())
def _matmul_in_full(a: Tensor, b: Tensor) -> Tensor:
    cuda, cpu = _backends()
    before = cuda.fp32_precision, cpu.fp32_precision
    cuda.fp32_precision = cpu.fp32_precision = "ieee"
    try:
        return a @ b
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
