"""Networks with several inputs and outputs: a file is called as the model is, and gives what it gives."""

from typing import NamedTuple

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import load
from bitfactor.format.drawing import svg
from bitfactor.runtime import Session, instruction_sets
from bitfactor.targets.c99 import export_c
from bitfactor.targets.onnx import export_onnx


class Towers(nn.Module):
    """Two stems, one body that is called three times, what is known beside the images, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(1, 16, 3, padding=1)
        self.body, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.known, self.last = nn.Linear(5, 16), nn.Conv2d(16, 4, 1)

    def forward(
        self,
        image: Tensor,
        depth: Tensor,
        *,
        known: Tensor | None = None,
        times: float = 1.0,
        **masks: Tensor,
    ) -> dict[str, object]:
        a, b = (self.norm(self.body(stem)) for stem in (self.left(image), self.right(depth)))
        y = self.body(a + b)
        if known is not None:
            y = y * self.known(known)[:, :, None, None]
        z = self.last(y)
        for mask in masks.values():
            z = z * mask
        return {"map": z * times, "rest": [z.relu(), (self.last(a), None)]}


def example() -> dict[str, object]:
    torch.manual_seed(0)
    return {
        "depth": torch.randn(3, 1, 8, 6),
        "image": torch.randn(3, 3, 8, 6),
        "known": torch.randn(3, 5),
        "times": 3.0,
        "on": torch.rand(3, 4, 8, 6) > 0.3,
        "level": torch.randint(5, (3, 4, 8, 6)),
    }


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    model = Towers()
    plan = bitfactor.binarize_(model, latent="tucker", example=example())
    assert [layer.name for layer in plan.binary] == ["body"]
    path = tmp_path_factory.mktemp("towers") / "net.safetensors"
    report = export(model.eval(), path, example())
    assert report.max_difference < 1e-5
    return model, path


def arrays() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in example().items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("isa", [*instruction_sets(), "reference"])
def test_by_name_and_in_order(towers, isa) -> None:
    model, path = towers
    session, given = Session(path, isa=isa), arrays()
    assert session.input_names == ("depth", "image", "known", "on", "level")
    session.verify()
    with torch.no_grad():
        expected = model(**example())
    found = session(given.pop("depth"), given.pop("image"), **given)
    assert list(found) == ["map", "rest"]
    assert isinstance(found["rest"], list)
    assert found["rest"][1][1] is None
    np.testing.assert_allclose(found["map"], expected["map"], atol=1e-5)
    np.testing.assert_allclose(found["rest"][0], expected["rest"][0], atol=1e-5)
    np.testing.assert_allclose(found["rest"][1][0], expected["rest"][1][0], atol=1e-5)


def test_what_is_wrong_with_a_call(towers) -> None:
    session, given = Session(towers[1]), arrays()
    for change, message in [
        (("known",), "the call: expected the inputs depth, .*; pass known"),
        (("knwon", given["known"]), "knwon: expected an input.*did you mean known"),
        (("known", given["known"][:2]), "known: expected 3 samples, as depth, found 2"),
        (("known", given["known"] * np.float32(np.nan)), "known: expected finite numbers, found nan"),
        (("known", given["known"][:, :4]), r"known: expected shape \(N, 5\)"),
        (("level", given["level"] * 0.5), "level: expected integers, found float64"),
        (("level", given["level"] + 2**30), "level: expected integers from"),
        (("on", given["level"]), "on: expected bool, found int64"),
        (("image", given["image"].astype(np.float64)), "image: expected float32"),
    ]:
        inputs = {**given}
        if len(change) == 1:
            del inputs[change[0]]
        else:
            inputs[change[0]] = change[1]
        with pytest.raises(InputError, match=message):
            session(**inputs)
    with pytest.raises(InputError, match="depth twice"):
        session(given["depth"], **given)


def test_its_profile_drawing_and_description(towers) -> None:
    session = Session(towers[1])
    assert session.profile(runs=2).layers
    found = bitfactor.inspect(towers[1])
    assert "depth" in str(found)
    assert found.to_dict()["types"] == ("float32", "float32", "float32", "bool", "int64")
    assert load(towers[1]).graph.others[0].name == "image"
    assert "depth" in svg(load(towers[1]), "towers")


def test_a_check_and_a_summary_take_the_same_example() -> None:
    assert bitfactor.check(Towers(), example()).obstacles == ()
    assert bitfactor.summary(Towers(), example()).real_macs > 0


def test_the_same_inputs_in_onnx(towers, tmp_path) -> None:
    report = export_onnx(load(towers[1]), tmp_path / "net.onnx")
    assert report.max_difference < 1e-5
    names = [value.name for value in onnx.load(tmp_path / "net.onnx").graph.input]
    assert names == ["depth", "image", "known", "on", "level"]


def test_what_takes_images_alone_says_so(towers, tmp_path) -> None:
    for call in (
        lambda: bitfactor.freeze(towers[1], tmp_path / "net.bfp"),
        lambda: bitfactor.bench(towers[1], runs=1),
        lambda: Session(towers[1]).predict("photo.jpg"),
        lambda: export_c(load(towers[1]), tmp_path / "net.c"),
    ):
        with pytest.raises(InputError, match=r"a network with one input, .* found depth \(float32\)"):
            call()
    assert list(tmp_path.iterdir()) == []


class Timed(nn.Module):
    """A time for each sample, as a diffusion network takes; a score of each, and what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.first, self.body = nn.Embedding(10, 8), nn.Linear(6, 8), nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor, step: Tensor, weight: Tensor) -> dict[str, Tensor]:
        y = self.last(self.body(self.body(self.first(x) + self.embed(step))) * weight[:, None])
        return {"score": y.sum(1) * weight, "kind": y.argmax(1), "sure": y > 0.1}


def test_one_value_a_sample(tmp_path) -> None:
    torch.manual_seed(0)
    model, path = Timed(), tmp_path / "net.safetensors"
    given = {"x": torch.randn(4, 6), "step": torch.tensor([1, 9, 0, 4]), "weight": torch.rand(4)}
    bitfactor.binarize_(model, latent="none", example=given)
    export(model.eval(), path, given)
    arrays, expected = {name: x.numpy() for name, x in given.items()}, model(**given)
    for isa in (*instruction_sets(), "reference"):
        session = Session(path, isa=isa)
        session.verify()
        found = session(**arrays)
        for name, y in expected.items():
            assert found[name].dtype == y.detach().numpy().dtype
            np.testing.assert_allclose(found[name], y.detach().numpy(), atol=1e-5)
    text = str(bitfactor.inspect(path))
    assert "step int64 shaped (N,)" in text
    assert "weight float32 shaped (N,)" in text
    with pytest.raises(InputError, match=r"step: expected shape \(N,\), found \(4, 1\)"):
        session(**arrays | {"step": arrays["step"][:, None]})
    with pytest.raises(InputError, match=r"step: expected indices of 0 to 9, found 10 at \[1, 0\]"):
        session(**arrays | {"step": arrays["step"] + 1})


class Divides(nn.Module):
    """The part of each value in the sum, and a softmax of it: 0 / 0 where all are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bitfactor.nn.BinaryLinear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) * x
        return (y / y.abs().sum(1, keepdim=True)).softmax(1)


def test_nan_through_a_softmax_is_an_error(tmp_path) -> None:
    torch.manual_seed(0)
    model, path = Divides().eval(), tmp_path / "net.safetensors"
    export(model, path, torch.randn(2, 4))
    x = np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32)
    for isa in (*instruction_sets(), "reference"):
        session = Session(path, isa=isa)
        assert np.isfinite(session(x[:1])).all()
        with pytest.raises(InputError, match=r"output 'softmax': expected numbers, found NaN at \[1, 0\]"):
            session(x)
    with pytest.raises(InputError, match=r"expected numbers in torch, .*, found NaN; look for a division"):
        export(model, path, torch.zeros(2, 4))


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


RETURNS = {
    "one in a tuple": lambda x: (x,),
    "a list": lambda x: [x, x.relu()],
    "a named tuple": lambda x: Pair(x, x + 1),
    "the same twice": lambda x: {"a": x, "b": x},
    "keys of several types": lambda x: {"0": x, 0: x.relu(), 1.5: x + 1, None: x + 2},
}


@pytest.mark.parametrize("name", RETURNS)
def test_what_is_returned(name, tmp_path) -> None:
    class Returns(nn.Sequential):
        def forward(self, x: Tensor) -> object:
            return RETURNS[name](super().forward(x))

    model = Returns(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    bitfactor.binarize_(model, latent="none", keep_real=["0", "2"])
    x = torch.randn(2, 8)
    export(model.eval(), tmp_path / "net.safetensors", x)
    found, expected = Session(tmp_path / "net.safetensors")(x.numpy()), model(x)
    assert isinstance(found, tuple if isinstance(expected, tuple) else type(expected))
    if isinstance(expected, dict):
        assert list(found) == list(expected)
    parts = zip(*((y.values() if isinstance(y, dict) else y) for y in (found, expected)), strict=True)
    for y, z in parts:
        np.testing.assert_allclose(y, z.detach().numpy(), atol=1e-5)


def test_a_key_that_the_file_cannot_hold(tmp_path) -> None:
    class Returns(nn.Sequential):
        def forward(self, x: Tensor) -> object:
            return {("a", 1): super().forward(x)}

    model = Returns(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    bitfactor.binarize_(model, latent="none", keep_real=["0", "2"])
    with pytest.raises(InputError, match=r"keys are strings or numbers, found the key \('a', 1\)"):
        export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 8))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((torch.randn(2, 8), torch.randn(3, 8)), "inputs of 2 and 3 samples"),
        ({"x": [torch.randn(2, 8)]}, "found list"),
        ({"x": 3.0}, "found no tensor"),
        (torch.randn(8), "found shape"),
    ],
)
def test_no_example(given, found, tmp_path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    bitfactor.binarize_(model, latent="none")
    with pytest.raises(InputError, match=found):
        export(model.eval(), tmp_path / "net.safetensors", given)


def test_more_inputs_than_the_model_takes() -> None:
    with pytest.raises(InputError, match="a list for several batches of one input"):
        bitfactor.nn.model.Call((torch.zeros(1, 3), torch.zeros(1, 3))).names(nn.Linear(3, 4))
