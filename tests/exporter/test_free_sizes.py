"""Files that take other sizes than the example's: each is planned at its first call, and kept."""

import re

import numpy as np
import pytest
import torch
from tests.cases import slow_beside
from tests.runtime.sets import FULL
from torch import Tensor, nn
from torch.nn import functional as F

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import load
from bitfactor.runtime import Session, instruction_sets


class UNet(nn.Module):
    """Halved twice, so that sizes are multiples of four."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(16, 2, 1)
        self.down, self.deep = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.norm = nn.Conv2d(32, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        a = self.stem(x)
        b = self.down(self.norm(F.max_pool2d(a, 2)))
        c = F.interpolate(self.deep(F.max_pool2d(b, 2)), scale_factor=2)
        y = F.interpolate(self.up(torch.cat([c, b], 1)), scale_factor=2)
        return self.last(torch.cat([y, a], 1))


def test_a_session_keeps_the_last_sizes_alone(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(bitfactor.nn.BinaryConv1d(8, 16, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten()).eval()
    export(model, tmp_path / "net.safetensors", torch.randn(2, 8, 20), dynamic_size=True)
    session = Session(tmp_path / "net.safetensors")
    for length in [*range(20, 60), 20]:
        x = torch.randn(1, 8, length)
        np.testing.assert_allclose(session(x.numpy()), model(x).detach().numpy(), atol=1e-4)
    assert len(session._plans) == 8


class Sequence(nn.Module):
    """Reshapes and slices whose numbers follow from the length, positions, and a mask as long."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(8, 32, 3, padding=1), nn.Conv1d(32, 4, 1)
        self.body, self.strided = nn.Conv1d(32, 32, 3, padding=1), nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.register_buffer("places", torch.randn(32, 40))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(x * mask)
        y = self.strided(self.body(x * self.places[:, : x.shape[2]]))
        z = torch.relu(y).transpose(1, 2).flatten(1).reshape(len(x), -1, 32).transpose(1, 2)
        return self.last(z)[:, :, 1:], z.mean(2)


def exported(model: nn.Module, example, path, **options):
    torch.manual_seed(0)
    bitfactor.binarize_(model, latent="none", example=example[-1] if isinstance(example, list) else example)
    return export(model.eval(), path, example, dynamic_size=True, **options)


def expect_same(session: Session, model: nn.Module, *given: Tensor) -> None:
    with torch.no_grad():
        expected = model(*given)
    found = session(*(x.numpy() for x in given))
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for y, z in pairs:
        np.testing.assert_allclose(y, z.numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Export a model for sizes beside the example's, once -> the model, its file, and the report."""
    found = {}

    def made(kind, example):
        if kind not in found:
            model, path = kind(), tmp_path_factory.mktemp("made") / "net.safetensors"
            found[kind] = model, path, exported(model, example, path)
        return found[kind]

    return made


@pytest.fixture(scope="module")
def unet(made):
    model, path, report = made(UNet, torch.randn(2, 3, 16, 24))
    assert report.max_difference < 1e-5
    return model, path


@pytest.mark.parametrize("isa", slow_beside((*FULL, "reference"), (*instruction_sets(), "reference")))
def test_any_height_and_width(unet, isa) -> None:
    model, path = unet
    session = Session(path, isa=isa)
    session.verify()
    for height, width in ((16, 24), (20, 44), (4, 8), (32, 32)):
        expect_same(session, model, torch.randn(2, 3, height, width))


def test_sizes_that_it_does_not_take(unet) -> None:
    session = Session(unet[1])
    expected = r"x: expected shape \(N, 3, 16 \+ 4 k, 24 \+ 4 k\), found"
    for shape in ((1, 3, 18, 24), (1, 4, 16, 24), (1, 3, 16)):
        with pytest.raises(InputError, match=expected):
            session(np.zeros(shape, np.float32))


def test_a_plan_is_kept(unet, monkeypatch) -> None:
    session, x = Session(unet[1]), np.zeros((1, 3, 8, 8), np.float32)
    session(x)
    monkeypatch.setattr("bitfactor.runtime.session.runner", None)
    session(x)


def test_its_description(unet) -> None:
    found = bitfactor.inspect(unet[1])
    assert "float32 shaped (N, 3, 16 + 4 k, 24 + 4 k)" in str(found)
    assert found.to_dict()["free_axes"] == ((0, 1, 4), (0, 2, 4))


def test_a_frozen_program_of_another_size(unet, tmp_path) -> None:
    assert bitfactor.freeze(unet[1], tmp_path / "net.bfp", size=(32, 8)).input_shape == (3, 32, 8)


def test_a_length_with_what_follows_from_it(tmp_path) -> None:
    model, path = Sequence(), tmp_path / "net.safetensors"
    examples = [(torch.randn(2, 8, n), torch.rand(2, 8, n) > 0.3) for n in (10, 30)]
    exported(model, examples, path)
    session = Session(path)
    session.verify()
    for n in (3, 9, 10, 17, 30):
        expect_same(session, model, torch.randn(2, 8, n), torch.rand(2, 8, n) > 0.3)
    assert load(path).free.axes == ((0, 1, 1), (1, 1, 1))
    for n, message in ((1, "x: expected a size that the network can take"), (31, "at most 30 along an axis")):
        with pytest.raises(InputError, match=message):
            session(np.zeros((1, 8, n), np.float32), np.ones((1, 8, n), bool))


def test_a_number_is_of_any_length(tmp_path) -> None:
    """Of a sequence, the exporter has one number for each place: the axis that maps have channels on."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.body, self.last = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.body(self.first(2 * x - 1)).mean(1))

    model, path = Shifted(), tmp_path / "net.safetensors"
    exported(model, torch.randn(2, 10, 8), path)
    for n in (3, 10, 40, 1000):
        expect_same(Session(path), model, torch.randn(2, n, 8))


class Encoder(nn.Module):
    """As torch has it, with an embedding of 30 positions."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.embed, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
        self.positions = nn.Parameter(torch.randn(1, 30, 32))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x) + self.positions[:, : x.shape[1]]))


def test_an_encoder_of_torch_at_any_length(made) -> None:
    model, path, report = made(Encoder, [torch.randn(2, n, 8) for n in (7, 30)])
    assert report.macs("binary") > 10 * report.macs("real")
    session = Session(path)
    for n in (3, 7, 18, 30):
        expect_same(session, model, torch.randn(2, n, 8))
    with pytest.raises(InputError, match="at most 30 along an axis"):
        session(np.zeros((1, 31, 8), np.float32))


class Patches(nn.Module):
    """Overlapping patches: of 64, 65 and 67 pixels are left 16, 17, 17, then 8, 9, 9; of 69 18, then 9."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 7, 4, 3), nn.Conv2d(8, 8, 3, 2, 1)
        self.norm, self.mixed, self.last = nn.LayerNorm(8), nn.Linear(8, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        tokens = self.mixed(self.norm(y.flatten(2).transpose(1, 2)))
        return self.last(tokens.transpose(1, 2).reshape(y.shape))


def test_a_map_of_tokens_at_any_size(tmp_path) -> None:
    model, path = Patches(), tmp_path / "net.safetensors"
    exported(model, torch.randn(2, 3, 64, 64), path)
    session = Session(path)
    for height, width in ((64, 64), (69, 69), (40, 33), (81, 127)):
        expect_same(session, model, torch.randn(2, 3, height, width))


class Flat(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4))


class Weighted(nn.Sequential):
    """A constant that is another at each size, no part of a larger one."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self[1](self[0](x))
        return self[2](x * torch.linspace(0, 1, x.shape[-1]))


class Branches(Weighted):
    """Other operations for large images."""

    def forward(self, x: Tensor) -> Tensor:
        y = self[1](self[0](x))
        return self[2](y.relu() if x.shape[-1] > 12 else y)


class Last(nn.Sequential):
    """The mean of the last 20 places: of shorter ones, of all."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, -20:].mean(1)


class First(Last):
    """The first 20 places."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.Sequential.forward(self, x)[:, : min(20, x.shape[1])]


class Small(Last):
    """Twice as much of a short one."""

    def forward(self, x: Tensor) -> Tensor:
        y = nn.Sequential.forward(self, x)
        return y * 2 if x.shape[1] < 10 else y


@pytest.mark.parametrize(
    ("model", "length", "shape"),
    [(Last, 10, "(1, 80, 8)"), (First, 10, "(1, 80, 8)"), (Small, 12, "(1, 1, 8)")],
)
def test_other_operations_far_from_the_example(model, length, shape, tmp_path) -> None:
    message = f"the same operations at every size that the model takes, also for {shape}, found others"
    with pytest.raises(InputError, match=re.escape(message)):
        exported(model(), torch.randn(2, length, 8), tmp_path / "net.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_lengths_that_the_file_refuses_are_none_that_it_gets_wrong(tmp_path) -> None:
    """Of 30 places the last 20 are taken; of fewer than 20 there are not so many."""
    model, path = Last(), tmp_path / "net.safetensors"
    exported(model, torch.randn(2, 30, 8), path)
    session = Session(path)
    for n in (20, 25, 90):
        expect_same(session, model, torch.randn(2, n, 8))
    with pytest.raises(InputError, match="expected a size that the network can take"):
        session(np.zeros((1, 19, 8), np.float32))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Flat, "dynamic_size: expected a model that takes inputs of other sizes"),
        (Weighted, r"\(scale\): expected the same operations at every size, found a alpha of other values"),
        (Branches, "the operations: expected the same operations at every size"),
    ],
)
def test_what_is_not_free(model, message, tmp_path) -> None:
    with pytest.raises(InputError, match=message):
        exported(model(), torch.randn(2, 3, 8, 8 if model is Flat else 12), tmp_path / "net.safetensors")
    assert list(tmp_path.iterdir()) == []


class Means(nn.Module):
    """Joined maps of two scales, and a mean over all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.body, self.head = (
            nn.BatchNorm2d(32),
            nn.Conv2d(32, 16, 3, padding=1),
            nn.Linear(16, 5),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = self.stem(x)
        b = F.interpolate(self.down(F.max_pool2d(a, 2)), scale_factor=2)
        y = self.body(self.norm(torch.cat([a, b], 1)))
        return self.head(y.mean((2, 3))), y


@pytest.mark.parametrize("form", ["standard", "qonnx"])
@pytest.mark.parametrize("model", [UNet, Means])
def test_onnx_takes_other_sizes_too(made, tmp_path, model, form) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from bitfactor.targets.onnx import export_onnx

    _, path, _ = made(model, torch.randn(2, 3, 16, 24))
    assert export_onnx(load(path), tmp_path / "net.onnx", form).one_size is None
    session, ours = onnxruntime.InferenceSession(tmp_path / "net.onnx"), Session(path)
    assert session.get_inputs()[0].shape == ["N", 3, "height", "width"]
    assert session.get_outputs()[-1].shape[2:] == ["height", "width"]
    for shape in ((1, 3, 16, 24), (2, 3, 40, 8), (1, 3, 20, 100)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        expected = ours(x) if isinstance(ours(x), tuple) else (ours(x),)
        for found, own in zip(session.run(None, {"input": x}), expected, strict=True):
            np.testing.assert_allclose(found, own, atol=1e-4)


@pytest.mark.parametrize("form", ["standard", "qonnx"])
@pytest.mark.parametrize("model", [UNet, Means])
def test_onnx_of_open_sizes_comes_back(made, tmp_path, model, form) -> None:
    from bitfactor.targets.onnx import export_onnx

    (_, path, _), back = made(model, torch.randn(2, 3, 16, 24)), tmp_path / "back.safetensors"
    export_onnx(load(path), tmp_path / "net.onnx", form)
    report = bitfactor.convert(tmp_path / "net.onnx", back)
    first, second = load(path), load(back)
    assert report.free_axes == second.free.axes == first.free.axes
    assert second.graph.input.shape == first.graph.input.shape
    for shape in ((1, 3, 16, 24), (2, 3, 40, 8), (1, 3, 4, 100)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        outputs = [Session(file)(x) for file in (path, back)]
        pairs = zip(*outputs, strict=True) if isinstance(outputs[0], tuple) else [outputs]
        for found, expected in pairs:
            np.testing.assert_array_equal(found, expected)


def test_onnx_of_one_size_says_so(made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    from bitfactor.targets.onnx import export_onnx

    _, path, _ = made(Encoder, [torch.randn(2, n, 8) for n in (7, 30)])
    report = export_onnx(load(path), tmp_path / "net.onnx")
    assert "the ONNX file takes input (N, 7, 8) alone, where the model file takes other sizes" in str(report)
    assert "is written for one size" in report.to_dict()["one_size"]


def test_integers_run_at_other_sizes_where_a_length_is_that_of_an_output(tmp_path):
    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.conv = (
                nn.Conv2d(3, 8, 3, padding=1),
                bitfactor.nn.BinaryConv2d(8, 8, 3, padding=1),
            )
            self.bn = nn.BatchNorm2d(8)

        def forward(self, x):
            y = self.bn(self.conv(self.stem(x)))
            return y, y[:, :, : y.shape[2] // 2]

    torch.manual_seed(0)
    model, file = Halved().eval(), tmp_path / "net.safetensors"
    more = {"dynamic_size": True, "calibration": torch.randn(64, 3, 8, 12)}
    assert export(model, file, torch.randn(2, 3, 8, 12), **more).integers is not None
    x = torch.randn(2, 3, 16, 12)
    with torch.no_grad():
        outputs = model(x)
    for found, expected in zip(Session(file, precision="integer")(x.numpy()), outputs, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected.numpy()).mean() < 0.05 * float(expected.abs().max())
