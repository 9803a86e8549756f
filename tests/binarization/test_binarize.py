"""Any model turns binary in place, keeps what it must, and says which layers stay as they are."""

import copy
import dataclasses
import json
import warnings
from itertools import product

import pytest
import torch
from tests.cases import slow_beside
from torch import nn

from bitfactor.binarization import Binarization, Plan, binarize_
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE, BankSlice, Tucker
from bitfactor.exporter import export
from bitfactor.models import ResNet, resnet18
from bitfactor.models.hourglass import Hourglass
from bitfactor.nn import BinaryConv1d, BinaryConv2d, BinaryLayer, BinaryLinear, LearnedMapScale, merge_


def small_resnet() -> ResNet:
    return ResNet((2, 2, 2), (4, 8, 16), num_classes=5, stem="cifar")


def one_dimensional() -> nn.Module:
    convs = [nn.Conv1d(8, 8, 3, padding=1) for _ in range(3)]
    return nn.Sequential(nn.Conv1d(3, 8, 5), *convs, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))


def mlp() -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16))]
    return nn.Sequential(nn.Linear(10, 16), *hidden, nn.Linear(16, 4))


def depthwise_separable() -> nn.Module:
    def block(i: int, o: int) -> list[nn.Module]:
        return [
            nn.Conv2d(i, i, 3, padding=1, groups=i),
            nn.BatchNorm2d(i),
            nn.Conv2d(i, o, 1),
            nn.BatchNorm2d(o),
        ]

    blocks = [*block(8, 16), *block(16, 16), *block(16, 16)]
    return nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))


MODELS = {
    "resnet": (small_resnet, (2, 3, 16, 16)),
    "hourglass": (lambda: Hourglass(keypoints=3, channels=8, depth=2), (2, 3, 32, 32)),
    "one-dimensional": (one_dimensional, (2, 3, 20)),
    "mlp": (mlp, (2, 10)),
    "depthwise": (depthwise_separable, (2, 3, 12, 12)),
}
LARGE = ("resnet", "hourglass")
CASES = list(product(MODELS, [*LAYERWISE, *JOINT]))


def binary_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, BinaryLayer)]


@pytest.mark.parametrize(
    ("name", "latent"),
    slow_beside([case for case in CASES if case[0] not in LARGE or case[1] in ("tucker", *JOINT)], CASES),
)
def test_any_model_turns_binary_and_trains(name, latent) -> None:
    make, shape = MODELS[name]
    model = make()
    plan = binarize_(model, Binarization(latent=latent))
    assert binary_names(model) == [layer.name for layer in plan.binary]
    assert len(plan.binary) >= 3
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    y = model(torch.randn(shape))
    sum(part.square().sum() for part in (y if isinstance(y, tuple) else (y,))).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == []
    optimizer.step()
    assert torch.isfinite(model.eval()(torch.randn(shape))).all()


def test_resnet18_as_it_is() -> None:
    model = resnet18(num_classes=10)
    plan = binarize_(model, Binarization(latent="none"))
    assert len(plan.binary) == 16
    assert {layer.name for layer in plan.layers} - set(binary_names(model)) == {
        "conv1", "layer2.0.downsample.1", "layer3.0.downsample.1", "layer4.0.downsample.1", "fc",
    }  # fmt: skip


def test_training_starts_at_the_model_s_own_weights() -> None:
    model = small_resnet()
    weights = {
        name: m.weight.detach().clone() for name, m in model.named_modules() if isinstance(m, nn.Conv2d)
    }
    binarize_(model)
    for name in binary_names(model):
        layer = model.get_submodule(name)
        torch.testing.assert_close(layer.latent(), weights[name], rtol=0, atol=1e-6)
        torch.testing.assert_close(layer.alpha(), weights[name].abs().flatten(1).mean(1))
        assert layer.name == name


def test_he_draws_afresh() -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 3))
    nn.init.zeros_(model[0].weight)
    binarize_(model, Binarization(start="he", real_ends=False, latent="tucker"))
    assert model[0].latent().std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_geometry_bias_and_mode_are_kept() -> None:
    conv = nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), dilation=2, groups=2)
    model = nn.Sequential(conv).eval()
    binarize_(model, Binarization(real_ends=False, padding_value=-1))
    binary = model[0]
    for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
        assert getattr(binary, name) == getattr(conv, name), name
    assert binary.bias is conv.bias
    assert binary.padding_value == -1
    assert not binary.training


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("layer2.0.conv1", {"layer2.0.conv1"}),
        ("layer2.0", {"layer2.0.conv1", "layer2.0.conv2"}),
        ("layer[23].1.conv?", {"layer2.1.conv1", "layer2.1.conv2", "layer3.1.conv1", "layer3.1.conv2"}),
        (r"layer\d\.1\.conv(2)", {"layer1.1.conv2", "layer2.1.conv2", "layer3.1.conv2"}),
    ],
)
def test_keep_real_takes_names_globs_and_regular_expressions(pattern, kept) -> None:
    model = small_resnet()
    every = set(binary_names(model)) or {p.name for p in binarize_(model, dry_run=True).binary}
    plan = binarize_(model, Binarization(latent="tucker"), keep_real=[pattern])
    assert every - {layer.name for layer in plan.binary} == kept
    assert {layer.name for layer in plan.layers if layer.reason == "named in keep_real"} >= kept


def test_a_name_that_matches_nothing_lists_near_ones() -> None:
    model = small_resnet()
    with pytest.raises(
        InputError, match=r"'layer2\.0\.convl', which matches none; did you mean layer2\.0\.conv"
    ):
        binarize_(model, keep_real=["layer2.0.convl"])
    assert binary_names(model) == []


def test_first_and_last_are_real_unless_told_otherwise() -> None:
    assert binary_names_of_mlp(real_ends=True) == ["1", "3", "5"]
    assert binary_names_of_mlp(real_ends=False) == ["0", "1", "3", "5", "7"]


def binary_names_of_mlp(*, real_ends: bool) -> list[str]:
    model = mlp()
    binarize_(model, Binarization(real_ends=real_ends))
    return binary_names(model)


def test_dry_run_changes_nothing() -> None:
    model = small_resnet()
    before = copy.deepcopy(model.state_dict())
    plan = binarize_(model, dry_run=True)
    assert isinstance(plan, Plan)
    assert plan.binary
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_nothing_to_binarize_is_an_error() -> None:
    with pytest.raises(InputError, match="a layer that can turn binary"):
        binarize_(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


def test_a_weight_that_is_not_finite_is_an_error_with_the_layer() -> None:
    model = mlp()
    with torch.no_grad():
        model[3].weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="layer 3: expected a weight of finite numbers"):
        binarize_(model)
    empty = mlp().to("meta")
    with pytest.raises(InputError, match=r"layer 1: .* found one on the meta device"):
        binarize_(empty)
    assert not binary_names(empty)


@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_weight_that_is_computed_is_an_error_with_the_layer(norm, tmp_path) -> None:
    x = torch.randn(2, 8)
    model = nn.Sequential(nn.Linear(8, 8), norm(nn.Linear(8, 8)), nn.Linear(8, 8), nn.Linear(8, 2))
    model(x)
    message = r"layer 1: expected a weight that is a parameter.*use torch\.nn\.utils\.parametrizations"
    with pytest.raises(InputError, match=message):
        binarize_(model, latent="none", example=x)
    binarize_(model, latent="none")
    with pytest.raises(InputError, match=message):
        export(model.eval(), tmp_path / "net.safetensors", x)


def test_a_rank_that_does_not_fit_names_the_layer() -> None:
    with pytest.raises(InputError) as caught:
        binarize_(mlp(), Binarization(latent="tucker", rank=(2, 2, 2)))
    assert caught.value.__notes__ == ["in layer 1"]


def test_layers_without_a_binary_form_stay_real() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Bilinear(4, 4, 4), nn.Linear(4, 2))
    plan = binarize_(model)
    assert [layer.reason for layer in plan.layers][2] == "has no binary form"


def test_transposed_convolutions_turn_binary() -> None:
    up = nn.ConvTranspose2d(8, 4, 3, 2, 1, 1, groups=2)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose1d(8, 8, 2), up, nn.Conv2d(4, 2, 1))
    weight, taps = up.weight, (4, 4, 3, 3)
    plan = binarize_(model, scale="analytic", groups=None, latent="tucker")
    assert [layer.binary for layer in plan.layers] == [False, True, True, False]
    assert plan.layers[2].packed_bytes == 8 * 4 * 9  # each of 4 filters has 4 channels in a word of 64
    assert model[2].output_padding == (1, 1)
    assert model[2].latent.shape == (8, 2, 3, 3)
    filters = weight.detach().reshape(2, 4, 2, 3, 3).transpose(1, 2).reshape(taps)
    torch.testing.assert_close(model[2].alpha(), filters.abs().mean((1, 2, 3)))


def test_a_module_under_two_names_is_replaced_under_both() -> None:
    conv = nn.Conv2d(4, 4, 3, padding=1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), conv, nn.ReLU(), conv, nn.Conv2d(4, 2, 1))
    binarize_(model)
    assert model[1] is model[3]
    assert isinstance(model[1], BinaryConv2d)


def test_kinds_of_layers() -> None:
    model = one_dimensional()
    binarize_(model, Binarization(real_ends=False))
    assert isinstance(model[1], BinaryConv1d)
    assert isinstance(model[6], BinaryLinear)


def test_identity_estimator_warns_of_factors_that_grow() -> None:
    with pytest.warns(UserWarning, match="grow without bound"):
        binarize_(mlp(), Binarization(weight_estimator="identity"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binarize_(mlp(), Binarization(weight_estimator="rms"))
        binarize_(mlp(), Binarization(latent="none", weight_estimator="identity"))


def test_scale_per_position_needs_and_takes_the_input_shape() -> None:
    choices = Binarization(latent="tucker", scale="learned_channel_x_axes")
    with pytest.raises(InputError, match="input_shape"):
        binarize_(small_resnet(), choices)
    model = small_resnet()
    binarize_(model, choices, input_shape=(1, 3, 16, 16))
    scale = model.layer2[0].conv2.scale
    assert isinstance(scale, LearnedMapScale)
    assert scale.gamma().shape == (8, 8, 8)
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 5)


def test_choices_survive_json() -> None:
    choices = Binarization(latent="svd", rank=(0.5, 4))
    assert Binarization(**json.loads(json.dumps(dataclasses.asdict(choices)))) == choices


class TestStages:
    """float -> binary activations -> binary weights and activations."""

    @pytest.mark.parametrize("latent", ["none", "tucker", "holistic", "shared"])
    def test_second_call_keeps_parameters_buffers_and_optimizer_state(self, latent) -> None:
        model = small_resnet()
        binarize_(model, Binarization(latent=latent, weights=False))
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        model(torch.randn(4, 3, 16, 16)).square().sum().backward()
        optimizer.step()
        parameters = {name: (p, p.detach().clone()) for name, p in model.named_parameters()}
        buffers = {name: b.clone() for name, b in model.named_buffers()}
        binarize_(model, Binarization(latent=latent))
        assert all(model.get_submodule(name).binary_weights for name in binary_names(model))
        now = dict(model.named_parameters())
        assert now.keys() == parameters.keys()
        for name, (parameter, value) in parameters.items():
            assert now[name] is parameter
            assert torch.equal(parameter, value)
            assert parameter in optimizer.state
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, buffers[name])

    def test_before_both_stages_it_is_the_float_network(self) -> None:
        model = small_resnet().eval()
        x = torch.randn(2, 3, 16, 16)
        expected = model(x)
        binarize_(model, Binarization(activations=False, weights=False, latent="none"))
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)

    def test_another_latent_starts_at_the_weight_reached(self) -> None:
        model = mlp()
        binarize_(model, Binarization(latent="none"))
        with torch.no_grad():
            model[1].latent.weight.normal_()
        W, alpha = model[1].latent().detach().clone(), model[1].scale.alpha
        binarize_(model, Binarization(latent="tucker"))
        assert isinstance(model[1].latent, Tucker)
        torch.testing.assert_close(model[1].latent(), W)
        assert model[1].scale.alpha is alpha

    def test_another_scale_keeps_the_bank(self) -> None:
        model = mlp()
        binarize_(model, Binarization(scale="analytic"))
        bank = model[1].latent.bank
        binarize_(model, Binarization(scale="learned"))
        assert model[1].latent.bank is bank is model[3].latent.bank
        torch.testing.assert_close(model[1].alpha(), model[1].latent().abs().mean(1))

    def test_estimators_and_padding_change_in_place(self) -> None:
        model = small_resnet()
        binarize_(model)
        layer = model.layer1[0].conv1
        choices = Binarization(activation_estimator="annealed", weight_estimator="rms", padding_value=1)
        binarize_(model, choices)
        assert model.layer1[0].conv1 is layer
        assert (layer.sign_input.estimator, layer.weight_estimator, layer.padding_value) == (
            "annealed",
            "rms",
            1,
        )

    def test_a_binary_layer_is_not_made_real_again(self) -> None:
        model = mlp()
        binarize_(model)
        with pytest.raises(InputError, match="a conversion is not undone"):
            binarize_(model, keep_real=["1"])

    def test_a_sequential_root_keeps_its_modules(self) -> None:
        model = mlp()
        names = [name for name, _ in model.named_children()]
        binarize_(model)
        assert [name for name, _ in model.named_children()] == names
        assert isinstance(model[1].latent, BankSlice)


def three() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3))


@pytest.mark.parametrize("assign", [True, False])
@pytest.mark.parametrize("latent", [*LAYERWISE, *JOINT])
def test_a_model_comes_back_from_the_meta_device(latent, assign) -> None:
    model, other = three(), three()
    binarize_(model, latent=latent)
    binarize_(other, latent=latent)
    other = other.to("meta") if assign else other.to("meta").to_empty(device="cpu")
    other.load_state_dict(model.state_dict(), assign=assign)
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("latent", ["none", "tucker", "holistic", "cosine", "window"])
def test_a_frozen_weight_stays_frozen(latent) -> None:
    model = three()
    model[1:3].requires_grad_(False)
    binarize_(model, latent=latent)
    assert not any(parameter.requires_grad for parameter in model[1].latent.parameters())
    merge_(model)
    assert not any(parameter.requires_grad for parameter in model[1].latent.parameters())


def test_what_was_merged_takes_a_latent_again() -> None:
    model = three()
    binarize_(model, latent="tucker")
    alpha, W = model[1].scale.alpha, merge_(model)[1].latent()
    binarize_(model, latent="tucker")
    assert isinstance(model[1].latent, Tucker)
    torch.testing.assert_close(model[1].latent(), W)
    assert model[1].scale.alpha is alpha


def test_a_second_time_changes_what_differs() -> None:
    model = three()
    binarize_(model, latent="tucker", scale="learned")
    core, alpha = model[1].latent.core, model[1].scale.alpha
    binarize_(model, latent="tucker", scale="learned", alpha_start="ones")
    assert model[1].latent.core is core
    assert model[1].scale.alpha is not alpha
    binarize_(model, latent="tucker", scale="learned", initialisation="identity")
    assert model[1].latent.core is not core


def test_hooks_that_would_be_lost_are_named() -> None:
    model = three()
    model[1].register_forward_hook(print)
    with pytest.warns(UserWarning, match="hooks of 1 are gone"):
        binarize_(model, latent="none")


def test_he_of_a_transposed_convolution_is_that_of_its_outputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(256, 4, 3))
    binarize_(model, Binarization(latent="none", start="he", real_ends=False))
    assert float(model[0].latent().std()) == pytest.approx((2 / (4 * 9)) ** 0.5, rel=0.1)


def test_a_linear_layer_over_a_sequence_has_no_scale_per_position():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3))
    binarize_(model, Binarization(latent="none", scale="learned_map"), input_shape=(2, 6, 4))
    layer, x = model[1], torch.ones(2, 6, 6)
    sums = nn.functional.linear(x, layer.binary_weight())
    torch.testing.assert_close(layer(x), sums * layer.latent().abs().mean(1))
    assert model(torch.randn(2, 5, 4)).shape == (2, 5, 3)


def test_an_encoder_layer_whose_attention_is_of_its_own():
    class Encoder(nn.TransformerEncoderLayer):
        def __init__(self):
            super().__init__(16, 2, 32, batch_first=True)
            self.self_attn = nn.Linear(16, 16)

        def forward(self, x):
            return self.norm2(x + self.linear2(self.linear1(self.norm1(x + self.self_attn(x)))))

    model = Encoder()
    binarize_(model, Binarization("none", real_ends=False), example=torch.randn(2, 5, 16))
    assert model(torch.randn(2, 5, 16)).shape == (2, 5, 16)


def test_a_frozen_layer_that_would_learn_in_a_group_is_warned_of() -> None:
    model = nn.Sequential(*[nn.Conv2d(4, 4, 3) for _ in range(5)])
    model[2].requires_grad_(False)
    with pytest.warns(UserWarning, match="^2: frozen, but in one decomposition with layers that learn"):
        binarize_(model, latent="holistic", groups="auto")


@pytest.mark.parametrize("transform", ["standardised", "clamped", "periodic"])
@pytest.mark.parametrize("latent", ["none", "tucker"])
def test_a_learned_scale_is_that_of_the_weight_before_its_transform(transform, latent) -> None:
    """So outputs stay as large as those of the float layer, which no BatchNorm may follow."""
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 16, 3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), layer, nn.Conv2d(16, 4, 1))
    expected = layer.weight.detach().abs().mean((1, 2, 3))
    binarize_(model, latent=latent, scale="learned", weight_transform=transform)
    torch.testing.assert_close(model[1].scale.alpha.detach(), expected)
    made = BinaryConv2d(8, 16, 3, latent=latent, scale="learned", weight_transform=transform)
    torch.testing.assert_close(made.scale.alpha.detach(), made.latent().detach().abs().mean((1, 2, 3)))
