"""Networks that come as ONNX: our own, and the idioms of QONNX, Brevitas, FINN and larq."""

import cv2
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

import bitfactor
from bitfactor.api.convert import _known, convert
from bitfactor.common.errors import InputError
from bitfactor.models.reactnet import MobileBlock, Stem
from bitfactor.targets.onnx import export_onnx

QONNX = "qonnx.custom_op.general"
RNG = np.random.default_rng(0)


def signs(*shape):
    return np.where(RNG.standard_normal(shape) > 0, 1, -1).astype(np.float32)


def written(path, nodes, constants, shape=("N", 4, 6, 6), output=("N", "C"), opset=18):
    """Write nodes (op, inputs, output, attributes), whose input is x and whose output is y."""
    made = []
    for op, inputs, result, *attributes in nodes:
        domain = QONNX if op in ("BipolarQuant", "MultiThreshold", "Quant") else ""
        node = helper.make_node(op, inputs, [result], name=f"its {result}", domain=domain)
        node.attribute.extend(helper.make_attribute(*item) for item in dict(*attributes).items())
        made.append(node)
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(QONNX, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def network(tmp_path, idiom, weight, extra=(), **more):
    """Write x -> idiom -> a convolution 3x3 padded by 1 -> its mean over the map."""
    constants = {"w": weight, "zero": np.float32(0), "one": np.float32(1), "minus": np.float32(-1)}
    nodes = [*idiom, ("Conv", ["s", "w"], "c", {"pads": [1] * 4}), *extra]
    nodes += [("ReduceMean", ["c"], "y", {"axes": [2, 3], "keepdims": 0})]
    return written(tmp_path / "net.onnx", nodes, constants | more, opset=13)


T = RNG.standard_normal((4, 1)).astype(np.float32)
UP = torch.from_numpy(T[:, 0].reshape(4, 1, 1))
IDIOMS = {
    "Greater": ([("Greater", ["x", "zero"], "g"), ("Where", ["g", "one", "minus"], "s")],
                lambda x: plus(x > 0)),
    "LessOrEqual": ([("LessOrEqual", ["x", "zero"], "g"), ("Where", ["g", "minus", "one"], "s")],
                    lambda x: plus(x > 0)),
    "GreaterOrEqual": ([("GreaterOrEqual", ["x", "zero"], "g"), ("Where", ["g", "one", "minus"], "s")],
                       lambda x: plus(x >= 0)),
    "constant first": ([("Less", ["zero", "x"], "g"), ("Where", ["g", "one", "minus"], "s")],
                       lambda x: plus(x > 0)),
    "Sign": ([("Sign", ["x"], "s")], lambda x: plus(x > 0)),
    "Sign of ReLU": ([("Relu", ["x"], "r"), ("Sign", ["r"], "s")], lambda x: (x > 0).float()),
    "larq": ([("Sign", ["x"], "a"), ("Add", ["a", "tenth"], "b"), ("Sign", ["b"], "s")],
             lambda x: plus(x >= 0)),
    "BipolarQuant": ([("BipolarQuant", ["x", "half"], "s")], lambda x: plus(x >= 0) / 2),
    "shifted": ([("Sub", ["x", "half"], "d"), ("BipolarQuant", ["d", "one"], "s")], lambda x: plus(x >= 0.5)),
    "from behind": ([("Sub", ["half", "x"], "d"), ("BipolarQuant", ["d", "one"], "s")],
                    lambda x: plus(x <= 0.5)),
    "MultiThreshold": ([("MultiThreshold", ["x", "t"], "s", {"out_scale": 2.0, "out_bias": -1.0})],
                       lambda x: plus(x >= UP)),
    "0 and 1": ([("Greater", ["x", "zero"], "g"), ("Cast", ["g"], "s", {"to": 1})],
                lambda x: (x > 0).float()),
    "2 c - 1": ([("GreaterOrEqual", ["x", "zero"], "g"), ("Cast", ["g"], "f", {"to": 1}),
                 ("Mul", ["f", "two"], "m"), ("Sub", ["m", "one"], "s")], lambda x: plus(x >= 0)),
}  # fmt: skip
MORE = {"tenth": np.float32(0.1), "half": np.float32(0.5), "two": np.float32(2), "t": T}


def plus(condition):
    return torch.where(condition, 1.0, -1.0)


@pytest.mark.parametrize("scale", [1.0, 0.25], ids=["signs", "scaled"])
@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_of_a_sign_is_binary_and_exact(name, scale, tmp_path):
    idiom, meaning = IDIOMS[name]
    W = signs(8, 4, 3, 3) * np.float32(scale)
    report = convert(network(tmp_path, idiom, W, **MORE), tmp_path / "net.safetensors")
    assert (len(report.binary), report.real) == (1, ())
    x = torch.randn(5, 4, 6, 6)
    x[:, :, 2:4] = 0.0
    x[:, :, 0, 0] = 0.5
    expected = F.conv2d(meaning(x), torch.from_numpy(W), padding=1).mean((2, 3))
    found = bitfactor.Session(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "warned"), [("Sign", 1), ("larq", 0), ("Sign of ReLU", 0), ("Greater", 0)])
def test_a_zero_that_counts_as_minus_one_is_said(name, warned, tmp_path):
    path = network(tmp_path, IDIOMS[name][0], signs(8, 4, 3, 3), **MORE)
    warnings = convert(path, tmp_path / "net.safetensors").warnings
    assert len(warnings) == warned
    assert all("node 'its s' (Sign)" in warning for warning in warnings)


@pytest.mark.parametrize("padded_last", [False, True])
def test_signs_of_larq_in_channels_last_padded_with_ones(padded_last, tmp_path):
    """tf2onnx leaves the pads before or behind the Transpose, as it finds."""
    W = signs(8, 4, 3, 3)
    nodes = [
        ("Transpose", ["x"], "t", {"perm": [0, 3, 1, 2]}),
        ("GreaterOrEqual", ["t", "zero"], "g"),
        ("Where", ["g", "one", "minus"], "s"),
        ("Transpose", ["s"], "l", {"perm": [0, 2, 3, 1]}),
        *(
            [("Pad", ["l", "pads", "one"], "f"), ("Transpose", ["f"], "p", {"perm": [0, 3, 1, 2]})]
            if padded_last
            else [("Transpose", ["l"], "f", {"perm": [0, 3, 1, 2]}), ("Pad", ["f", "pads", "one"], "p")]
        ),
        ("Conv", ["p", "w"], "c", {"strides": [2, 2]}),
        ("MaxPool", ["c"], "m", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("GlobalAveragePool", ["m"], "a"),
        ("Squeeze", ["a", "sides"], "y"),
    ]
    constants = {"w": W, "zero": np.float32(0), "one": np.float32(1), "minus": np.float32(-1)}
    constants |= {
        "pads": np.array([0, 0, 0, 0, 0, 1, 1, 0] if padded_last else [0, 0, 0, 0, 0, 0, 1, 1]),
        "sides": np.array([2, 3]),
    }
    path = written(tmp_path / "net.onnx", nodes, constants, ("N", 6, 6, 4))
    report = convert(path, tmp_path / "net.safetensors")
    assert (len(report.binary), report.input_shape) == (1, (4, 6, 6))
    x = torch.randn(3, 4, 6, 6)
    padded = F.pad(plus(x >= 0), (0, 1, 0, 1), value=1.0)
    y = F.max_pool2d(F.conv2d(padded, torch.from_numpy(W), stride=2), 2, ceil_mode=True).mean((2, 3))
    np.testing.assert_allclose(
        bitfactor.Session(tmp_path / "net.safetensors")(x.numpy()), y.numpy(), rtol=1e-6
    )


@pytest.mark.filterwarnings("ignore")
def test_a_perceptron_of_qonnx_gives_what_qonnx_gives(tmp_path):
    """Weights behind a BipolarQuant and a Transpose, a BatchNorm of an old opset: as TFC_1W1A has them."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    nodes, constants, before = (
        [],
        {"one": np.float32(1), "two": np.float32(2), "shape": np.array([1, -1])},
        36,
    )
    nodes += [("Reshape", ["x", "shape"], "r"), ("Mul", ["r", "two"], "m"), ("Sub", ["m", "one"], "x0")]
    for i, width in enumerate([32, 24, 10]):
        constants[f"w{i}"] = signs(width, before)
        norms = {
            "g": RNG.standard_normal(width),
            "b": RNG.standard_normal(width),
            "m": RNG.standard_normal(width),
        }
        norms["v"] = RNG.uniform(4, 90, width)
        constants |= {f"{k}{i}": v.astype(np.float32) for k, v in norms.items()}
        nodes += [
            ("BipolarQuant", [f"x{i}", "one"], f"s{i}"),
            ("BipolarQuant", [f"w{i}", "one"], f"q{i}"),
            ("Transpose", [f"q{i}"], f"t{i}", {"perm": [1, 0]}),
            ("MatMul", [f"s{i}", f"t{i}"], f"p{i}"),
            ("BatchNormalization", [f"p{i}", *(f"{k}{i}" for k in "gbmv")], f"x{i + 1}" if i < 2 else "y"),
        ]
        before = width
    path = written(tmp_path / "net.onnx", nodes, constants, (1, 1, 6, 6), (1, 10), opset=9)
    report = convert(path, tmp_path / "net.safetensors")
    assert len(report.binary) == 3
    session, theirs = bitfactor.Session(tmp_path / "net.safetensors"), ModelWrapper(str(path))
    theirs = theirs.transform(InferShapes())
    for _ in range(10):
        x = RNG.random((1, 1, 6, 6), np.float32)
        np.testing.assert_allclose(session(x), execute_onnx(theirs, {"x": x})["y"], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    torch.manual_seed(0)
    layers = [Stem(32), MobileBlock(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3)]
    model = nn.Sequential(*layers)
    for name, parameter in model.named_parameters():
        if "move" in name or "bn" in name:
            nn.init.normal_(parameter, 0.2, 0.5)
    bitfactor.binarize_(model, latent="none")
    model(torch.randn(8, 3, 16, 16))
    path = tmp_path_factory.mktemp("own") / "net.safetensors"
    bitfactor.export(model.eval(), path, torch.randn(2, 3, 16, 16), labels=["a", "b", "c"])
    return path


@pytest.mark.parametrize("form", ["standard", "qonnx"])
def test_our_own_export_comes_back(form, own, tmp_path):
    first = bitfactor.format.load(own)
    export_onnx(first, tmp_path / "net.onnx", form)
    convert(tmp_path / "net.onnx", tmp_path / "net.safetensors")
    second = bitfactor.format.load(tmp_path / "net.safetensors")
    assert second.labels == first.labels
    assert [node.op for node in second.graph.nodes] == [node.op for node in first.graph.nodes]
    sizes = [
        sum(t.nbytes for node in file.graph.nodes for t in node.tensors.values()) for file in (first, second)
    ]
    assert sizes[0] == sizes[1]
    x = RNG.standard_normal((16, 3, 16, 16)).astype(np.float32)
    outputs = [bitfactor.Session(path)(x) for path in (own, tmp_path / "net.safetensors")]
    assert np.array_equal(*outputs)


def test_a_sum_of_zero_is_zero_where_onnx_rounds_it_to_either_side(tmp_path):
    """As Brevitas writes two layers without a BatchNorm between: weights and inputs of 0.1."""
    first, second = signs(16, 4, 3, 3), signs(8, 16, 3, 3)
    nodes = [
        ("BipolarQuant", ["x", "tenth"], "s"),
        ("Conv", ["s", "w"], "c"),
        ("BipolarQuant", ["c", "tenth"], "t"),
        ("Conv", ["t", "v"], "y"),
    ]
    constants = {"w": first * np.float32(0.1), "v": second * np.float32(0.1), "tenth": np.float32(0.1)}
    path = written(tmp_path / "net.onnx", nodes, constants, output=("N", 8, 2, 2))
    report = convert(path, tmp_path / "net.safetensors")
    assert len(report.binary) == 2
    assert any("rounding turns" in warning for warning in report.warnings)
    x = torch.randn(20, 4, 6, 6)
    sums = F.conv2d(plus(x >= 0), torch.from_numpy(first))
    assert (sums == 0).any()
    sums = F.conv2d(plus(sums >= 0), torch.from_numpy(second)).numpy()
    found = bitfactor.Session(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_array_equal(np.round(found * 100), sums)
    np.testing.assert_array_equal(found, sums * (np.float32(0.1) * np.float32(0.1)))


REAL = RNG.standard_normal((8, 4, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("rounding", [0.0, 1e-7], ids=["exact", "rounded"])
@pytest.mark.parametrize("scale", [1.0, 0.3], ids=["signs", "scaled"])
def test_binary_weights_of_real_inputs_are_bits_in_the_file(scale, rounding, tmp_path):
    W = signs(8, 4, 3, 3) * np.float32(scale) * (1 + rounding * REAL.clip(-1, 1))
    path = network(tmp_path, [("Relu", ["x"], "s")], W.astype(np.float32), **MORE)
    report = convert(path, tmp_path / "net.safetensors")
    assert [len(names) for names in (report.binary, report.half_binary, report.real)] == [0, 1, 0]
    model = bitfactor.format.load(tmp_path / "net.safetensors")
    assert model.tensor_bytes()["binary"] == W.size // 8
    x = torch.randn(5, 4, 6, 6)
    expected = F.conv2d(F.relu(x), torch.from_numpy(W.astype(np.float32)), padding=1).mean((2, 3))
    found = bitfactor.Session(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


GREATER = IDIOMS["Greater"][0]


def open_network(tmp_path, *extra, side="W", features=12):
    """Write a binary convolution for maps of open sizes, and what is made of its result."""
    constants = {"w": signs(8, 4, 3, 3), "v": RNG.standard_normal((8 * features, 3)).astype(np.float32)}
    constants |= {"zero": np.float32(0), "one": np.float32(1), "minus": np.float32(-1)}
    nodes = [*GREATER, ("Conv", ["s", "w"], "c", {"pads": [1] * 4}), *extra]
    return written(tmp_path / "net.onnx", nodes, constants, ("N", 4, None, side), opset=13)


POOL = ("MaxPool", ["c"], "m", {"kernel_shape": [2, 2], "strides": [2, 2]})
PERCEPTRON = [("Flatten", ["m"], "f"), ("MatMul", ["f", "v"], "y")]


@pytest.mark.parametrize("side", ["W", None, 12])
def test_sizes_that_are_open_stay_open(side, tmp_path):
    path = open_network(tmp_path, POOL, ("Relu", ["m"], "y"), side=side)
    report = convert(path, tmp_path / "net.safetensors")
    assert report.free_axes == (((0, 1, 1), (0, 2, 1)) if side != 12 else ((0, 1, 1),))
    session = bitfactor.Session(tmp_path / "net.safetensors")
    weight = torch.from_numpy(numpy_helper.to_array(onnx.load(path).graph.initializer[0]).copy())
    for height, width in ((32, 12), (6, 12), (61, 12), (7, 12 if side == 12 else 9)):
        x = torch.randn(2, 4, height, width)
        expected = F.relu(F.max_pool2d(F.conv2d(plus(x > 0), weight, padding=1), 2))
        np.testing.assert_array_equal(session(x.numpy()), expected.numpy())


def test_sizes_of_one_name_are_of_one_length(tmp_path):
    """Side by side, or on top of each other: what is added must be as large."""
    turned = ("Transpose", ["c"], "t", {"perm": [0, 1, 3, 2]})
    path = open_network(tmp_path, turned, ("Add", ["c", "t"], "y"))
    model = onnx.load(path)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = "side"
    onnx.save(model, path)
    assert convert(path, tmp_path / "net.safetensors").free_axes == ((0, 1, 1), (0, 2, 1))
    session = bitfactor.Session(tmp_path / "net.safetensors")
    assert session(np.zeros((1, 4, 9, 9), np.float32)).shape == (1, 8, 9, 9)
    with pytest.raises(InputError, match="size"):
        session(np.zeros((1, 4, 9, 8), np.float32))


def test_open_sizes_of_a_network_that_takes_one_are_said(tmp_path):
    path = open_network(tmp_path, POOL, *PERCEPTRON, features=14 * 14)
    report = convert(path, tmp_path / "net.safetensors")
    assert (report.input_shape, report.free_axes) == ((4, 28, 28), ())
    assert report.warnings == ("its sizes are open, but it is read at one alone: (4, 28, 28)",)


TERNARY = np.where(RNG.random((8, 4, 3, 3)) < 0.3, 0, signs(8, 4, 3, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: (p / "net.onnx").write_bytes(b"\x08nothing"), "an ONNX file"),
        (lambda p: None, "No such file"),
        (lambda p: network(p, GREATER, TERNARY, **MORE), r"node 'its c' \(Conv\): .*ternary, or of 2 bits"),
        (
            lambda p: network(p, [("Quant", ["x", "one", "zero", "two"], "s")], signs(8, 4, 3, 3), **MORE),
            r"node 'its s' \(Quant\): .*a quantiser of 2 bits",
        ),
        (
            lambda p: network(
                p, [("MultiThreshold", ["x", "t"], "s")], signs(8, 4, 3, 3), **(MORE | {"t": T.repeat(3, 1)})
            ),
            r"node 'its s' \(MultiThreshold\): .*a quantiser of 2 bits",
        ),
        (
            lambda p: network(
                p,
                [
                    *GREATER[:1],
                    ("Where", ["g", "one", "minus"], "a"),
                    ("Conv", ["a", "v"], "b"),
                    ("Sign", ["b"], "s"),
                ],
                signs(8, 4, 3, 3),
                **(MORE | {"v": signs(4, 4, 1, 1)}),
            ),
            r"node 'its s' \(Sign\): expected a sign of two values, found a third one, 0, in",
        ),
        (
            lambda p: network(p, GREATER, signs(8, 4, 3, 3), [("Det", ["c"], "d")], **MORE),
            r"node 'its d' \(Det\): expected an operator that is read",
        ),
        (
            lambda p: network(p, [("Relu", ["x"], "s")], REAL, **MORE),
            "none: each layer is real-valued",
        ),
        (lambda p: _of_opset(p, 99), r"opset 7 to \d+, found 99"),
        (
            lambda p: open_network(p, POOL, *PERCEPTRON, features=77),
            "sizes axis 3 of x, W: expected a network that takes one of the lengths 32, 64, .*update_model",
        ),
    ],
    ids=[
        "damaged",
        "none",
        "ternary",
        "2 bits",
        "thresholds",
        "sign of sums",
        "operator",
        "real",
        "opset",
        "open sizes",
    ],
)
def test_what_cannot_be_read_is_one_error_that_names_the_place(write, message, tmp_path):
    write(tmp_path)
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "net.onnx", tmp_path / "net.safetensors")
    assert not (tmp_path / "net.safetensors").exists()


def test_a_filter_of_three_values_that_is_a_blur_is_real(tmp_path):
    """Ternary weights have a negative for each value; what averages or resizes has none."""
    blur = np.zeros((4, 4, 3, 3), np.float32)
    blur[range(4), range(4)] = np.array([[1, 2, 1], [2, 2, 2], [1, 2, 1]], np.float32) / 14
    extra = [("Conv", ["c", "blur"], "b", {"pads": [1] * 4})]
    weight = np.where(RNG.random((4, 6, 3, 3)) > 0.5, 1, -1).astype(np.float32)
    nodes = [("Greater", ["x", "zero"], "g"), ("Where", ["g", "one", "minus"], "s")]
    nodes += [("Conv", ["s", "w"], "c", {"pads": [1] * 4}), *extra]
    nodes += [("ReduceMean", ["b"], "y", {"axes": [2, 3], "keepdims": 0})]
    constants = {"w": weight, "blur": blur, "zero": np.float32(0), "one": np.float32(1)}
    constants["minus"] = np.float32(-1)
    written(tmp_path / "net.onnx", nodes, constants, shape=("N", 6, 6, 6), opset=13)
    report = convert(tmp_path / "net.onnx", tmp_path / "net.safetensors")
    assert report.max_difference < 1e-4


def _of_opset(path, version):
    written(path / "net.onnx", [("Relu", ["x"], "y")], {})
    model = onnx.load(path / "net.onnx")
    model.opset_import[0].version = version
    onnx.save(model, path / "net.onnx")


def test_the_command(own, tmp_path, capsys):
    from bitfactor.cli import main

    export_onnx(bitfactor.format.load(own), tmp_path / "net.onnx")
    assert main(["convert", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.safetensors")]) == 0
    assert "3 layers binary" in capsys.readouterr().out
    assert main(["convert", str(own), "-o", str(tmp_path / "net.safetensors")]) == 2


@pytest.mark.parametrize(
    "words", [{"labels": "5"}, {"labels": '"cat"'}, {"input_spec": '"RGB"'}, {"skeleton": "[[1, 2]]"}]
)
def test_words_of_another_program_under_our_names_are_left_out(words):
    assert _known({"provenance": "{}", **words}) == {}


def test_names_of_other_classes_than_the_network_has_are_left_out(own, tmp_path):
    """The last layer of the ONNX file was exchanged, and its metadata was kept."""
    export_onnx(bitfactor.format.load(own), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    for entry in model.metadata_props:
        if entry.key == "labels":
            entry.value = '["a", "b"]'
    onnx.save(model, tmp_path / "net.onnx")
    report = convert(tmp_path / "net.onnx", tmp_path / "net.safetensors")
    assert "names 2 classes, and the network has 3: the names are left out" in str(report)
    assert bitfactor.format.load(tmp_path / "net.safetensors").labels == ()


def test_what_the_user_knows_of_the_network(own, tmp_path, capsys):
    from bitfactor.cli import main

    export_onnx(bitfactor.format.load(own), tmp_path / "net.onnx")
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((20, 30, 3), np.uint8))
    command = ["convert", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.safetensors")]
    words = ["--labels", "cat", "dog", "owl", "--mean", "0.5", "0.5", "0.5", "--std", "0.2", "0.2", "0.2"]
    assert main([*command, *words]) == 0
    (found,) = bitfactor.predict(tmp_path / "net.safetensors", tmp_path / "a.png").images
    assert {one.label for one in found.classes} == {"cat", "dog", "owl"}
    spec = bitfactor.format.load(tmp_path / "net.safetensors").input_spec
    assert (spec.size, spec.resize, spec.mean) == ((16, 16), (16, 16), (0.5, 0.5, 0.5))
    for wrong, said in (
        (["--labels", "cat"], "labels: expected 3 names, found 1"),
        (["--mean", "0.5"], "mean:"),
    ):
        capsys.readouterr()
        assert main([*command, *wrong]) == 2
        assert said in capsys.readouterr().err
