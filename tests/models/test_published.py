"""Networks that others published: structure, and weights from their files."""

import collections

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import bitfactor
from bitfactor import models
from bitfactor.common.errors import InputError
from bitfactor.models.bnext import BNextBlock
from bitfactor.models.irnet import HardtanhResNet
from bitfactor.models.quicknet import QuickNet
from bitfactor.models.reactnet import BiRealNet, MobileBlock, ReActBlock, Stem
from bitfactor.nn import BinaryLayer, Shift
from bitfactor.runtime import instruction_sets

FREE = {"latent": "none", "scale": "analytic"}

# network, side: parameters, binary and real products
COSTS = {
    ("bireal18", 224): (11_689_512, 1_676_279_808, 137_793_536),
    ("bireal34", 224): (21_797_672, 3_525_967_872, 137_793_536),
    ("reactnet18", 224): (11_704_424, 1_676_279_808, 137_793_536),
    ("reactnet_a", 224): (29_343_592, 4_816_896_000, 11_862_016),
    ("irnet_resnet20", 32): (269_850, 40_108_032, 443_008),
    ("recu_resnet20", 32): (269_850, 40_108_032, 443_008),
    ("recu_resnet18", 32): (11_001_162, 547_356_672, 1_774_592),
    ("vgg_small", 32): (4_660_106, 603_979_776, 3_620_864),
    ("quicknet_small", 224): (12_655_672, 1_156_055_040, 15_941_120),
    ("quicknet", 224): (13_234_056, 1_849_688_064, 29_651_712),
    ("quicknet_large", 224): (23_342_216, 3_699_376_128, 29_651_712),
    ("bnext_tiny", 224): (30_853_276, 4_816_896_000, 13_344_512),
}


@pytest.mark.parametrize(("network", "side"), COSTS, ids=str)
def test_parameters_and_products(network, side):
    model = getattr(models, network)().eval()
    parameters = sum(p.numel() for p in model.parameters())
    bitfactor.binarize_(model, **FREE)
    summary = bitfactor.summary(model, (1, 3, side, side))
    assert (parameters, summary.binary_macs, summary.real_macs) == COSTS[network, side]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"blocks": (3, 3)}, "one per stage"),
        ({"widths": (16, 33, 64)}, "an even number more"),
        ({"widths": (64, 32, 16)}, "an even number more"),
        ({"blocks": (), "widths": ()}, "1 to"),
    ],
)
def test_sizes_that_do_not_fit(sizes, words):
    with pytest.raises(InputError, match=words):
        models.irnet_resnet20(**sizes)


@pytest.mark.parametrize("network", ["irnet_resnet20", "recu_resnet20", "recu_resnet18", "vgg_small"])
def test_weights_start_as_the_authors_draw_them(network):
    layers = [one for one in getattr(models, network)().modules() if isinstance(one, nn.Conv2d)]
    for layer in layers[2:]:
        fan = len(layer.weight) if network == "vgg_small" else layer.weight.shape[1]
        assert float(layer.weight.detach().std()) == pytest.approx((2 / (9 * fan)) ** 0.5, rel=0.1)


def test_a_wider_and_deeper_resnet20():
    model = models.irnet_resnet20(7, (2, 3, 4, 1), (8, 16, 24, 24)).eval()
    assert [len(model.get_submodule(f"layer{i}")) for i in (1, 2, 3, 4)] == [2, 3, 4, 1]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize(
    ("network", "operations", "real_bits"),
    [
        ("bireal18", 1.63e8, 32),  # table 4 of Bi-Real Net
        ("bireal34", 1.93e8, 32),
        ("reactnet_a", 0.87e8, 32),  # table 1 of ReActNet
        ("bnext_tiny", 0.77e8, 8),  # the authors' README, which counts its real layers at 8 bits
    ],
)
def test_operations_are_those_of_the_publication(network, operations, real_bits):
    """One operation is 64 binary products, or a real one, of 32 bits unless the publication says 8."""
    _, binary, real = COSTS[network, 224]
    assert binary / 64 + real * real_bits / (32 if real_bits == 32 else 64) == pytest.approx(
        operations, rel=0.01
    )


@pytest.mark.parametrize(
    ("network", "published"),
    [("quicknet_small", 12_655_688), ("quicknet", 13_234_088), ("quicknet_large", 23_342_248)],
)
def test_parameters_of_quicknet_are_larqs(network, published):
    """Its summary counts two of each channel of a BatchNorm, of one without scale and shift as well."""
    model = getattr(models, network)()
    plain = sum(2 * m.num_features for m in model.modules() if isinstance(m, nn.BatchNorm2d) and not m.affine)
    assert sum(p.numel() for p in model.parameters()) + plain == published


def mobile():
    body = [MobileBlock(32, 64, 1), MobileBlock(64, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(Stem(32), *body, nn.Linear(64, 3))


def bnext():
    body = [BNextBlock(32, 64, 1, multiplies=False), BNextBlock(64, 64, 2, multiplies=True)]
    return nn.Sequential(Stem(32), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))


SMALL = {
    "bireal": (lambda: BiRealNet((1, 1, 1, 1), 3), 64, []),
    "bireal, odd sides": (lambda: BiRealNet((1, 1, 1, 1), 3), 72, []),
    "react": (lambda: BiRealNet((1, 1, 1, 1), 3, ReActBlock), 64, []),
    "react a": (mobile, 32, []),
    "irnet": (lambda: HardtanhResNet(3, "stride"), 32, []),
    "recu, odd sides": (lambda: HardtanhResNet(3, "pool"), 30, []),
    "quicknet": (lambda: QuickNet((1, 1), (32, 64), 3), 32, []),
    "bnext": (bnext, 32, ["*.se.se.*"]),
}


def shaken(model):
    """Return the model with all that starts at 0 or 1 drawn, and statistics of its own."""
    for name, parameter in model.named_parameters():
        if "move" in name or "bn" in name or "norm" in name:
            nn.init.normal_(parameter, 0.3, 0.5)
    return model


@pytest.mark.parametrize("name", SMALL)
def test_the_file_gives_what_torch_gives(name, tmp_path):
    torch.manual_seed(0)
    make, side, real = SMALL[name]
    model = shaken(make()).train()
    bitfactor.binarize_(model, keep_real=real, padding_value=1 if name == "quicknet" else 0, **FREE)
    x = torch.randn(8, 3, side, side)
    model(x)
    bitfactor.export(model.eval(), tmp_path / "net.safetensors", x)
    with torch.no_grad():
        expected = model(x).numpy()
    for isa in instruction_sets():
        found = bitfactor.Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        *others, most = np.sort(np.abs(found - expected).max(1)) / np.abs(expected).max()
        assert max(others) < 1e-4
        assert most < 0.1  # where the first layer's rounding turns a sign


def test_a_shift_before_a_sign_is_its_threshold(tmp_path):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3),
        Shift(8),
        nn.Conv2d(8, 8, 3),
        Shift(8),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.Flatten(),
    ]
    model = shaken(nn.Sequential(*layers, nn.Linear(8 * 4, 3))).eval()
    for layer in layers:
        if isinstance(layer, Shift):
            nn.init.normal_(layer.bias)
    bitfactor.binarize_(model, **FREE)
    bitfactor.export(model, tmp_path / "net.safetensors", torch.randn(2, 3, 8, 8))
    nodes = bitfactor.format.load(tmp_path / "net.safetensors").graph.nodes
    operations = collections.Counter(node.op for node in nodes)
    assert (operations["threshold"], operations["affine"]) == (2, 0)


def published(model, rename=lambda name, tensor: (name, tensor), **more):
    tensors = dict(rename(name, tensor) for name, tensor in model.state_dict().items())
    return {"epoch": 3, "state_dict": {f"module.{name}": tensor for name, tensor in (tensors | more).items()}}


def flat(name, tensor):
    return (name + "s", tensor.reshape(-1, 1)) if name.endswith("binary_conv.weight") else (name, tensor)


def test_a_checkpoint_of_flat_weights_behind_module(tmp_path):
    first, second = BiRealNet((1, 1, 1, 1), 3), BiRealNet((1, 1, 1, 1), 3)
    torch.save(published(first, flat), tmp_path / "net.pth.tar")
    loaded = models.load_checkpoint(second, tmp_path / "net.pth.tar")
    assert (loaded.fresh, loaded.unused) == ((), ())
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def binary_output(layer, x):
    with torch.no_grad():
        return layer(x)


def loaded_layer(model, tmp_path, **more):
    torch.save(published(model, **more), tmp_path / "net.pt")
    fresh = type(model)(3, "pool")
    models.load_checkpoint(fresh, tmp_path / "net.pt")
    bitfactor.binarize_(fresh, **FREE)
    layer = fresh.layer1[0].conv1
    assert isinstance(layer, BinaryLayer)
    return layer


@pytest.mark.parametrize("learned", [False, True], ids=["IR-Net", "ReCU"])
def test_centred_weights_and_their_scale(learned, tmp_path):
    """IR-Net: the power of 2 nearest the mean magnitude; ReCU: a learned alpha, of any sign."""
    torch.manual_seed(0)
    model = HardtanhResNet(3, "pool")
    W = model.layer1[0].conv1.weight.detach().add_(0.3)
    centred = W - W.mean((1, 2, 3), keepdim=True)
    magnitude = (centred / centred.std((1, 2, 3), keepdim=True)).abs().mean((1, 2, 3))
    more = {}
    alpha = 2 ** torch.log2(magnitude).round()
    if learned:
        alpha = torch.randn(16)
        convolutions = [name for name, m in model.named_modules() if isinstance(m, nn.Conv2d)][1:]
        more = {f"{name}.alpha": alpha[:1].expand(64).view(64, 1, 1) for name in convolutions}
        more |= {
            f"{name}.alpha": torch.randn(len(model.get_submodule(name).weight), 1, 1) for name in convolutions
        }
        more |= {f"{name}.tau": torch.tensor(0.9) for name in convolutions}
        more["layer1.0.conv1.alpha"] = alpha.view(16, 1, 1)
    layer = loaded_layer(model, tmp_path, **more)
    x = torch.randn(2, 16, 6, 6)
    expected = nn.functional.conv2d(x.sign(), centred.sign(), padding=1) * alpha.view(-1, 1, 1)
    torch.testing.assert_close(binary_output(layer, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [1e-9, 0.5])
def test_bnext_is_binary_once_it_is_cold(temperature):
    model = models.bnext_tiny(3)
    tensors = dict(model.state_dict())
    tensors["feature.0.prelu.weight"] = torch.zeros(32)
    tensors["feature.1.FFN_1.activation1.weight"] = torch.zeros(32)
    tensors["feature.1.FFN_1.binary_conv.temperature"] = torch.tensor([temperature])
    if temperature < 0.1:
        models.load_weights(model, tensors)
        assert model.feature[1].FFN_1.binary_conv.weight.abs().mean((1, 2, 3)).allclose(torch.ones(32))
        return
    with pytest.raises(InputError, match=r"feature\.1\.FFN_1\.binary_conv\.temperature.*5\.0e-01"):
        models.load_weights(model, tensors)


def keras_names(model):
    """Yield (layer, weight, array) as Keras stores them; its order of layers is ours."""
    for i, module in enumerate(m for m in model.modules() if m._parameters or m._buffers):
        if isinstance(module, nn.Conv2d):
            deep = module.groups > 1
            order = (2, 3, 0, 1) if deep else (2, 3, 1, 0)
            kernel = "depthwise_kernel" if deep else "kernel"
            yield f"conv{i}", f"conv{i}/{kernel}:0", module.weight.detach().permute(order)
        elif isinstance(module, nn.Linear):
            yield f"dense{i}", f"dense{i}/kernel:0", module.weight.detach().T
            yield f"dense{i}", f"dense{i}/bias:0", module.bias.detach()
        else:
            for ours, theirs in [("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"),
                                 ("running_var", "moving_variance")]:  # fmt: skip
                if getattr(module, ours) is not None:
                    yield f"bn{i}", f"bn{i}/{theirs}:0", getattr(module, ours).detach()


def test_quicknet_reads_the_file_of_keras(tmp_path):
    torch.manual_seed(0)
    first, second = shaken(QuickNet((1, 1), (32, 64), 3)), QuickNet((1, 1), (32, 64), 3)
    with h5py.File(tmp_path / "net.h5", "w") as file:
        layers = collections.defaultdict(list)
        for layer, name, tensor in keras_names(first):
            file.create_dataset(f"{layer}/{name}", data=tensor.numpy())
            layers[layer].append(name)
        file.attrs["layer_names"] = [*map(str.encode, ["input", *layers])]
        file.create_group("input").attrs["weight_names"] = []
        for layer, names in layers.items():
            file[layer].attrs["weight_names"] = [*map(str.encode, names)]
    models.load_checkpoint(second, tmp_path / "net.h5")
    for model in (first, second):
        bitfactor.binarize_(model.eval(), latent="none", scale="none", padding_value=1)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(first(x), second(x))


class Opens:
    def __reduce__(self):
        return (open, ("never", "w"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"not a checkpoint", "tensors and plain values alone, .* found none, or a damaged one"),
        ({"state_dict": {}}, "a tensor for conv1.weight"),
        (BiRealNet((1, 1, 1, 1), 4).state_dict(), r"fc\.weight: expected shape \(3, 512\), found \(4, 512\)"),
        (BiRealNet((1, 2, 1, 1), 3).state_dict(), r"tensors that the model has, found layer2\.1"),
        (
            {"state_dict": Opens()},
            "tensors and plain values alone, .* found an object of _?io.open;",
        ),
    ],
    ids=["none", "damaged", "empty", "other head", "deeper", "code"],
)
def test_a_file_that_does_not_fit_is_one_error(content, message, tmp_path):
    path, model = tmp_path / "net.pt", BiRealNet((1, 1, 1, 1), 3)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InputError, match=message) as caught:
        models.load_checkpoint(model, path)
    assert str(path) in str(caught.value) + str(
        caught.value.__notes__ if hasattr(caught.value, "__notes__") else ""
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
