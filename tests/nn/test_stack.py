"""Binary models under everything that training and deployment do to a torch model, for each latent."""

import copy
import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.cases import slow_beside
from torch import nn
from torch.utils.checkpoint import checkpoint

from bitfactor.binarization import Binarization, binarize_
from bitfactor.decompositions import JOINT, LAYERWISE
from bitfactor.models import ResNet
from bitfactor.nn import BinaryLayer, sign

LATENTS = [*LAYERWISE, *JOINT]
QUICK = ["tucker", *JOINT]
SCALES = ["none", "analytic", "learned", "learned_channel_x_axes"]


def binary_model(latent: str, scale: str = "learned", small: bool = False) -> nn.Module:
    """Two stages; `small` is one, of two layers of one shape, for what takes seconds for each layer."""
    model = ResNet((1,), (8,), 3, stem="cifar") if small else ResNet((1, 2), (8, 16), 3, stem="cifar")
    choices = Binarization(latent=latent, scale=scale, groups="auto" if latent == "holistic" else None)
    binarize_(model, choices, input_shape=(1, 3, 8, 8))
    return model.eval()


def batch() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("latent", LATENTS)
def test_deepcopy_is_equal_and_apart(latent) -> None:
    model, x = binary_model(latent), batch()
    y = model(x)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), y)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.neg_()
    assert torch.equal(model(x), y)


@pytest.mark.parametrize("latent", LATENTS)
def test_state_round_trip_with_weights_only(latent) -> None:
    model, other, x = binary_model(latent), binary_model(latent), batch()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("latent", LATENTS)
def test_each_parameter_stands_once(latent) -> None:
    model = binary_model(latent)
    state = dict(model.state_dict())
    for name, _ in model.named_buffers():
        state.pop(name, None)
    assert list(state) == [name for name, _ in model.named_parameters()]
    assert len({value.data_ptr() for value in state.values()}) == len(state)


@pytest.mark.parametrize("latent", LATENTS)
def test_another_dtype(latent) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        model = binary_model(latent).to(dtype)
        assert model(batch().to(dtype)).dtype == dtype
        for layer in model.modules():
            if isinstance(layer, BinaryLayer):
                assert layer.latent().dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("latent", LATENTS)
def test_autocast_changes_not_one_sign(latent) -> None:
    model, x = binary_model(latent), batch()
    layers = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    signs = [layer.binary_weight() for layer in layers]
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
        for layer, B in zip(layers, signs, strict=True):
            assert torch.equal(layer.binary_weight(), B)
            assert torch.equal(B, sign(layer.latent()))


class Recomputed(nn.Module):
    """A block that is computed again in the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


@pytest.mark.parametrize("latent", LATENTS)
def test_gradient_checkpointing(latent) -> None:
    model, x = binary_model(latent).double(), batch().double()
    other = copy.deepcopy(model)
    model(x).square().sum().backward()
    for stage in (other.layer1, other.layer2):
        for i, block in enumerate(stage):
            stage[i] = Recomputed(block)
    other(x).square().sum().backward()
    for a, b in zip(gradients(model), gradients(other), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("latent", slow_beside(("tucker", "holistic"), LATENTS))
def test_compile_in_one_graph(latent) -> None:
    model, x = binary_model(latent, small=True).double(), batch().double()
    other = copy.deepcopy(model)
    y = model(x)
    y.square().sum().backward()
    torch.compiler.reset()
    z = torch.compile(other, fullgraph=True, backend="aot_eager")(x)
    z.square().sum().backward()
    torch.testing.assert_close(z, y)
    for a, b in zip(gradients(model), gradients(other), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("latent", LATENTS)
def test_compile_with_inductor(latent) -> None:
    model, x = binary_model(latent), batch()
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("latent", slow_beside(QUICK, LATENTS))
def test_export(latent, strict) -> None:
    model, x = binary_model(latent, small=True), batch()
    exported = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.parametrize("scale", slow_beside(("learned_channel_x_axes",), SCALES))
def test_compile_and_export_of_scales(scale) -> None:
    model, x = binary_model("tucker", scale, small=True), batch()
    torch.compiler.reset()
    y = model(x)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(x), y)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), y)


@pytest.mark.parametrize("latents", [QUICK, pytest.param(LATENTS, marks=pytest.mark.slow)], ids=len)
def test_two_processes_give_the_gradients_of_one(latents, tmp_path) -> None:
    script = Path(__file__).with_name("two_processes.py")
    meeting = tmp_path / "meeting"
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), meeting, *latents], stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-3000:]


def test_layers_of_a_bank_are_one_program_for_the_compiler() -> None:
    """More of them than the recompilations that torch allows; each place is data, not a constant."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(14)])
    binarize_(model, Binarization(latent="holistic"))
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    layers = [torch.compile(layer, backend="eager") for layer in model[1:-1]]
    x = torch.randn(2, 4)
    for layer, compiled in zip(model[1:-1], layers, strict=True):
        assert torch.equal(compiled(x), layer(x))
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert not counters["unimplemented"]


def test_a_frozen_layer_of_a_bank_keeps_its_signs() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    binarize_(model, Binarization(latent="holistic"))
    model[2].requires_grad_(False)
    before = model[2].binary_weight()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=10.0)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
    assert torch.equal(model[2].binary_weight(), before)
