"""What a file cannot hold is said at once: each place, with its layer, its line, and the way out."""

import re

import pytest
import torch
from torch import Tensor, nn

from bitfactor.binarization import binarize_
from bitfactor.common.errors import InputError
from bitfactor.exporter import UnsupportedError, export
from bitfactor.nn import BinaryConv2d, LearnedScale
from bitfactor.runtime import Session

HERE = r"test_obstacles.py:\d+"


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erfinv(x.clamp(-0.5, 0.5))


class Net(nn.Module):
    """Two places, one of them twice, with much between them; one that only follows from another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.plain = nn.Conv2d(8, 8, 3, padding=1)
        self.odd, self.again = Odd(), Odd()

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.body(self.odd(self.stem(x))))
        places = torch.cummax(x, 3).indices
        x = self.plain(x + places.float())
        return self.last(x)


def test_all_places_at_once(tmp_path) -> None:
    model = Net()
    binarize_(model, latent="none")
    with pytest.raises(UnsupportedError) as raised:
        export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 3, 6, 6))
    found = [(one.layer, one.found) for one in raised.value.obstacles]
    assert found == [
        ("odd", "aten.erfinv.default"),
        ("again", "aten.erfinv.default"),
        ("", "aten.cummax.default"),
    ]
    text = str(raised.value)
    assert text.startswith("Net: expected what the file can hold, found 3 places that it cannot")
    assert text.count("\n") == 2
    assert re.search(rf"odd, {HERE}; again, {HERE}: .*aten.erfinv", text)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_traced_is_said_with_its_line() -> None:
    class Decides(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    model = Decides()
    binarize_(model, latent="none")
    with pytest.raises(UnsupportedError) as raised:
        export(model.eval(), "net.safetensors", torch.randn(2, 3, 6, 6))
    (trace,) = raised.value.obstacles
    assert trace.line.startswith("test_obstacles.py:")
    assert "trace" in trace.expected


class Own(BinaryConv2d):
    def forward(self, x):
        return super().forward(x) + x


class OwnProduct(BinaryConv2d):
    def apply_weight(self, x, B):
        return 2 * super().apply_weight(x, B)


class OwnScale(LearnedScale):
    def forward(self, y, W):
        return super().forward(y, W).square()


def _is(kind):
    def change(layer) -> None:
        layer.__class__ = kind

    return change


def _negative(module, given, output):
    return -output


def _scaled(layer) -> None:
    layer.scale = OwnScale(torch.ones(8)).eval()


def _binary(activations: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1))
    binarize_(model, latent="none", activations=activations)
    return model.eval()


@pytest.mark.parametrize("activations", [True, False])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_is(Own), "Own, whose forward"),
        (_is(OwnProduct), "OwnProduct, whose apply_weight"),
        (_scaled, "scale OwnScale"),
        (lambda layer: layer.scale.register_forward_hook(_negative), "scale LearnedScale"),
    ],
)
def test_a_layer_that_computes_something_of_its_own_is_refused(change, words, activations, tmp_path) -> None:
    model = _binary(activations)
    change(model[1])
    with pytest.raises(UnsupportedError, match=f"layer 1: .*{words}"):
        export(model, tmp_path / "net.safetensors", torch.randn(2, 3, 6, 6))


@pytest.mark.parametrize("activations", [True, False])
@pytest.mark.parametrize(
    "hook",
    [
        lambda layer: layer.register_forward_hook(_negative),
        lambda layer: layer.register_forward_pre_hook(lambda module, given: (-given[0],)),
        lambda layer: layer.sign_input.register_forward_hook(_negative),
        lambda layer: layer.sign_weight.register_forward_hook(_negative),
        lambda layer: layer.latent.register_forward_hook(_negative),
    ],
)
def test_what_hooks_change_is_in_the_file(hook, activations, tmp_path) -> None:
    model, x = _binary(activations), torch.randn(2, 3, 6, 6)
    hook(model[1])
    export(model, tmp_path / "net.safetensors", x)
    found = torch.from_numpy(Session(tmp_path / "net.safetensors")(x.numpy()))
    torch.testing.assert_close(found, model(x).detach(), rtol=1e-4, atol=1e-4)


class Listed(nn.Module):
    """Calls its layers by a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1)
        self.steps = [self.stem, {"body": self.body}]

    def forward(self, x: Tensor) -> Tensor:
        stem, others = self.steps
        return self.last(others["body"](stem(x)))


def test_layers_in_lists_are_exported(tmp_path) -> None:
    model, x = Listed(), torch.randn(2, 3, 6, 6)
    binarize_(model, latent="none")
    report = export(model.eval(), tmp_path / "net.safetensors", x)
    assert [layer.kind for layer in report.layers] == ["real", "binary", "real"]
    found = torch.from_numpy(Session(tmp_path / "net.safetensors")(x.numpy()))
    torch.testing.assert_close(found, model(x).detach(), rtol=1e-4, atol=1e-4)


def test_an_example_without_its_batch(tmp_path) -> None:
    layers = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 4 * 4, 5)
    model = nn.Sequential(*layers).eval()
    binarize_(model, latent="none")
    with pytest.raises(InputError, match=r"example of shape \(3, 8, 8\), .* pass x\[None\]"):
        export(model, tmp_path / "net.safetensors", torch.randn(3, 8, 8))
