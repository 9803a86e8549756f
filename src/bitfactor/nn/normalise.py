"""Batch normalisation in training, with what blocks add to it and a hard tanh, in one kernel each way.

torch's own goes through a map five times. On a CPU, in bfloat16 with channels last, it takes a number at a
time. In a small network that is more than all binary products. Max pooling needs two bytes of each output
here.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.utils import _pair

from bitfactor.decompositions import compiled
from bitfactor.nn.model import is_watched
from bitfactor.nn.product import in_format_of, maps_of, packs, wide_of


def normalised(norm: nn.BatchNorm2d, x: Tensor, added: Tensor | None = None, *, clip: bool = False) -> Tensor:
    """Return norm(x), plus `added`, clipped to -1 ... 1 if `clip`: (N, C, H, W) to the same shape.

    The values and gradients are those of torch's modules. Those do it where the compiled core cannot: on a
    GPU, in evaluation, and where torch compiles or exports.
    """
    if _takes(norm, x) and (added is None or _fits(added, x)):
        y, mean, variance = _Normalised.apply(x, added, norm.weight, norm.bias, norm.eps, clip)  # type: ignore[no-untyped-call]
        _follow(norm, mean, variance, x.numel() // x.shape[1])
        return y  # type: ignore[no-any-return]
    y = norm(x)
    y = y if added is None else y + added
    return F.hardtanh(y) if clip else y


def _fits(added: Tensor, x: Tensor) -> bool:
    return (
        added.shape == x.shape
        and compiled.takes(added)
        and torch.promote_types(x.dtype, added.dtype) == x.dtype
    )


def _takes(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    return (
        type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.momentum is not None
        and norm.track_running_stats
        and norm.affine
        and torch.is_grad_enabled()
        and packs(x)
        and x.numel() > x.shape[1]
        and norm.weight.dtype == torch.float32
        and not is_watched(norm)
    )


@torch.no_grad()
def _follow(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked += 1
    # As torch's own kernel, without a new version: a graph may hold the statistics of an earlier call.
    norm.running_mean.data.lerp_(mean, norm.momentum)
    norm.running_var.data.lerp_(variance * (count / (count - 1)), norm.momentum)


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, eps: float, clip: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, statistics = torch.empty_like(x), x.new_empty((3, x.shape[1]), dtype=torch.float32)
        there = None if added is None else in_format_of(x, added)
        plus = 0 if there is None else there.data_ptr()
        numbers = weight.contiguous(), bias.contiguous()
        addresses = [*compiled.addresses(*numbers, x), plus, *compiled.addresses(statistics, y)]
        wide = wide_of(x)
        compiled.trainer().normalise(maps_of(x, 1, wide), wide, eps, clip, *addresses)
        ctx.save_for_backward(x, y if clip else None, weight, statistics)
        ctx.added = None if added is None else added.dtype
        mean, variance, _ = statistics
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, y, weight, statistics = ctx.saved_tensors
        gradient, of_x, of_weight = in_format_of(x, gradient), torch.empty_like(x), torch.empty_like(weight)
        kept, of_bias = gradient if y is None else torch.empty_like(gradient), torch.empty_like(weight)
        clipped = (0, 0) if y is None else (y.data_ptr(), kept.data_ptr())
        wide = wide_of(x)
        compiled.trainer().normalise_backward(
            maps_of(x, 1, wide),
            wide,
            *compiled.addresses(weight.contiguous(), x),
            clipped[0],
            *compiled.addresses(gradient, statistics),
            clipped[1],
            *compiled.addresses(of_x, of_weight, of_bias),
        )
        return of_x, None if ctx.added is None else kept.to(ctx.added), of_weight, of_bias, None, None


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
    def forward(ctx: Any, x: Tensor, *window: Any) -> Tensor:
        y, places = F.max_pool2d_with_indices(x, *window)
        _, stride, padding, *_ = window
        rows, columns = (
            torch.arange(0, size * step, step, device=x.device) - margin
            for size, step, margin in zip(y.shape[2:], stride, padding, strict=True)
        )
        first = rows[:, None] * x.shape[3] + columns
        ctx.save_for_backward((places - first).to(torch.int16), first)
        channels_last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.format = torch.channels_last if channels_last else torch.contiguous_format
        ctx.shape, ctx.window = x.shape, window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        within, first = ctx.saved_tensors
        like = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=ctx.format)
        places = within.to(torch.int64).add_(first)
        of_x = torch.ops.aten.max_pool2d_with_indices_backward(gradient, like, *ctx.window, places)
        return of_x, None, None, None, None, None
