"""What stands between two binary layers: ReLU and PReLU with backward kernels of their own, and a shift."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfactor.common.checks import checked, expect_that
from bitfactor.decompositions.compiled import is_followed
from bitfactor.nn.product import pack_positive, packs, prelu_gradients, where_positive, wide_of


class ReLU(nn.ReLU):
    """`torch.nn.ReLU`: the same values and gradients; on a CPU it keeps a bit of each output for backward.

    Example
    -------
    >>> ReLU()(torch.tensor([4.0, -4.0]))
    tensor([4., 0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        tracing = not (torch.is_grad_enabled() and x.requires_grad)
        if self.inplace or tracing or not packs(x):
            return super().forward(x)
        return _ReLU.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(pack_positive(x))
        return F.relu(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return where_positive(gradient, positive)


class PReLU(nn.PReLU):
    """`torch.nn.PReLU`: x where x > 0, else slope * x; the same values and gradients.

    torch's backward kernel goes element by element on a CPU, and then takes more of a step than the binary
    convolution before it. This one is made of vectorised operations.

    Example
    -------
    >>> PReLU(2)(torch.tensor([[4.0, -4.0]]))
    tensor([[ 4., -1.]], grad_fn=<_PReLUBackward>)
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() < 2 or not x.is_cpu or is_followed() or not torch.is_grad_enabled():
            return super().forward(x)
        return _PReLU.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Return the PReLU of a map; torch's kernel takes rows of few numbers of bfloat16 one by one."""
    if not packs(x) or len(slope) != x.shape[1] or (wide := wide_of(x)) == 1:
        return F.prelu(x, slope)
    pixels = x.permute(0, 2, 3, 1)
    rows = F.prelu(pixels.reshape(-1, wide * len(slope)), slope.repeat(wide))
    return rows.view(pixels.shape).permute(0, 3, 1, 2)


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        y = _prelu(x, slope.to(x.dtype))
        ctx.save_for_backward(x.to(y.dtype), slope)  # autocast may have chosen another type
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, slope = ctx.saved_tensors
        if packs(x) and len(slope) == x.shape[1]:
            of_x, of_slope = prelu_gradients(x, gradient, slope)
            return of_x, of_slope.to(slope.dtype)
        channels = slope.to(x.dtype).view(-1, *(1,) * (x.dim() - 2))
        of_x = torch.where(x > 0, gradient, gradient * channels)
        of_slope = (gradient * x.clamp_max(0)).sum_to_size(channels.shape)
        return of_x, of_slope.view_as(slope).to(slope.dtype)


class Shift(nn.Module):
    """x + b, with one learned b per channel of maps (N, C, H, W); b starts at 0.

    In front of a binary layer it moves the threshold of the sign, as ReActNet's RSign; around a PReLU it is
    ReActNet's RPReLU. A file holds the first as that threshold.

    Example
    -------
    >>> Shift(2)(torch.ones(1, 2, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    @checked
    def __init__(self, channels: int) -> None:
        super().__init__()
        expect_that(1 <= channels < 1 << 31, "channels", expected="1 to 2^31 - 1", found=channels)
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias

    def extra_repr(self) -> str:
        return str(self.bias.shape[1])
