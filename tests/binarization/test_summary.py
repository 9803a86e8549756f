"""Parameters, multiplications and bytes of a model, counted by hand."""

import json

import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_, summary
from bitfactor.models import resnet18
from bitfactor.nn import BinaryConv2d


def small() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten(), nn.Linear(32, 5))
    binarize_(model, Binarization(latent="tucker"))
    return model


def test_counts_by_hand() -> None:
    found = summary(small(), (1, 3, 6, 6))
    first, binary, last = found.rows
    assert (first.real_macs, first.binary_macs) == (8 * 16 * 27, 0)
    assert (binary.real_macs, binary.binary_macs) == (0, 8 * 4 * 36)
    assert last.real_macs == 160
    assert first.float_bytes == first.trained_bytes == first.exported_bytes == 4 * (8 * 27 + 8)
    assert binary.float_bytes == 4 * (8 * 36 + 8)
    assert binary.trained_bytes == 4 * (8 * 36 + 64 + 16 + 9 + 9 + 8 + 8)
    assert binary.exported_bytes == 8 * 8 * 9 + 4 * (8 + 8)
    assert found.binary_macs == 8 * 4 * 36
    assert found.binary_fraction == found.binary_macs / (found.binary_macs + found.real_macs)
    assert found.compression == found.float_bytes / found.exported_bytes
    assert found.trained_bytes == 4 * sum(p.numel() for p in small().parameters())


def test_macs_grow_with_the_batch_and_bytes_do_not() -> None:
    one, two = summary(small(), (1, 3, 6, 6)), summary(small(), (2, 3, 6, 6))
    assert two.binary_macs == 2 * one.binary_macs
    assert two.exported_bytes == one.exported_bytes


def test_a_bank_counts_once() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(5)))
    binarize_(model)
    assert summary(model, (1, 8)).trained_bytes == 4 * sum(p.numel() for p in model.parameters())


def test_float_resnet18_is_known() -> None:
    model = resnet18()
    found = summary(model, (1, 3, 224, 224))
    assert found.binary_fraction == 0
    assert found.compression == 1
    assert found.real_macs == pytest.approx(1.81e9, rel=0.01)
    assert found.float_bytes == 4 * sum(p.numel() for p in model.parameters())


def test_a_transposed_convolution_counts_its_input() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 2, stride=2, bias=False))
    assert summary(model, (1, 4, 5, 5)).real_macs == 25 * 4 * 6 * 4


def test_a_stage_with_real_weights_has_no_binary_macs() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    binarize_(model, Binarization(weights=False))
    assert summary(model, (1, 8)).binary_macs == 0


@pytest.mark.parametrize(
    ("part", "kind", "weight_bytes"),
    [
        ("activations", "binary weights conv2d", 12 * 8 * 9 // 8),
        ("weights", "binary inputs conv2d", 12 * 8 * 9 * 4),
    ],
)
def test_half_binary_layers_are_counted_as_what_they_are(part, kind, weight_bytes) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3, bias=False), nn.Flatten(), nn.Linear(48, 5))
    plan = binarize_(model, Binarization(latent="none", scale="none", **{part: False}))
    row = summary(model, (1, 3, 6, 6)).rows[1]
    assert (row.kind, row.binary_macs, row.real_macs) == (kind, 0, 4 * 12 * 8 * 9)
    alpha = 4 * 12 * (part == "activations")
    assert (row.float_bytes, row.exported_bytes) == (4 * 12 * 8 * 9, weight_bytes + alpha)
    assert plan.layers[1].packed_bytes == weight_bytes


class Others(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.randn(8, 3, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x.sign(), self.latent.sign())


def test_a_layer_of_others_code_counts_as_torch_runs_it() -> None:
    found = summary(nn.Sequential(Others(), nn.Flatten(), nn.Linear(128, 5)), (1, 3, 6, 6))
    assert [row.real_macs for row in found.rows] == [16 * 8 * 27, 640]


def test_a_layer_of_real_weights_has_its_scale_in_the_file() -> None:
    layer = BinaryConv2d(3, 8, 3, bias=False)
    layer.binary_weights = False
    assert summary(layer, (1, 3, 6, 6)).exported_bytes == 4 * (8 * 27 + 8)


class Holder(nn.Module):
    """Computes with a weight of its own, and has a child."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.places = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.zeros(8, 1, 1))
        self.after = nn.Conv2d(8, 2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(nn.functional.conv2d(x, self.weight) + self.places)


def test_what_a_module_with_children_holds_and_computes_itself() -> None:
    found = summary(nn.Sequential(Holder()), (1, 3, 6, 6))
    assert [(row.name, row.real_macs, row.float_bytes) for row in found.rows] == [
        ("0", 16 * 8 * 27, 4 * (8 * 27 + 8)),
        ("0.after", 16 * 16, 4 * 16),
    ]
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    total = sum(one.numel() for one in encoder.parameters())
    assert summary(encoder, (2, 5, 16)).float_bytes == 4 * total


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    summary(model, (1, 3, 5, 5))
    assert [m.training for m in model.modules()] == [True, True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_print_and_json() -> None:
    found = summary(small(), (1, 3, 6, 6))
    assert "binary conv2d" in str(found)
    assert "total" in str(found)
    values = json.loads(json.dumps(found.to_dict()))
    assert values["binary_macs"] == found.binary_macs
    assert values["rows"][1]["weight_shape"] == [8, 4, 3, 3]
