"""A network that the file cannot hold as a whole: in parts, which together do what it does."""

import json
import zipfile

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter import ExportReport, Split, SplitReport, UnsupportedError, export


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erfinv(x.clamp(-0.5, 0.5))


class Net(nn.Module):
    """An operator, a binary layer and places of maxima that the file has not; a value that skips a part."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last, self.odd = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), Odd()
        self.a, self.c = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3)
        self.staged = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor, on: Tensor) -> dict[str, Tensor]:
        x = self.stem(x)
        y = self.staged(self.odd(self.a(x)) * on) + x
        places = torch.cummax(y, 3).indices
        return {"y": self.last(self.c(y + places.float())), "x": x}


def net() -> tuple[Net, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model, example = Net(), (torch.randn(3, 3, 6, 6), torch.rand(3, 8, 6, 6) > 0.5)
    bitfactor.binarize_(model, latent="none", example=example, keep_real=["stem"])
    model.staged.binary_weights = False
    return model.eval(), example


def test_inputs_of_another_shape_are_one_error(tmp_path) -> None:
    model, example = net()
    export(model, tmp_path / "net.safetensors", example, on_unsupported="split")
    whole, arrays = Split(tmp_path / "net.zip"), [x.numpy() for x in example]
    with pytest.raises(InputError, match=r"expected (inputs as the part takes them|shape .*), .*resize"):
        whole(arrays[0], arrays[1][:, :, :5])
    for wrong in (arrays[0][0], arrays[0][:, :, ::2]):
        with pytest.raises(InputError):
            whole(wrong, arrays[1])


def test_the_parts_together_do_what_the_model_does(tmp_path) -> None:
    model, example = net()
    report = export(model, tmp_path / "net.safetensors", example, on_unsupported="split")
    assert isinstance(report, SplitReport)
    assert report.max_difference < 1e-5
    assert [part.runs for part in report.parts] == ["bitfactor", "torch", "bitfactor", "torch", "bitfactor"]
    assert report.parts[0].binary_macs > 0
    found = {(one.layer, one.found) for one in report.rest}
    assert ("odd", "aten.erfinv.default") in found
    assert "odd, test_split.py" in str(report)
    assert [file.name for file in tmp_path.iterdir()] == ["net.zip"]
    whole, expected = Split(tmp_path / "net.zip"), model(*example)
    arrays = [x.numpy() for x in example]
    for y in (whole(*arrays), whole(on=arrays[1], x=arrays[0])):
        assert list(y) == ["y", "x"]
        for name in y:
            np.testing.assert_allclose(y[name], expected[name].detach().numpy(), atol=1e-5)
    none = whole(*(x[:0] for x in arrays))
    assert [y.shape for y in none.values()] == [(0, *y.shape[1:]) for y in expected.values()]
    with pytest.raises(InputError, match="on: expected bool"):
        whole(arrays[0], arrays[0])


@pytest.mark.parametrize(
    "given", [{"labels": ["a"]}, {"dynamic_size": True}, {"provenance": {"by": "me"}}], ids=str
)
def test_what_parts_have_none_of_is_refused(given, tmp_path) -> None:
    model, example = net()
    with pytest.raises(InputError, match=f"{next(iter(given))}: expected a model that one file holds"):
        export(model, tmp_path / "net.safetensors", example, on_unsupported="split", **given)
    assert list(tmp_path.iterdir()) == []


def test_what_fits_is_written_as_ever(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    bitfactor.binarize_(model, latent="none")
    report = export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 8), on_unsupported="split")
    assert isinstance(report, ExportReport)
    assert [file.name for file in tmp_path.iterdir()] == ["net.safetensors"]


def test_where_no_layer_is_left_the_error_is_the_same(tmp_path) -> None:
    class Loop(Net):
        def forward(self, x: Tensor, on: Tensor) -> dict[str, Tensor]:
            return super().forward(x if x.sum() > 0 else -x, on)

    model, (x, on) = Loop(), net()[1]
    bitfactor.binarize_(model, latent="none", example=(x, on))
    with pytest.raises(UnsupportedError, match=r"torch\.export can trace"):
        export(model.eval(), tmp_path / "net.safetensors", (x, on), on_unsupported="split")
    assert list(tmp_path.iterdir()) == []


def test_samples_that_are_not_kept_apart_are_found(tmp_path) -> None:
    class Mixed(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            x = self[1](self[0](x))
            return self[2](torch.cumsum(x, 0) * 3)

    model = Mixed(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    bitfactor.binarize_(model, latent="none")
    with pytest.raises(InputError, match="keep the samples of a batch apart"):
        export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 8), on_unsupported="split")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_network_in_parts(tmp_path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "nothing")
    (tmp_path / "text.zip").write_text("text")
    part = {"file": "a.pt2", "inputs": ["x"], "outputs": ["y"]}
    indices = (3, {}, {"parts": 3}, {"parts": [[]]}, {"parts": [{"name": "a"}]}, {"parts": [], "inputs": 4})
    damaged = [{"parts": [{**part, "runs": runs}]} for runs in ("bitfactor", "torch")]
    names = ["other.zip", "text.zip", "missing.zip"]
    for index in (*indices, *damaged):
        names.append(f"{len(names)}.zip")
        with zipfile.ZipFile(tmp_path / names[-1], "w") as archive:
            archive.writestr("parts.json", json.dumps(index))
            archive.writestr("a.pt2", "half of it")
    for name in names:
        with pytest.raises(InputError, match="expected a network in parts"):
            Split(tmp_path / name)


class Scalars(nn.Module):
    """One value a sample comes in; integers, truth and one value a sample go out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.odd, self.c = nn.Conv2d(3, 8, 1), Odd(), nn.Conv2d(8, 2, 1)
        self.b = bitfactor.nn.BinaryConv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        y = self.c(self.odd(self.b(self.a(x)) + t[:, None, None, None]))
        return y.argmax(1), y > 0, y.mean((1, 2, 3))


def test_the_parts_keep_types_and_shapes(tmp_path) -> None:
    torch.manual_seed(0)
    model, example = Scalars().eval(), (torch.randn(2, 3, 6, 6), torch.randn(2))
    export(model, tmp_path / "net.safetensors", example, on_unsupported="split")
    found = Split(tmp_path / "net.zip")(*(x.numpy() for x in example))
    for y, expected in zip(found, model(*example), strict=True):
        assert y.dtype == expected.detach().numpy().dtype
        np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
