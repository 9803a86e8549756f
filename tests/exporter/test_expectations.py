"""What export is given and cannot use: one clear error, and no file. Models that users write: no error."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.exporter.parity import _Recorder
from bitfactor.format import InputSpec, Skeleton, load
from bitfactor.nn import BinaryConvTranspose2d
from bitfactor.runtime import Session
from bitfactor.targets.onnx import export_onnx


class Network(nn.Module):
    """Stem, BatchNorm, a binary convolution, BatchNorm, then what `ending` does, mean and head."""

    def __init__(self, ending=lambda network, y: y):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)
        self.conv, self.bn2 = (
            nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))),
            nn.BatchNorm2d(8),
        )
        self.fc, self.ending = nn.Linear(8, 4), ending
        binarize_(self.conv, Binarization("none", real_ends=False))
        self.eval()

    def forward(self, x):
        y = self.ending(self, self.bn2(self.conv(self.bn(self.stem(x)))))
        return self.fc(y.mean((2, 3))) if isinstance(y, torch.Tensor) and y.ndim == 4 else y


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
LARGE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def refused(tmp_path, message, model, example=X, **options):
    with pytest.raises(InputError, match=message) as raised:
        export(model, tmp_path / "net.safetensors", example, **options)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


SIZES = {
    "an operation more at the end": lambda n, y: F.relu(y) if y.shape[-1] > 8 else y,
    "outputs in another order": lambda n, y: (y + 1, y) if y.shape[-1] > 8 else (y, y + 1),
    "an output more": lambda n, y: (y, y) if y.shape[-1] > 8 else y,
    "another constant": lambda n, y: y * (1.0 / y.shape[-1]),
}


@pytest.mark.parametrize("ending", SIZES.values(), ids=SIZES)
def test_operations_that_depend_on_the_size(ending, tmp_path):
    refused(tmp_path, "expected the same operations for each size of the input", Network(ending), [X, LARGE])


SAMPLES = {
    "a constant": lambda n, y: y / y.shape[0],
    "a branch": lambda n, y: F.relu(y) if y.shape[0] == 2 else y,
}
FEWER = {
    "a slice": lambda n, y: y[:16],
    "a part": lambda n, y: y.split(4)[0],
    "a slice from behind": lambda n, y: y[-16:],
}


@pytest.mark.parametrize("ending", FEWER.values(), ids=FEWER)
def test_the_first_samples_of_more_than_the_example_has(ending, tmp_path):
    refused(
        tmp_path,
        r"expected operations on each sample by itself, found (16|4) samples at most",
        Network(ending),
    )


@pytest.mark.parametrize("example", [X, X[:1]], ids=["two samples", "one sample"])
@pytest.mark.parametrize("ending", SAMPLES.values(), ids=SAMPLES)
def test_operations_that_depend_on_the_number_of_samples(ending, example, tmp_path):
    refused(tmp_path, "expected the same operations for each number of samples", Network(ending), example)


def test_a_batch_dimension_that_is_lost_with_one_sample(tmp_path):
    model = Network(lambda n, y: n.fc(F.adaptive_avg_pool2d(y, 1).squeeze()))
    refused(tmp_path, "expected", model)


FORWARD = {
    r"expected a tensor as output, or several in a tuple, list or dict, found str": lambda n, y: {"a": "b"},
    r"expected a tensor as output, or several .*, found float": lambda n, y: (y, (y, 1.0)),
    r"expected outputs that depend on the input, found a constant": lambda n, y: (y, torch.ones(2, 3)),
    r"in a form that the file can hold, found": lambda n, y: F.linear(y.mean((2, 3)), y.mean((2, 3))),
    r"expected operators that give the same each time, found aten.randn": lambda n, y: (
        y + torch.randn(1, 8, 1, 1)
    ),
    r"expected a BatchNorm with running statistics": lambda n, y: F.batch_norm(y, None, None, training=True),
    r"Network.*: expected a model that torch.export can trace": lambda n, y: y if y.sum() > 0 else -y,
}


@pytest.mark.parametrize("message", FORWARD)
def test_what_a_forward_must_not_do(message, tmp_path):
    refused(tmp_path, message, Network(FORWARD[message]))


RAISED = {
    r"layer 'fc': .*RuntimeError: mat1 and mat2": lambda n, y: n.fc(y.flatten(1)),
    r"Network: .*AttributeError: 'int' object has no attribute 'expand_as'": lambda n, y: (2).expand_as(y),
    r"Network: .*RuntimeError: shape .* is invalid": lambda n, y: y.view(2, 7, -1),
    r"Network: .*ZeroDivisionError": lambda n, y: y / (1 // 0),
}


@pytest.mark.parametrize("message", RAISED)
def test_what_a_model_raises_is_told_with_layer_and_line(message, tmp_path):
    words = rf"{message}.*; .*see .*test_expectations\.py:\d+$"
    with pytest.raises(InputError, match=words) as raised:
        export(Network(RAISED[message]), tmp_path / "net.safetensors", X)
    assert "that runs on the example of shape (2, 3, 8, 8)" in str(raised.value)
    assert raised.value.__cause__ is not None
    assert not list(tmp_path.iterdir())


def test_a_trace_that_fails_prints_nothing_beside_its_error(tmp_path, capfd):
    capfd.readouterr()
    refused(tmp_path, "can trace", Network(lambda n, y: y if y.sum() > 0 else -y))
    assert capfd.readouterr().err == ""


def spoiled(name, value):
    model = Network()
    model.get_parameter(name).data.view(-1)[0] = value
    return model


@pytest.mark.parametrize("name", ["conv.1.latent.weight", "stem.weight", "bn2.bias"])
def test_numbers_that_are_not_finite(name, tmp_path):
    refused(tmp_path, f"Network, {name}: expected finite values", spoiled(name, torch.nan))


def test_another_type_of_number(tmp_path):
    refused(tmp_path, "stem.weight: expected float32, found torch.float64", Network().double())


EXAMPLES = {
    "expected a Tensor, .*ndarray": np.zeros((2, 3, 8, 8), np.float32)[None],
    "example_input: expected a batch, found none": [],
    r"found shape \(0, 3, 8, 8\)": X[:0],
    r"found shape \(\)": torch.tensor(1.0),
    "example_input: expected finite values, found NaN or infinity; look at how": X / 0,
    "example_input: expected float32": X.double(),
}


@pytest.mark.parametrize("message", EXAMPLES)
def test_examples_that_are_none(message, tmp_path):
    refused(tmp_path, message, Network(), EXAMPLES[message])


def test_an_example_that_the_model_does_not_take(tmp_path):
    with pytest.raises(InputError, match=r"layer '\w+': .*the example of shape \(2, 5, 8, 8\).*channels"):
        export(Network(), tmp_path / "net.safetensors", torch.zeros(2, 5, 8, 8))


def test_a_model_that_is_none(tmp_path):
    refused(tmp_path, "expected a Module, found <function", lambda x: x)


def test_outputs_without_binary_layers(tmp_path):
    model = Network()
    model.forward = lambda x: model.stem(x)
    refused(tmp_path, "expected outputs that binary layers take part in", model)


DESCRIPTIONS = {
    "labels: expected 4 names, one per class, found 1": {"labels": ["cat"]},
    r"labels.*: expected a sequence \(each a string\), found 'abcd'": {"labels": "abcd"},
    "skeleton: expected 4 keypoints, one per map, found 1": {"skeleton": Skeleton(("head",))},
    r"input_spec: expected images shaped \(3, 8, 8\)": {"input_spec": InputSpec((9, 9), (9, 9), (0,), (1,))},
    "provenance: expected texts": {"provenance": {"epochs": 3}},
}


@pytest.mark.parametrize("message", DESCRIPTIONS)
def test_descriptions_that_do_not_fit(message, tmp_path):
    refused(tmp_path, message, Network(), **DESCRIPTIONS[message])


class Excited(nn.Module):
    """Squeeze and excitation, spread by hand."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True))))).expand_as(x)


WRITTEN = {
    "no_grad": torch.no_grad()(lambda n, y: y * 2),
    "a full slice": lambda n, y: y[:, :, :8, :8] + 1,
    "one minus": lambda n, y: 1 - y,
    "dropout of channels": lambda n, y: F.dropout2d(y, 0.5, n.training),
    "hard swish": lambda n, y: F.hardswish(y) + F.hardsigmoid(y),
    "in place": lambda n, y: F.relu6(y.sub_(0.5).div_(2), inplace=True),
    "in place, smooth": lambda n, y: F.silu(F.hardswish(y, inplace=True), inplace=True).tanh_(),
    "hard sigmoid in place": lambda n, y: F.hardsigmoid(y, inplace=True),
    "tanh": lambda n, y: torch.tanh(3 * y),
    "gelu": lambda n, y: F.gelu(y, approximate="tanh"),
    "powers": lambda n, y: y**2 + y**3 - torch.square(y),
    "stack": lambda n, y: torch.stack([y, 2 * y], 2).flatten(1, 2)[:, 4:12],
    "stack at the end": lambda n, y: torch.stack([y, y.relu()], -1).flatten(3),
    "pixel shuffle": lambda n, y: torch.cat([F.pixel_shuffle(y, 2)] * 4, 1),
    "sum over all pixels": lambda n, y: y.sum((2, 3), keepdim=True) + y.sum((2, 3))[:, :, None, None],
}


class Together(nn.ModuleList):
    """Networks of one input, for one export instead of many."""

    def forward(self, x):
        return tuple(network(x) for network in self)


def test_what_people_write(tmp_path):
    model = Together(map(Network, WRITTEN.values())).eval()
    export(model, tmp_path / "net.safetensors", X)
    for n in (1, 5):
        x = torch.randn(n, 3, 8, 8)
        found = Session(tmp_path / "net.safetensors")(x.numpy())
        with torch.no_grad():
            for name, y, expected in zip(WRITTEN, found, model(x), strict=True):
                np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def _through_a_view(network, y):
    first, second = y.chunk(2, 1)
    return y, first.mul_(0) + second


def test_an_output_that_a_view_changes_later(tmp_path):
    file, x = tmp_path / "net.safetensors", torch.randn(2, 3, 8, 8)
    model = Network(_through_a_view)
    export(model, file, X)
    with torch.no_grad():
        outputs = model(x)
    for found, expected in zip(Session(file)(x.numpy()), outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_output_that_is_changed_behind_a_dropout_is_right_or_refused(tmp_path):
    def ending(network, y):
        dropped = F.dropout(y, 0.5, network.training)
        dropped += 1
        return y, dropped

    refused(tmp_path, "expected a trace that gives the model's outputs", Network(ending))


def test_an_output_in_half_precision_is_a_cast(tmp_path):
    model = Network(lambda n, y: n.fc(y.mean((2, 3))).half().float())
    export(model, tmp_path / "net.safetensors", X)
    found = Session(tmp_path / "net.safetensors")(X.numpy())
    np.testing.assert_allclose(found, model(X).detach(), atol=5e-3)


def test_parts_that_are_changed_in_place_stay_parts(tmp_path):
    def ending(network, y):
        first, second = y.chunk(2, 1)
        return (torch.relu_(first) + second).flatten(1)

    export(Network(ending), tmp_path / "net.safetensors", X)
    assert "concat" not in {node.op for node in load(tmp_path / "net.safetensors").graph.nodes}


def test_a_graph_whose_output_is_not_torchs_is_refused(tmp_path, monkeypatch):
    """As if a rule took a view for another: the values behind it are never compared."""
    outputs = _Recorder.outputs
    monkeypatch.setattr(_Recorder, "outputs", lambda self, call: [-y for y in outputs(self, call)])
    refused(tmp_path, "expected what torch returns in its place, found another value", Network())


def test_an_example_stays_as_it_is(tmp_path):
    """Also where the model changes its input."""

    class Shifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def forward(self, x):
            x -= 0.5
            return self.network(x)

    model, example, file = Shifting().eval(), X.clone(), tmp_path / "net.safetensors"
    export(model, file, example)
    assert torch.equal(example, X)
    np.testing.assert_allclose(Session(file)(X.numpy()), model(X.clone()).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("half", ["", "binary_weights", "binary_activations"])
def test_a_size_that_one_call_asks_for_is_not_the_nexts(half, tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = BinaryConvTranspose2d(3, 4, 3, stride=2, input_scale=True)
            if half:
                setattr(self.up, half, False)

        def forward(self, x):
            return self.up(x, output_size=(18, 18)), self.up(x)

    model = Twice().eval()
    export(model, tmp_path / "net.safetensors", X)
    found, expected = Session(tmp_path / "net.safetensors")(X.numpy()), model(X)
    assert [one.shape[2:] for one in found] == [(18, 18), (17, 17)]
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, z.detach(), rtol=1e-4, atol=1e-5)


def test_squeeze_and_excitation(tmp_path):
    model = Network(lambda n, y: n.excited(y))
    model.excited = Excited().eval()
    expect_torch(model, tmp_path / "net.safetensors")


def test_a_layer_under_two_names(tmp_path):
    model = Network(lambda n, y: n.again(y))
    model.again = nn.Sequential(model.conv[1]).eval()
    expect_torch(model, tmp_path / "net.safetensors")


def test_a_binary_layer_by_itself(tmp_path):
    layer = Network().conv[1]
    x = torch.randn(2, 8, 5, 5)
    export(layer, tmp_path / "net.safetensors", x)
    np.testing.assert_allclose(Session(tmp_path / "net.safetensors")(x.numpy()), layer(x).detach(), rtol=1e-6)


def expect_torch(model, path, examples=(X, X[:1])):
    for example in examples:
        export(model, path, example)
        for n in (1, 5):
            x = torch.randn(n, 3, 8, 8)
            with torch.no_grad():
                np.testing.assert_allclose(Session(path)(x.numpy()), model(x), rtol=1e-4, atol=1e-5)


def test_a_name_of_the_other_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"net\.onnx: expected a name in \.safetensors, found one in \.onnx"):
        export(Network(), tmp_path / "net.onnx", X)
    file = tmp_path / "net.safetensors"
    export(Network(), file, X)
    with pytest.raises(InputError, match=r"expected a name in \.onnx, found one in \.safetensors"):
        export_onnx(load(file), tmp_path / "other.safetensors")
    assert list(tmp_path.iterdir()) == [file]
