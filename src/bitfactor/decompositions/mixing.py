"""The weights of Tucker decompositions, and of banks of them, in one step and its gradients.

    W[p] = output x[p] channel^T for each tap,    x[p] = sum_g rows[p, g] taps core[g],

taps applied to the last mode of a core. The modes of grid and taps are small: making x is bound by memory.
The compiled core takes both steps a few slices at a time, which stay in its caches; without it they are
products of torch, that of x with the Kronecker product of rows and taps.

For backward one tensor of each weight's size is kept, which would cost a product of channels to make again;
it needs twice as many of these as forward, at least, whatever the order. Rough gradients are of bfloat16.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bitfactor.decompositions import compiled
from bitfactor.decompositions.precision import gradients_are_rough, matmul


def kronecker(matrices: Sequence[Tensor]) -> Tensor:
    """Return the Kronecker product of matrices, the last one varying fastest, of any strides."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = (product[:, None, :, None] * matrix[:, None]).flatten(2).flatten(0, 1)
    return product


def mixed_weights(
    cores: Tensor, rows: Tensor, taps: Tensor, output: Tensor, channel: Tensor
) -> tuple[Tensor, ...]:
    """Return P weights (O, C, T), of cores (G, R0, R1, t), rows (P, G), taps (T, t), (O, R0) and (C, R1).

    Example
    -------
    >>> factors = torch.randn(3, 2), torch.randn(9, 9), torch.randn(8, 8), torch.randn(4, 4)
    >>> [W.shape for W in mixed_weights(torch.randn(2, 8, 4, 9), *factors)]
    [torch.Size([8, 4, 9]), torch.Size([8, 4, 9]), torch.Size([8, 4, 9])]
    """
    operands = (cores, rows, taps, output, channel)
    if compiled.available() and all(x.device.type == "cpu" and x.dtype == torch.float32 for x in operands):
        weights: tuple[Tensor, ...] = _Compiled.apply(*operands)  # type: ignore[no-untyped-call]
        return weights
    return _Plain.apply(*operands).unbind()  # type: ignore[no-any-return, no-untyped-call]


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> tuple[Tensor, ...]:
        operands = tuple(operand.contiguous() for operand in operands)
        cores, rows, taps, output, channel = operands
        trainer = compiled.trainer()
        ctx.coupled = gradients_are_rough() and trainer.couples()
        ctx.sizes = [*rows.shape, *taps.shape, len(output), len(channel), *cores.shape[1:3]]
        weights = [cores.new_empty(len(output), len(channel), len(taps)) for _ in rows]
        x = cores.new_empty(len(rows), len(taps), *cores.shape[1:3])
        kept = (len(output) + 1) // 2 if ctx.coupled else len(output)
        y = cores.new_empty(len(rows), len(taps), kept, channel.shape[1])
        trainer.weights(
            ctx.sizes, ctx.coupled, _addresses(operands), x.data_ptr(), y.data_ptr(), _addresses(weights)
        )
        ctx.save_for_backward(*operands, y)
        return tuple(weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *of_weights: Tensor) -> tuple[Tensor | None, ...]:
        *operands, y = ctx.saved_tensors
        cores, rows, taps, *_ = operands
        of_weights = tuple(of_weight.contiguous() for of_weight in of_weights)
        gradients = [torch.empty_like(operand) for operand in operands]
        x = cores.new_empty(len(rows), len(taps), *cores.shape[1:3])
        compiled.trainer().of_weights(
            ctx.sizes,
            ctx.coupled,
            _addresses(operands),
            x.data_ptr(),
            y.data_ptr(),
            _addresses(of_weights),
            _addresses(gradients),
        )
        return _wanted(ctx, gradients)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _wanted(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    pairs = zip(gradients, ctx.needs_input_grad, strict=True)
    return tuple(gradient if needed else None for gradient, needed in pairs)


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        cores, rows, taps, output, channel = operands
        dtype = torch.bfloat16 if gradients_are_rough() else cores.dtype
        half, W = products(mix(cores, rows, taps), output, channel)
        ctx.save_for_backward(*operands, half.to(dtype))
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_W: Tensor) -> tuple[Tensor | None, ...]:
        cores, rows, taps, output, channel, half = ctx.saved_tensors
        dtype, n = half.dtype, len(rows)
        output, channel = (x.to(dtype).expand(n, -1, -1) for x in (output, channel))
        inner = cores.flatten(1, 2).mT.to(dtype).flatten(0, 1)  # (G t, R0 R1)
        both = kronecker([rows, taps]).to(dtype)
        x = matmul(both, inner).view(n, -1, cores.shape[2])  # (P, T R0, R1)
        of_W = of_W.to(dtype).flatten(2)  # (P, O, C T)
        of_output = matmul(of_W, half)
        of_half = matmul(of_W.mT, output).view(n, channel.shape[1], -1)  # (P, C, T R0)
        of_channel = matmul(of_half, x)
        of_x = matmul(of_half.mT, channel).view(len(both), -1)  # (P T, R0 R1)
        of_inner = matmul(both.mT, of_x).view(len(cores), taps.shape[1], -1)
        of_both = matmul(of_x, inner.mT).to(cores.dtype).view(n, len(taps), *rows.shape[1:], -1)
        of_rows = (of_both * taps[:, None]).sum((1, 3))
        of_taps = (of_both * rows[:, None, :, None]).sum((0, 2))
        of_cores = of_inner.mT.to(cores.dtype).reshape(cores.shape)
        of_factors = (terms.sum(0, dtype=cores.dtype) for terms in (of_output, of_channel))
        return _wanted(ctx, [of_cores, of_rows, of_taps, *of_factors])


def mix(cores: Tensor, rows: Tensor, taps: Tensor) -> Tensor:
    """Return x (P, T, R0, R1) as a product with a Kronecker product."""
    x = matmul(kronecker([rows, taps]), cores.flatten(1, 2).mT.flatten(0, 1))
    return x.view(len(rows), len(taps), *cores.shape[1:3])


def products(x: Tensor, output: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of x (P, T, R0, R1), products along one channel mode, (P, C T, R0), and both, (P, O, C, T)."""
    n, r = len(x), x.shape[2]
    half = matmul(channel.expand(n, -1, -1), x.flatten(1, 2).mT).view(n, -1, r)
    return half, matmul(output.expand(n, -1, -1), half.mT).view(n, len(output), len(channel), -1)
