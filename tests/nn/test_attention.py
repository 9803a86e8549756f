"""Attention with layers does what torch's own does."""

import copy

import pytest
import torch
from torch import nn

from bitfactor.common.errors import InputError
from bitfactor.nn import MultiheadAttention, open_attention_

CALLS = {
    "weights": {},
    "weights of each head": {"average_attn_weights": False},
    "no weights": {"need_weights": False},
    "pairs": {"attn_mask": torch.ones(5, 5).triu(1).bool(), "need_weights": False},
    "pairs of each head": {"attn_mask": torch.randn(12, 5, 5)},
    "keys": {"key_padding_mask": torch.tensor([[False, False, True, True, False]] * 3)},
    "both": {"attn_mask": torch.randn(5, 5), "key_padding_mask": torch.randn(3, 5), "need_weights": False},
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_the_same_as_torch(call, batch_first, bias) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 4, batch_first=batch_first, bias=bias)
    for name, parameter in theirs.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    ours = copy.deepcopy(theirs)
    open_attention_(ours)
    assert type(ours) is MultiheadAttention
    x = torch.randn(3, 5, 8) if batch_first else torch.randn(5, 3, 8)
    compare(theirs(x, x, x, **CALLS[call]), ours(x, x, x, **CALLS[call]))


def compare(expected, found) -> None:
    torch.testing.assert_close(found[0], expected[0])
    assert (found[1] is None) == (expected[1] is None)
    if found[1] is not None:
        torch.testing.assert_close(found[1], expected[1])


def test_other_widths_of_keys_and_values_and_a_single_sample() -> None:
    theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=5)
    ours = copy.deepcopy(theirs)
    open_attention_(ours)
    given = torch.randn(4, 8), torch.randn(7, 6), torch.randn(7, 5)
    compare(theirs(*given), ours(*given))
    by_hand = MultiheadAttention(8, 2, kdim=6, vdim=5)
    by_hand.load_state_dict(ours.state_dict())
    compare(theirs(*given), by_hand(*given))


def test_an_encoder_calls_its_layers_once_its_attention_is_open() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, padding = torch.randn(3, 5, 8), torch.tensor([[False, False, False, True, True]] * 3)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        open_attention_(encoder)
        calls = []
        encoder.layers[1].linear2.register_forward_hook(lambda *_: calls.append(1))
        found = encoder(x, src_key_padding_mask=padding)
    assert calls
    torch.testing.assert_close(found[:, :3], expected[:, :3])


def test_what_it_does_not_know_stays_torch_s_own() -> None:
    model = nn.ModuleList([nn.MultiheadAttention(8, 2, add_zero_attn=True), nn.MultiheadAttention(8, 2)])
    tied = nn.MultiheadAttention(8, 2)
    tied.in_proj_weight = model[1].in_proj_weight
    model.append(tied)
    open_attention_(model)
    assert {type(one) for one in model} == {nn.MultiheadAttention}


def test_a_hint_without_a_mask_is_refused() -> None:
    x = torch.randn(1, 4, 8)
    with pytest.raises(InputError, match="attn_mask"):
        MultiheadAttention(8, 2, batch_first=True)(x, x, x, is_causal=True)
