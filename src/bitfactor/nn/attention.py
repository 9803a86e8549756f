"""Attention whose projections are layers, which torch's own keeps as bare weights that nobody can replace."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError

_PACKED = ("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with `q_proj`, `k_proj`, `v_proj` and `out_proj` as layers that it calls.

    Arguments, call and results are torch's, except `add_bias_kv` and `add_zero_attn`. It never takes a fused
    path that reads weights and bypasses layers, nor does a torch.nn.TransformerEncoderLayer with it.

    Example
    -------
    >>> MultiheadAttention(64, 4, batch_first=True)(x, x, x)[0].shape
    torch.Size([2, 10, 64])
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _give_layers(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise InputError(
                "is_causal",
                expected="a mask beside it, since it is only a hint",
                found="no attn_mask",
                fix="pass the mask",
            )
        if query.dim() == 2:
            batch = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            query, key, value = (x.unsqueeze(batch) for x in (query, key, value))
            masks = padding, need_weights, attn_mask, average_attn_weights, is_causal
            y, weights = self.forward(query, key, value, *masks)
            return y.squeeze(batch), None if weights is None else weights.squeeze(0)
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (
            self._heads(layer(x))
            for layer, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            weights = F.dropout(weights, self.dropout, self.training)
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        return y if self.batch_first else y.transpose(0, 1), weights

    def _heads(self, x: Tensor) -> Tensor:
        """(N, L, E) -> (N, heads, L, E / heads)."""
        return x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(self, q: Tensor, k: Tensor, of_pairs: Tensor | None, of_keys: Tensor | None) -> Tensor | None:
        """Return what is added to the scores (N, heads, L, S): both masks, true places as -infinity."""
        mask = None
        if of_pairs is not None:
            shape = (-1, self.num_heads, q.shape[-2], k.shape[-2])
            mask = _added(of_pairs.view(shape) if of_pairs.dim() == 3 else of_pairs, q)
        if of_keys is not None:
            keys = _added(of_keys[:, None, None, :], q)
            mask = keys if mask is None else mask + keys
        return mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -math.inf)


@checked
def open_attention_(model: nn.Module) -> None:
    """Give each `torch.nn.MultiheadAttention` of a model its projections as layers, in place.

    It computes what it did, and stays the same object. Others are left as they are: subclasses, those with
    `add_bias_kv` or `add_zero_attn`, and those that share a weight with another module.
    """
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    for module in list(model.modules()):
        if (
            type(module) is nn.MultiheadAttention
            and module.bias_k is None
            and not module.add_zero_attn
            and all(holders[id(parameter)] == 1 for parameter in module.parameters())
        ):
            _give_layers(module)
            module.__class__ = MultiheadAttention
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):  # would read the packed weight of its first layer
            module.use_nested_tensor = False


def _give_layers(attention: nn.MultiheadAttention) -> None:
    packed, biases = attention.in_proj_weight, attention.in_proj_bias
    weights = (
        (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
        if packed is None
        else packed.chunk(3)
    )
    parts = (None, None, None) if biases is None else biases.chunk(3)
    for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, parts, strict=True):
        setattr(attention, name, _linear(attention, weight, bias))
    out = attention.out_proj
    attention.out_proj = _linear(attention, out.weight, out.bias)  # type: ignore[assignment]
    for name in _PACKED:
        attention.register_parameter(name, None)


def _linear(attention: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a layer of these values, the same parameters where they are whole ones."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = _parameter(weight)
    layer.bias = None if bias is None else _parameter(bias)  # type: ignore[assignment]
    return layer.train(attention.training)


def _parameter(values: Tensor) -> nn.Parameter:
    if isinstance(values, nn.Parameter):
        return values
    return nn.Parameter(values.detach().clone(), requires_grad=values.requires_grad)
