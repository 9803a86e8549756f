"""The ONNX file does what the model file does, operation by operation: signs and sums to the bit."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from tests.operations import CASES, floats, model_of, pointwise, sign_of
from torch import nn

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.engines import full_precision
from bitfactor.engines.with_torch import Baseline
from bitfactor.format import InputSpec, ModelFile, Node, Skeleton, load
from bitfactor.format.graph import run
from bitfactor.format.operations import OPERATIONS
from bitfactor.models import ResNet
from bitfactor.runtime.runner import runner
from bitfactor.targets.onnx import check, export_onnx, to_onnx
from bitfactor.targets.onnx import run as run_onnx
from bitfactor.targets.onnx.translate import QONNX_DOMAIN

FORMS = ("standard", "qonnx")
every_form = pytest.mark.parametrize("form", FORMS)


def expect_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_every_operation_has_a_case():
    stored = {op for op in OPERATIONS if OPERATIONS[op].in_files}
    assert {node.op for nodes, _ in CASES.values() for node in nodes} == stored


@every_form
@pytest.mark.parametrize("case", CASES)
def test_onnx_runtime_gives_what_the_reference_gives(case, form):
    nodes, shape = CASES[case]
    model = model_of(nodes, shape)
    proto = to_onnx(model, form)
    for batch in (1, 3):
        x = floats(batch, *shape, seed=batch)
        check(model.graph, proto, x)
        (found,), (expected,) = run_onnx(proto, x).values(), run(model.graph, x)
        if model.graph.values["y"].dtype == "float32":
            expect_close(found, expected)
        else:
            np.testing.assert_array_equal(found, expected)


OUTSIDE = np.array([[-100, -1, 0, 1e-40, 2.4, 89, 1e30]], np.float32)


@pytest.mark.parametrize(
    "node",
    [
        *pointwise("exp"),
        *pointwise("log"),
        *pointwise("sqrt"),
        *pointwise("embedding", table=floats(3, 5)),
        *pointwise("reduce_pixels", attributes={"how": "mean"}),
    ],
    ids=lambda node: node.op,
)
def test_numbers_out_of_range_and_vectors(node):
    graph = model_of([node], (7,)).graph
    (found,), (expected,) = run_onnx(to_onnx(ModelFile(graph, ())), OUTSIDE).values(), run(graph, OUTSIDE)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_baseline_in_torch_has_every_operation(case):
    nodes, shape = CASES[case]
    baseline, x = full_precision(model_of(nodes, shape).graph), floats(3, *shape, seed=3)
    (found,), (expected,) = Baseline(baseline)(torch.from_numpy(x)), run(baseline, x)
    expect_close(found.numpy(), expected)


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("quantised")])
def test_a_layer_in_8_bits_is_the_same_without_rounding_in_the_baseline(case):
    nodes, shape = CASES[case]
    graph, x = model_of(nodes, shape).graph, floats(3, *shape, seed=3) / 50
    (found,), (expected,) = run(full_precision(graph), x), run(graph, x)
    step = (1 / nodes[0].tensors["inverse"]).max()
    weight = full_precision(graph).nodes[0].tensors["weight"]
    most = abs(weight).reshape(len(weight), -1).sum(1).max() * step
    assert abs(found - expected).max() < most < abs(expected).max()


@every_form
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_ties_and_every_kind_of_threshold_keep_the_sign(form, data):
    """Thresholds at, next to and far from the numbers compared; none of them below the normal ones."""
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    x = np.array([*data.draw(st.tuples(*[numbers] * 4)), 0.0, -0.0], np.float32)
    with np.errstate(over="ignore"):
        near = [np.nextafter(x, np.float32(side)) for side in (-np.inf, np.inf)]
    points = st.sampled_from([*x, *near[0], *near[1], np.float32(-np.inf), np.float32(np.inf)])
    threshold = np.array([data.draw(points) for _ in x], np.float32)
    direction = np.array(
        data.draw(st.sampled_from([[1] * 6, [-1] * 6, [1, -1, 1, 1, -1, -1], [-1, 1, 1, -1, 1, -1]])), np.int8
    )
    node = Node("y", "threshold", ("x",), {}, {"threshold": threshold, "direction": direction})
    graph = model_of([node], (6,)).graph
    (found,) = run_onnx(to_onnx(ModelFile(graph, ()), form), x[None]).values()
    np.testing.assert_array_equal(found, run(graph, x[None])[0])


@every_form
def test_the_sign_of_zero_needs_no_number_below_the_normal_ones(form):
    """Some runtimes take them for zero: 0 minus the border would be 0, whose sign is +1 in QONNX."""
    tensors = {"threshold": np.zeros(2, np.float32), "direction": np.array([1, -1], np.int8)}
    proto = to_onnx(model_of([Node("y", "threshold", ("x",), {}, tensors)], (2,)), form)
    for tensor in proto.graph.initializer:
        sizes = np.abs(numpy_helper.to_array(tensor))
        assert ((sizes == 0) | (sizes >= np.finfo(np.float32).tiny)).all(), tensor.name


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A narrow ResNet-18 with statistics of all signs, exported."""
    torch.manual_seed(0)
    model = ResNet((2, 2, 2, 2), (16, 32, 48, 64), num_classes=10, stem="cifar")
    binarize_(model, Binarization(scale="learned"))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.normal_()
            module.bias.data.normal_()
    path = tmp_path_factory.mktemp("resnet") / "net.safetensors"
    spec = InputSpec((16, 16), (18, 18), (0.5,) * 3, (0.25,) * 3)
    known = {"labels": [f"<{i}>" for i in range(10)], "provenance": {"recipe": "cifar10"}}
    bitfactor.export(model.eval(), path, torch.randn(2, 3, 16, 16), input_spec=spec, **known)
    return load(path)


@every_form
def test_a_resnet(resnet, form, tmp_path):
    report = export_onnx(resnet, tmp_path / "net.onnx", form)
    assert (report.checked_inputs, report.same_class) == (2, 2)
    assert report.max_difference < 1e-5
    assert report.file_bytes == (tmp_path / "net.onnx").stat().st_size
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    for batch in (1, 4):
        x = floats(batch, 3, 16, 16)
        expect_close(session.run(None, {"input": x})[0], runner(resnet.graph, "scalar")(x)[0])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["labels"])[3] == "<3>"
    assert json.loads(metadata["input_spec"])["size"] == [16, 16]
    assert json.loads(metadata["provenance"]) == {"recipe": "cifar10"}
    assert "skeleton" not in metadata


def test_a_binary_weight_takes_one_bit_and_is_unpacked_once(resnet, tmp_path):
    report = export_onnx(resnet, tmp_path / "net.onnx")
    weights = sum(resnet.tensor_bytes().values())
    assert weights <= report.file_bytes < weights + 60_000
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    onnxruntime.InferenceSession(tmp_path / "net.onnx", options)
    folded = onnx.load(tmp_path / "folded.onnx").graph
    assert not {"BitwiseAnd", "Reshape", "Cast"} & {node.op_type for node in folded.node}


def test_the_same_model_gives_the_same_bytes(resnet, tmp_path):
    for name in ("a.onnx", "b.onnx"):
        export_onnx(resnet, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_the_skeleton_is_kept():
    skeleton = Skeleton(("left_hand", "right_hand"), ((0, 1),), ((0, 1),))
    proto = to_onnx(model_of(pointwise("relu"), (2,), skeleton=skeleton))
    (entry,) = proto.metadata_props
    assert (entry.key, json.loads(entry.value)["keypoints"]) == ("skeleton", ["left_hand", "right_hand"])


def test_names_of_values_that_look_like_those_of_constants():
    nodes = [
        Node("x:Greater", "threshold", ("x",), {}, dict(sign_of("x", 4).tensors)),
        Node("y:alpha", "scale", ("x",), {}, {"alpha": floats(4)}),
        Node("y", "scale", ("y:alpha",), {}, {"alpha": floats(4, seed=1)}),
    ]
    model = model_of(nodes, (4,), ("y", "x:Greater"))
    check(model.graph, to_onnx(model), floats(2, 4))


@every_form
def test_outputs_that_are_the_input_or_named_twice(form):
    model = model_of(pointwise("relu"), (3,), ("y", "x", "y"))
    x = floats(2, 3)
    found = list(run_onnx(to_onnx(model, form), x).values())
    for y, expected in zip(found, (x.clip(0), x, x.clip(0)), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_several_shapes_of_the_input(tmp_path):
    nodes, _ = CASES["binary_conv2d"]
    model = model_of(nodes, (6, 9, 10), other_shapes=((6, 12, 10),))
    export_onnx(model, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    assert session.get_inputs()[0].shape == ["N", 6, "9 or 12", 10]
    x = floats(2, 6, 12, 10)
    expected = run(model.graph_for((6, 12, 10)), x)[0]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def altered(proto, role, change):
    """The model with one of its constants changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    tensor = next(tensor for tensor in copy.graph.initializer if tensor.name.endswith(role))
    array = numpy_helper.to_array(tensor).copy()
    change(array)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return copy


def flip_one_bit(array):
    array[0, 0] ^= 1


def join_the_batch(array):
    array[:] = 1, 2, 10, -1


def grow(array):
    array.flat[0] *= np.float32(1.001)


def refused(nodes, shape, proto, path, monkeypatch):
    """Export what `proto` says in place of the nodes; return the error, with nothing written."""
    monkeypatch.setattr("bitfactor.targets.onnx.to_onnx", lambda model, form: proto)
    with pytest.raises(InputError) as error:
        export_onnx(model_of(nodes, shape), path / "net.onnx")
    assert list(path.iterdir()) == []
    return str(error.value)


@pytest.mark.parametrize(
    ("case", "role", "change", "found"),
    [
        ("binary_conv2d", "weight:bits", flip_one_bit, "the runtime's values exactly, found"),
        ("binary_linear", "weight:bits", flip_one_bit, "the runtime's values exactly, found"),
        ("conv2d", "weight", grow, "the runtime's values within 1e-05, found"),
        ("reshape", "shape", join_the_batch, "expected shape (2, 2, 10, 6), found (1, 2, 10, 12)"),
    ],
)
def test_what_differs_is_an_error_before_the_file_appears(case, role, change, found, tmp_path, monkeypatch):
    nodes, shape = CASES[case]
    proto = altered(to_onnx(model_of(nodes, shape)), role, change)
    message = refused(nodes, shape, proto, tmp_path, monkeypatch)
    assert message.startswith("node 'y'")
    assert found in message


def test_what_the_checker_or_the_runtime_does_not_take_is_an_error(tmp_path, monkeypatch):
    nodes, shape = CASES["threshold"]
    proto = to_onnx(model_of(nodes, shape))
    proto.graph.node[0].op_type = "Warp"
    assert "one that the ONNX checker takes, found" in refused(nodes, shape, proto, tmp_path, monkeypatch)
    proto = to_onnx(model_of(nodes, shape), "qonnx")
    del proto.functions[:]
    assert "one that ONNX Runtime takes, found" in refused(nodes, shape, proto, tmp_path, monkeypatch)


@pytest.fixture
def cleaned(resnet):
    """The QONNX form as that package reads and tidies it, with the batch dimension that it wants."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    proto = to_onnx(resnet, "qonnx")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return cleanup_model(ModelWrapper(proto))


def test_qonnx_runs_its_form(resnet, cleaned):
    from qonnx.core.onnx_exec import execute_onnx

    (found,) = execute_onnx(cleaned, {"global_in": resnet.golden_input}).values()
    (expected,) = run(resnet.graph, resnet.golden_input)
    expect_close(found, expected)


def test_qonnx_finds_one_bit_on_both_sides_of_every_binary_layer(resnet, cleaned):
    from qonnx.transformation.infer_datatypes import InferDataTypes

    typed = cleaned.transform(InferDataTypes())
    binary = [
        node
        for node in typed.graph.node
        if {str(typed.get_tensor_datatype(name)) for name in node.input} == {"BIPOLAR"}
    ]
    assert [node.op_type for node in binary] == ["Conv"] * 16
    assert len(binary) == sum(node.op == "binary_conv2d" for node in resnet.graph.nodes)


def test_the_standard_form_has_operators_of_onnx_alone(resnet):
    proto = to_onnx(resnet)
    assert [opset.domain for opset in proto.opset_import] == [""]
    assert {node.domain for node in proto.graph.node} == {""}
    assert {node.domain for node in to_onnx(resnet, "qonnx").graph.node} == {"", QONNX_DOMAIN}
