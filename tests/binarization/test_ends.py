"""Which layers stay real because of where they stand, in networks that are no chain of modules."""

import pytest
import torch
from torch import Tensor, nn

from bitfactor.binarization import binarize_


class Parallel(nn.Module):
    """Two branches read the image, as a RepVGG block; modules stand in an order that says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"u": nn.Linear(8, 2), "v": nn.Linear(8, 3)})
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.wide, self.narrow = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = torch.relu(self.wide(x) + self.narrow(x))
        x = self.middle(x).mean((2, 3))
        return {name: head(x) for name, head in self.heads.items()}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.twice = nn.Linear(8, 8)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.twice(self.twice(self.b(self.a(self.words(x))))))


def reasons(plan) -> dict[str, str]:
    return {layer.name: "" if layer.binary else layer.reason for layer in plan.layers}


@pytest.mark.parametrize("example", [None, torch.randn(2, 3, 8, 8)])
def test_all_layers_that_read_the_input_and_that_give_the_output(example) -> None:
    found = reasons(binarize_(Parallel(), latent="tucker", example=example))
    assert found == {
        "heads.u": "last layer",
        "heads.v": "last layer",
        "middle": "",
        "wide": "first layer",
        "narrow": "first layer",
    }


def test_a_model_that_cannot_be_guessed_is_taken_in_the_order_of_its_modules() -> None:
    class Odd(Parallel):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("only 17 pixels")

    found = reasons(binarize_(Odd(), latent="tucker"))
    assert "example" in found["heads.u"]


def encoder(attention: type[nn.Module] = nn.MultiheadAttention) -> nn.Sequential:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    layer.self_attn = attention(16, 4, batch_first=True)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(16, 16), stack, nn.Linear(16, 16))


@pytest.mark.parametrize("example", [None, torch.randn(2, 5, 16)])
def test_an_encoder_of_torch_turns_binary_and_calls_its_layers(example) -> None:
    model = encoder()
    before = [*model.parameters()]
    assert binarize_(model, latent="tucker", example=example, dry_run=True).binary
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    found = reasons(binarize_(model, latent="tucker", example=example))
    projections = [f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")]
    assert {name for name, why in found.items() if not why} == {
        f"1.layers.{i}.{name}" for i in range(2) for name in (*projections, "linear1", "linear2")
    }
    x = torch.randn(2, 5, 16)
    learning = model(x)
    learning.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), model(x.clone().requires_grad_()))


@pytest.mark.parametrize("example", [None, torch.randn(2, 5, 16)])
def test_what_a_fused_path_bypasses_stays_real(example) -> None:
    class Own(nn.MultiheadAttention):
        pass

    found = reasons(binarize_(encoder(Own), latent="tucker", example=example, real_ends=False))
    assert "does not call it" in found["1.layers.0.linear1"]
    assert "does not call it" in found["1.layers.0.linear2"]
    assert "does not call it" in found["1.layers.1.self_attn.out_proj"]
    assert found["0"] == ""


def test_tied_weights_stay_real_and_a_layer_that_is_called_twice_stays_one() -> None:
    model = Tied()
    found = reasons(binarize_(model, latent="tucker", example=torch.randint(9, (2, 5)), real_ends=False))
    assert "tied to" in found["a"]
    assert "tied to" in found["b"]
    assert "tied to words.weight" in found["head"]
    assert found["twice"] == ""
    assert model.head.weight is model.words.weight


def test_a_layer_that_is_called_and_also_read_stays_real() -> None:
    class Half(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            x = self[1](self[0](x))
            return self[3](self[2](x) + nn.functional.linear(x, self[2].weight))

    model = Half(*(nn.Linear(8, 8) for _ in range(4)))
    assert reasons(binarize_(model, latent="svd", example=torch.randn(2, 8))) == {
        "0": "first layer",
        "1": "",
        "2": "other code reads its weight and does not call it",
        "3": "last layer",
    }


def test_a_weight_that_is_computed_stays_real() -> None:
    layers = [nn.Linear(8, 8) for _ in range(4)]
    layers[1] = nn.utils.parametrizations.weight_norm(layers[1])
    model = nn.Sequential(*layers)
    assert reasons(binarize_(model, latent="svd"))["1"] == "its weight is computed from other parameters"


def test_depthwise_layers_stay_real_unless_wanted() -> None:
    def model() -> nn.Sequential:
        deep = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        return nn.Sequential(nn.Conv2d(3, 32, 1), deep, nn.Conv2d(32, 32, 1), nn.Conv2d(32, 4, 1))

    assert reasons(binarize_(model()))["1"] == "depthwise: 2,304 bytes at 1 bit, 1,152 in float32"
    assert reasons(binarize_(model(), depthwise=True))["1"] == ""


def test_layers_that_see_one_sign_alone_are_named() -> None:
    def model(between: nn.Module) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 8, 3), between, nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3))

    x = torch.randn(4, 3, 12, 12)
    (warning,) = binarize_(model(nn.Sigmoid()), latent="svd", example=x).warnings
    assert warning.startswith("2: 100% of its input channels")
    assert not binarize_(model(nn.ReLU()), latent="svd", example=x).warnings


def test_a_latent_that_outweighs_its_layer_is_said_with_the_rank_that_would_do() -> None:
    model = nn.Sequential(nn.Linear(8, 400), nn.Linear(400, 100), nn.Linear(100, 8))
    (warning,) = binarize_(model, latent="tucker", dry_run=True).warnings
    assert "5.2 times the weight; rank=0.35" in warning
    assert not binarize_(model, latent="tucker", rank=0.35, dry_run=True).warnings


def test_a_huge_latent_is_warned_of_before_it_is_made(monkeypatch) -> None:
    monkeypatch.setattr("bitfactor.binarization.binarize._LARGE", 1000)
    model = nn.Sequential(nn.Linear(8, 400), nn.Linear(400, 100), nn.Linear(100, 8))
    with pytest.warns(UserWarning, match="times the weight"):
        binarize_(model, latent="tucker")
