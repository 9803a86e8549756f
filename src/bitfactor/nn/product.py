"""The product of signs, and the least that backward needs of it: bits on a CPU, bytes elsewhere.

y = alpha (sign(x) (*) sign(V)), with gradients straight through both signs. Backward needs the two signs and
the masks of the estimators, all bits; and since y = alpha s with s linear in sign(V),

    dL/dalpha_o = <dL/ds_o, s_o> = <dL/dB_o, B_o>,    B = sign(V),    dL/dV = alpha dL/dB,

where dL/dB is the weight's gradient for alpha = 1: neither y nor s is kept. The two products of backward are
torch's own (`side_by_side`), in the type of y.

On a CPU the compiled core multiplies packed signs. Its sums are integers, the same as those of a convolution
of real numbers and as those of the exported file. Elsewhere the sums are torch's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from bitfactor.decompositions import compiled
from bitfactor.nn import side_by_side


def sign(x: Tensor) -> Tensor:
    """Return -1 where x <= 0 and +1 where x > 0 (equation 1), in x's type; no gradient flows.

    0.0, -0.0 and negative denormals give -1. NaN has no sign and stays NaN, so that it reaches the loss.

    Example
    -------
    >>> sign(torch.tensor([-2.0, -0.0, 0.0, 0.5]))
    tensor([-1., -1., -1.,  1.])
    """
    # (.., 0] goes to -1, (0, ..) to 1, in three vectorised passes; torch.where is an order slower on a CPU.
    return F.threshold(x.clamp(max=1).ceil_(), 0, -1, inplace=True)


class Masks(NamedTuple):
    """Where gradients are 0: that of x where abs(x) >= 1, that of V where abs(V) > 1."""

    input: bool
    weight: bool


class Geometry(NamedTuple):
    """Of a convolution over (H, W)."""

    stride: Sequence[int] = (1, 1)
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)
    groups: int = 1


_NO_PADDING = Geometry()


def takes(x: Tensor, V: Tensor) -> bool:
    """Return whether `binary_conv2d` multiplies these: plain tensors, which torch does not follow.

    It does where torch compiles. Of float16, whose sums overflow, and in forward mode it multiplies none.
    """
    if torch.compiler.is_compiling():
        fits = not torch.compiler.is_exporting()
    else:
        plain = all(type(one) in (Tensor, nn.Parameter) for one in (x, V))
        fits = plain and not compiled.is_followed() and forward_ad._current_level < 0
    return fits and x.device == V.device and x.numel() > 0 and _type_of_product(x) in _TYPES


_TYPES = (torch.float32, torch.bfloat16, torch.float64)


def _is_of_core(x: Tensor, V: Tensor) -> bool:
    """Return whether the compiled core multiplies these: on a CPU, float32 or bfloat16, V float32."""
    return (
        compiled.available()
        and x.device.type == "cpu"
        and (torch.compiler.is_compiling() or compiled.takes(x, V))
        and V.dtype == torch.float32
        and _type_of_product(x) in (torch.float32, torch.bfloat16)
        and x.dtype in (torch.float32, torch.bfloat16)
    )


def _type_of_product(x: Tensor) -> torch.dtype:
    kind = x.device.type
    if x.dtype == torch.float64 or not torch.amp.is_autocast_available(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def binary_conv2d(
    x: Tensor, V: Tensor, alpha: Tensor | None, masks: Masks, geometry: Geometry = _NO_PADDING
) -> Tensor:
    """Return alpha (sign(x) (*) sign(V)), (N, C, H, W) and (O, C / groups, kh, kw) to (N, O, H', W').

    Padding adds nothing to a sum. A NaN in x or V reaches y: all of it where the compiled core multiplies.
    """
    scale = V.new_ones(V.shape[0]) if alpha is None else alpha
    if not _is_of_core(x, V):
        return _OfBytes.apply(x, V, scale, masks, geometry)  # type: ignore[no-any-return, no-untyped-call]
    scale = scale.float().contiguous()
    bfloat16 = _type_of_product(x) == torch.bfloat16
    y: Tensor = _forward(x, V.contiguous(), scale, *geometry, [*masks, bfloat16])[0]
    return y


class _OfBytes(torch.autograd.Function):
    """As the compiled core, of torch's operations: a byte is kept of an input's sign and mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, V: Tensor, alpha: Tensor, masks: Masks, geometry: Geometry) -> Tensor:
        dtype = _type_of_product(x)
        inside = x.clamp(-1, 1)
        S, B = F.threshold(inside.ceil(), 0, -1, inplace=True), sign(V)
        # 1 and -1, and 2 and -2 where the gradient is masked: there abs(x) >= 1, and trunc has the sign.
        byte = (S + inside.trunc_() if masks.input else S).to(torch.int8)
        passes = V.abs() <= 1 if masks.weight else None
        ctx.save_for_backward(byte, B.to(torch.int8), passes, alpha)
        ctx.masks, ctx.geometry, ctx.types = masks, geometry, (x.dtype, V.dtype)
        y = F.conv2d(S.to(dtype), B.to(dtype), None, *geometry)
        return (y * alpha.view(-1, 1, 1)).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        byte, B, passes, alpha = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        of_x, *of_weight = ctx.needs_input_grad[:3]
        S = (byte.sign() if ctx.masks.input else byte).to(gradient.dtype)
        filters, window = alpha.view(-1, 1, 1, 1), (stride, padding, dilation, False, [0, 0], groups)
        for_x, for_B, _ = torch.ops.aten.convolution_backward(
            gradient, S, (B * filters).to(gradient.dtype), None, *window, [of_x, any(of_weight), False]
        )
        x_type, V_type = ctx.types
        if of_x:
            for_x = (for_x * (byte & 1) if ctx.masks.input else for_x).to(x_type)
        if not any(of_weight):
            return for_x, None, None, None, None
        for_B = for_B.to(torch.promote_types(V_type, alpha.dtype))
        for_V = for_B * filters if passes is None else for_B * filters * passes
        return for_x, for_V.to(V_type), (for_B * B).sum((1, 2, 3)).to(alpha.dtype), None, None


def packs(x: Tensor) -> bool:
    """Return whether `pack_positive` takes x: (N, C, H, W) in one piece on a CPU, float32 or bfloat16."""
    return (
        compiled.takes(x)
        and x.dim() == 4
        and x.dtype in (torch.float32, torch.bfloat16)
        and x.numel() > 0
        and (x.is_contiguous() or is_channels_last(x))
    )


def pack_positive(x: Tensor) -> Tensor:
    """Return a bit for each number of a map, whether it is above 0."""
    bits = x.new_empty((1, x.shape[0], *_words(x.shape[1:], 1)), dtype=torch.int32)
    _pack(compiled.trainer(), maps_of(x, 1), x, bits)
    return bits


def prelu_gradients(x: Tensor, gradient: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a map (N, C, H, W) and of the slopes (C,) that a PReLU applied to it."""
    gradient, wide = in_format_of(x, gradient), wide_of(x)
    of_x = torch.empty_like(x)
    of_slope = x.new_empty((x.shape[0] * wide, x.shape[1]), dtype=torch.float32)
    slopes = slope.float().repeat(wide)
    compiled.trainer().prelu(maps_of(x, 1, wide), *compiled.addresses(x, gradient, slopes, of_x, of_slope))
    return of_x, of_slope.sum(0)


def tanh_gradient(x: Tensor, gradient: Tensor, height: float, steepness: float) -> Tensor:
    """Return gradient * height / cosh(steepness x)^2, for a map that `packs` takes."""
    gradient, of_x = in_format_of(x, gradient), torch.empty_like(x)
    addresses = x.data_ptr(), gradient.data_ptr(), height, steepness, of_x.data_ptr()
    compiled.trainer().tanh_gradient(maps_of(x, 1), *addresses)
    return of_x


def in_format_of(x: Tensor, other: Tensor) -> Tensor:
    """Return another map in the type and memory format of x."""
    last = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return other.to(x.dtype).contiguous(memory_format=last)


def where_positive(gradient: Tensor, bits: Tensor) -> Tensor:
    """Return a gradient, shaped as the map whose bits these are, with 0 where the bit is 0."""
    last = torch.channels_last if is_channels_last(gradient) else torch.contiguous_format
    masked = gradient.clone(memory_format=last)
    compiled.trainer().mask(maps_of(masked, 1), bits.data_ptr(), masked.data_ptr())
    return masked


@torch.library.custom_op("bitfactor::sign_product", mutates_args=())
def _forward(
    x: Tensor,
    V: Tensor,
    alpha: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    masks: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    x = x if is_channels_last(x) else x.contiguous()
    y, x_bits, V_bits = _results(x, V, stride, padding, dilation, groups, masks)
    trainer = compiled.trainer()
    none = _pack(trainer, maps_of(x, groups), x, x_bits)
    none |= _pack(trainer, maps_of(V, 1, closed=True), V, V_bits)
    window = [*x.shape[2:], *y.shape[2:], *V.shape[2:], *stride, *padding, *dilation]
    if none:
        y.fill_(torch.nan)
    elif y.numel():
        places = compiled.addresses(x_bits, V_bits, alpha, y)
        trainer.conv(maps_of(y, groups), window, V.shape[1], *places)
    return y, x_bits, V_bits


def _results(
    x: Tensor,
    V: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    masks: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y and the bits, without values: signs, and behind them the mask where there is one."""
    clip_input, clip_weight, bfloat16 = masks
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[2:], V.shape[2:], stride, padding, dilation, strict=True)
    ]
    y = _empty((x.shape[0], V.shape[0], *size), _type(bfloat16), x)
    x_bits = x.new_empty((1 + clip_input, x.shape[0], *_words(x.shape[1:], groups)), dtype=torch.int32)
    V_bits = V.new_empty((1 + clip_weight, V.shape[0], *_words(V.shape[1:], 1)), dtype=torch.int32)
    return y, x_bits, V_bits


def _words(shape: Sequence[int], groups: int) -> tuple[int, int]:
    """Return pixels and words of the bits of one map (C, H, W)."""
    channels, height, width = shape
    return height * width, groups * 2 * ((channels // groups + 63) // 64)


_forward.register_fake(lambda x, V, alpha, *geometry_and_masks: _results(x, V, *geometry_and_masks))


@torch.library.custom_op("bitfactor::sign_product_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    x_bits: Tensor,
    V_bits: Tensor,
    alpha: Tensor,
    x_shape: Sequence[int],
    V_shape: Sequence[int],
    x_bfloat16: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    trainer = compiled.trainer()
    S = _empty(x_shape, gradient.dtype, gradient)
    trainer.unpack(maps_of(S, groups), x_bits.data_ptr(), S.data_ptr())
    B = alpha.new_empty(V_shape)
    V_maps = maps_of(B, 1)
    trainer.unpack(V_maps, V_bits.data_ptr(), B.data_ptr())
    scaled = (B * alpha.view(-1, 1, 1, 1)).to(gradient.dtype)
    of_x, of_B = side_by_side.gradients(gradient, S, scaled, stride, padding, dilation, groups, needed)
    if needed[0]:
        of_x = in_format_of(S, of_x)
        if len(x_bits) > 1:
            trainer.mask(maps_of(of_x, groups), x_bits[1].data_ptr(), of_x.data_ptr())
        of_x = of_x.to(_type(x_bfloat16))
    else:
        of_x = gradient.new_empty(0)
    if not needed[1]:
        return of_x, alpha.new_empty(0), alpha.new_empty(0)
    of_V = of_B.float().contiguous()
    of_alpha = (of_V * B).flatten(1).sum(1)
    of_V *= alpha.view(-1, 1, 1, 1)
    if len(V_bits) > 1:
        trainer.mask(V_maps, V_bits[1].data_ptr(), of_V.data_ptr())
    return of_x, of_V, of_alpha


@_backward.register_fake
def _(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    gradient, _, _, alpha, x_shape, V_shape, x_bfloat16, *_, needed = given
    of_x = _empty(x_shape, _type(x_bfloat16), gradient) if needed[0] else gradient.new_empty(0)
    return of_x, alpha.new_empty(V_shape if needed[1] else 0), alpha.new_empty(len(alpha) if needed[1] else 0)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, V, alpha, *geometry, _masks = inputs
    _, x_bits, V_bits = output
    ctx.save_for_backward(x_bits, V_bits, alpha)
    ctx.mark_non_differentiable(x_bits, V_bits)
    ctx.shapes, ctx.geometry = (list(x.shape), list(V.shape)), geometry
    ctx.x_bfloat16 = x.dtype == torch.bfloat16


def _gradients(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x_bits, V_bits, alpha = ctx.saved_tensors
    of_x, of_V, of_alpha = ctx.needs_input_grad[:3]
    needed = [of_x, of_V or of_alpha]
    found = _backward(gradient, x_bits, V_bits, alpha, *ctx.shapes, ctx.x_bfloat16, *ctx.geometry, needed)
    kept = [value if wanted else None for value, wanted in zip(found, (of_x, of_V, of_alpha), strict=True)]
    return (*kept, None, None, None, None, None)


_forward.register_autograd(_gradients, setup_context=_keep)


def _type(bfloat16: bool) -> torch.dtype:
    return torch.bfloat16 if bfloat16 else torch.float32


def _empty(shape: Sequence[int], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Return a map in the memory format of another."""
    last = torch.channels_last if is_channels_last(like) else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=last)


def is_channels_last(x: Tensor) -> bool:
    """Return whether x lies with the channel last, and not also the other way."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


_FEW, _VECTOR, _WIDEST = 64, 32, 8  # channels: rows that are short, or end within a vector, are slow


def wide_of(x: Tensor) -> int:
    """Return how many pixels of few channels are best taken as one of more, where they lie side by side."""
    pixels, channels = x.shape[2] * x.shape[3], x.shape[1]
    if channels >= _FEW or not is_channels_last(x):
        return 1
    fitting = [wide for wide in range(1, max(_WIDEST, _FEW // channels) + 1) if pixels % wide == 0]
    return max(fitting, key=lambda wide: (min(wide * channels, _FEW), wide * channels % _VECTOR == 0, -wide))


def maps_of(x: Tensor, groups: int, wide: int = 1, *, closed: bool = False) -> Any:
    """Return the maps of a batch as the core sees them, `wide` pixels of them as one."""
    samples, channels, height, width = x.shape
    bfloat16 = x.dtype == torch.bfloat16
    pixels, channels = height * width // wide, channels // groups * wide
    return compiled.Maps(samples, pixels, groups, channels, is_channels_last(x), bfloat16, closed)


def _pack(trainer: Any, maps: Any, x: Tensor, bits: Tensor) -> bool:
    inside = bits[1].data_ptr() if len(bits) > 1 else 0
    return bool(trainer.pack(maps, x.data_ptr(), bits.data_ptr(), inside))
