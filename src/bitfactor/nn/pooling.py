"""Max pooling whose backward needs two bytes of each output."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.utils import _pair


class MaxPool2d(nn.MaxPool2d):
    """`torch.nn.MaxPool2d`: the same values and gradients, from less that is kept for backward.

    torch keeps its input and eight bytes of each output, of where in the map its value stood. This one
    keeps two, of where in the window.

    Example
    -------
    >>> MaxPool2d(2)(torch.arange(16.0).view(1, 1, 4, 4))
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """

    def forward(self, x: Tensor) -> Tensor:
        tracing = torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad)
        if tracing or self.return_indices or x.dim() != 4 or self._reach(x) > torch.iinfo(torch.int16).max:
            return super().forward(x)  # type: ignore[no-any-return]
        window = _pair(self.kernel_size), _pair(self.stride), _pair(self.padding), _pair(self.dilation)
        return _MaxPool.apply(x, *window, self.ceil_mode)  # type: ignore[no-any-return, no-untyped-call]

    def _reach(self, x: Tensor) -> int:
        """Return how far the last place of a window lies behind its first, in pixels of the map."""
        down, right = (
            (size - 1) * step
            for size, step in zip(_pair(self.kernel_size), _pair(self.dilation), strict=True)
        )
        return int(down * x.shape[-1] + right)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        ceil_mode: bool,
    ) -> Tensor:
        y, places = F.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)
        rows, columns = (
            torch.arange(0, size * step, step, device=x.device) - margin
            for size, step, margin in zip(y.shape[2:], stride, padding, strict=True)
        )
        first = rows[:, None] * x.shape[3] + columns
        ctx.save_for_backward((places - first).to(torch.int16), first)
        channels_last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.format = torch.channels_last if channels_last else torch.contiguous_format
        ctx.shape, ctx.window = x.shape, (kernel, stride, padding, dilation, ceil_mode)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        within, first = ctx.saved_tensors
        like = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=ctx.format)
        places = within.to(torch.int64).add_(first)
        of_x = torch.ops.aten.max_pool2d_with_indices_backward(gradient, like, *ctx.window, places)
        return of_x, None, None, None, None, None
