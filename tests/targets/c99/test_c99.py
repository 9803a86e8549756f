"""A network as C gives what the runtime gives: signs and sums exactly, real numbers but for rounding."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.operations import CASES, model_of
from tests.targets.c99.conftest import STRICT

from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec, Node, load, pack_signs
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input
from bitfactor.format.signature import Signature
from bitfactor.pose.images import normalise
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c

GOLDEN = Path(__file__).parents[2] / "format" / "golden" / "version1.safetensors"


NOT_IN_C = ("exp", "log", "sqrt", "reciprocal", "gelu", "matmul", "embedding", "resize_bilinear")
NOT_IN_C += ("join with a constant",)
OVER_MAPS_IN_C = ("upsample_nearest, over maps", "global_avg_pool, over maps")


def is_in_c(case):
    return not case.startswith(NOT_IN_C) and ("over maps" not in case or case in OVER_MAPS_IN_C)


@pytest.mark.parametrize("case", [case for case in CASES if not is_in_c(case)])
def test_an_operation_that_c_does_not_have(compiled, case):
    with pytest.raises(InputError, match="expected operations that the C form has, found"):
        compiled(model_of(*CASES[case]))


@pytest.mark.parametrize("case", filter(is_in_c, CASES))
def test_each_operation(compiled, case):
    model = model_of(*CASES[case])
    x = np.concatenate([golden_input(model.graph.input.shape) * np.float32(k) for k in (1, -1, 0.5)])
    (expected,) = run(model.graph, x)
    found = compiled(model)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_operations_of_version_1(compiled):
    model = load(GOLDEN)
    x = np.concatenate([golden_input(model.graph.input.shape) * np.float32(k) for k in (1, -1, 0.5)])
    for found, expected in zip(compiled(model)(x), run(model.graph, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("channels", "groups", "outputs", "window", "pad"),
    [
        (1, 1, 1, {}, 0),
        (33, 1, 5, {}, 0),
        (64, 1, 40, {"stride": (2, 1)}, 1),
        (31, 1, 3, {"dilation": (2, 3), "padding": (2, 1, 0, 3)}, -1),
        (96, 3, 6, {"padding": (0, 4, 4, 0)}, 0),
        (40, 2, 8, {"stride": (2, 2)}, 1),
        (200, 4, 4, {"dilation": (1, 2)}, 0),
        (32, 32, 32, {}, -1),
    ],
)
@pytest.mark.parametrize("ends_in_signs", [False, True])
def test_binary_layers_are_exact(compiled, channels, groups, outputs, window, pad, ends_in_signs):
    """Thresholds are drawn on integers and between them, both ways, and some are infinite."""
    rng = np.random.default_rng(channels)
    plain = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    kernel = (3, 2)

    def signs(*shape):
        return rng.choice(np.array([-1, 1], np.int8), shape)

    nodes = [
        Node(
            "bits",
            "threshold",
            ("x",),
            {},
            {"threshold": np.zeros(channels, np.float32), "direction": signs(channels)},
        ),
        Node(
            "sums",
            "binary_conv2d",
            ("bits",),
            {**plain, **window, "groups": groups, "pad_value": pad},
            {"weight": pack_signs(signs(outputs, *kernel, channels // groups))},
        ),
    ]
    if ends_in_signs:
        threshold = rng.integers(-20, 20, outputs).astype(np.float32) / 2
        threshold[::7], threshold[3::7] = np.inf, -np.inf
        tensors = {"threshold": threshold, "direction": signs(outputs)}
        nodes.append(Node("signs", "threshold", ("sums",), {}, tensors))
    model = model_of(nodes, (channels, 7, 6))
    x = rng.standard_normal((3, channels, 7, 6), np.float32)
    np.testing.assert_array_equal(compiled(model)(x), run(model.graph, x)[0])


def test_between_binary_layers_there_are_integers_alone(tmp_path):
    source = Path(export_c(load(file_of("digits")), tmp_path / "net.c").source).read_text()
    start = source.index("run_layer1_0_conv1(void)\n{")
    body = source[start : source.index("\n}", start)]
    calls = [line.split("(")[0].strip() for line in body.splitlines() if "(row" in line or ", row," in line]
    assert calls == ["binary_conv", "signs_of_sums"]


def test_digits_are_classified_as_by_the_session(compiled):
    from sklearn.datasets import load_digits

    session = Session(file_of("digits"), threads=1)
    pixels = (load_digits().images[-360:] * 255 / 16).astype(np.uint8)
    expected = session(np.stack([normalise(one, session.model.input_spec) for one in pixels]))
    found = compiled(session.model)(pixels)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    assert np.isclose(found, expected, atol=1e-4).all(1).sum() >= 358  # rounding may turn a sign next to zero


def test_photos_are_classified_as_by_the_session(compiled):
    session = Session(file_of("cifar10-resnet18"), threads=1)
    coarse = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), np.uint8)
    pixels = coarse.repeat(8, 1).repeat(8, 2)
    expected = session(np.stack([normalise(one, session.model.input_spec) for one in pixels]))
    found = compiled(session.model)(pixels)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    assert np.isclose(found, expected, atol=1e-4).all(1).sum() >= 38  # rounding may turn a sign next to zero


def test_it_needs_no_library_and_the_arena_is_as_stated(tmp_path):
    report = export_c(load(GOLDEN), tmp_path / "net.c")
    assert f"#define NET_ARENA_BYTES {report.arena_bytes}\n" in Path(report.header).read_text()
    compiled = tmp_path / "net.o"
    subprocess.run(["gcc", *STRICT, "-O2", "-fno-pie", "-c", report.source, "-o", str(compiled)], check=True)
    listed = subprocess.run(["nm", "-S", str(compiled)], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in listed.splitlines()]
    assert {one[-1] for one in symbols if one[-2] == "U"} <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}
    assert {one[-1]: int(one[1], 16) for one in symbols if one[-2] in "bBdD"} == {"arena": report.arena_bytes}


def test_the_header_is_for_cplusplus_too(tmp_path):
    export_c(load(GOLDEN), tmp_path / "my-net.c")
    (tmp_path / "main.cpp").write_text(
        '#include "my-net.h"\nauto one = my_net_run;\nauto other = my_net_run_image;\n'
    )
    subprocess.run(["g++", "-Wall", "-Werror", "-fsyntax-only", str(tmp_path / "main.cpp")], check=True)


@pytest.mark.parametrize("name", ["net.cpp", "net", "1net.c", "ü.c", "run.c", "run-net.c"])
def test_a_name_that_c_cannot_take_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="expected a name"):
        export_c(load(file_of("digits")), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_where_the_header_cannot_be_written(tmp_path):
    (tmp_path / "net.h").mkdir()
    with pytest.raises(InputError):
        export_c(load(file_of("digits")), tmp_path / "net.c")
    assert [one.name for one in tmp_path.iterdir()] == ["net.h"]


def test_labels_are_text_of_any_kind(tmp_path):
    long = "a name of many words, which would not fit on the rest of a line"
    labels = ("", 'a"b', "\\n", "??/", "ü", "%s", "\t", long, f"{long}-{long}", "'/*")
    report = export_c(replace(load(file_of("digits")), labels=labels), tmp_path / "net.c")
    printing = "for (int i = 0; i < 10; i++) puts(net_labels[i]);"
    main = f'#include <stdio.h>\n#include "net.h"\nint main(void) {{ {printing} }}\n'
    (tmp_path / "main.c").write_text(main)
    command = ["gcc", *STRICT, report.source, str(tmp_path / "main.c"), "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True)
    printed = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout
    assert printed == "".join(f"{label}\n" for label in labels)


@pytest.mark.parametrize("precision", ["highest", "integer"])
def test_names_of_a_file_are_no_code(precision, tmp_path):
    model = load(file_of("digits"))
    change = "*/ int injected(void) { return 42; } /*"
    nodes = tuple(
        replace(node, name=node.name + change, inputs=tuple(f"{one}{change}" for one in node.inputs))
        for node in model.graph.nodes
    )
    entry, outputs = model.graph.input, tuple(f"{name}{change}" for name in model.graph.outputs)
    first = replace(entry, name=entry.name + change)
    ranges = {f"{name}{change}": value for name, value in model.ranges.items()}
    graph = replace(model.graph, input=first, nodes=nodes, outputs=outputs)
    renamed = replace(model, graph=graph, ranges=ranges)
    report = export_c(renamed, tmp_path / "net.c", precision=precision)
    subprocess.run(["gcc", *STRICT, "-c", report.source, "-o", str(tmp_path / "net.o")], check=True)
    symbols = subprocess.run(
        ["nm", str(tmp_path / "net.o")], check=True, capture_output=True, text=True
    ).stdout
    assert " injected" not in symbols


def named(outputs):
    """The golden network with outputs as a network of one's own may return them."""
    model = load(GOLDEN)
    return replace(model, signature=Signature(("float32",), outputs))


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        ({"logits": 0, "maps": 1}, ["output_logits", "output_maps"]),
        ({"a b": 0, "more": [1]}, ["output_a_b", "output_more_0"]),
        ({"x": 0, "X": 1}, ["output", "output_2"]),  # macros would be the same
        ((0, 1), ["output", "output_2"]),
    ],
)
def test_outputs_keep_their_names(tmp_path, outputs, names):
    model = named(outputs)
    graph = replace(model.graph, outputs=model.graph.outputs[:2])
    model = replace(model, graph=graph, golden_outputs=model.golden_outputs[:2])
    report = export_c(model, tmp_path / "net.c")
    header = Path(report.header).read_text()
    assert f"void net_run(const float *input, float *{names[0]}, float *{names[1]});" in header
    assert f"#define NET_{names[1].upper()}_SIZE " in header
    subprocess.run(["gcc", *STRICT, "-fsyntax-only", report.source], check=True)


def test_the_header_says_what_pixels_are(tmp_path):
    spec = InputSpec((32, 32), (37, 37), (0.5,) * 3, (0.25,) * 3, keep_aspect=True)
    model = replace(load(file_of("cifar10-resnet18")), input_spec=spec)
    text = " ".join(Path(export_c(model, tmp_path / "net.c").header).read_text().replace(" * ", " ").split())
    assert "Pixels: 32 x 32 (width x height), rows from the top" in text
    assert "resized in its own proportions until its shorter side is 37, and its middle is cut out" in text
    assert "#define NET_PIXELS_SIZE 3072" in text


def test_probabilities_are_not_made_twice(tmp_path):
    """A network that ends in a softmax has no helper for one; its scores are called what they are."""
    model = load(file_of("digits"))
    last = Node("likely", "softmax", (model.graph.outputs[0],))
    graph = replace(model.graph, nodes=(*model.graph.nodes, last), outputs=("likely",))
    model = replace(model, graph=graph, golden_outputs=run(graph, model.golden_input))
    header = Path(export_c(model, tmp_path / "net.c").header).read_text()
    assert "net_softmax" not in header
    assert "void net_top(const float *probabilities, int32_t k, int32_t *classes);" in header


def numbers(*shape):
    """Floats of any size, subnormal ones and both infinities among them, positive and negative."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    x = np.where(np.isnan(bits.view(np.float32)), np.float32(2), bits.view(np.float32))
    x.flat[:6] = 0, -0.0, np.inf, -np.inf, np.finfo(np.float32).tiny, 1e-45
    return x


def test_square_roots_are_rounded_as_by_the_runtime(compiled):
    x = np.concatenate([numbers(40, 30, 20), np.arange(24000, dtype=np.float32).reshape(40, 30, 20)])
    model = model_of([Node("roots", "sqrt", ("x",))], (30, 20))
    np.testing.assert_array_equal(compiled(model)(x), run(model.graph, x)[0])


@pytest.mark.parametrize("shape", [(1, 5, 3), (50, 4, 2)])
@pytest.mark.parametrize(
    "node",
    [
        Node("y", "layer_norm", ("x",), {"eps": 1e-5}),
        Node("y", "reciprocal", ("x",)),
        *(
            Node("y", f"reduce_{over}", ("x",), {"how": how})
            for over in ("channels", "pixels")
            for how in ("mean", "sum", "max", "min")
        ),
    ],
    ids=lambda node: " ".join([node.op, *map(str, node.attributes.values())]),
)
def test_what_looks_at_all_channels_or_pixels_is_exact(compiled, node, shape):
    model = model_of([node], shape)
    x = np.random.default_rng(0).standard_normal((3, *shape), np.float32)
    np.testing.assert_array_equal(compiled(model)(x), run(model.graph, x)[0])


def test_a_pad_is_filled(compiled):
    pad = Node("y", "pad", ("x",), {"axis": 1, "before": 1, "after": 2, "value": -0.5})
    model = model_of([pad], (3, 2, 2))
    x = np.random.default_rng(0).standard_normal((3, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(compiled(model)(x), run(model.graph, x)[0])


def linear_of(weight):
    tensors = {"weight": np.array([[weight, 0.5]], np.float32), "bias": np.zeros(1, np.float32)}
    return Node("y", "linear", ("x",), {}, tensors)


@pytest.mark.parametrize(
    "node",
    [Node("y", "pad", ("x",), {"axis": 0, "before": 1, "after": 0, "value": 1e39}), linear_of(np.inf)],
    ids=lambda node: node.op,
)
def test_infinity(compiled, node):
    assert compiled(model_of([node], (2,)))(np.ones((1, 2), np.float32)).ravel()[0] == np.inf


def test_a_weight_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(InputError, match="constant y_weight: expected numbers, found NaN"):
        export_c(model_of([linear_of(np.nan)], (2,)), tmp_path / "net.c")


def test_an_affine_of_each_pixel_follows_sums(compiled):
    rng = np.random.default_rng(0)

    def affine(name, of, *shape):
        return Node(
            name, "affine", (of,), {}, {k: rng.standard_normal(shape, np.float32) for k in ("scale", "shift")}
        )

    ones = {"threshold": np.zeros(8, np.float32), "direction": np.ones(8, np.int8)}
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
    weight = pack_signs(rng.choice(np.array([-1, 1], np.int8), (6, 3, 3, 8)))
    nodes = [
        Node("bits", "threshold", ("x",), {}, ones),
        Node("sums", "binary_conv2d", ("bits",), window, {"weight": weight}),
        Node("scaled", "scale", ("sums",), {}, {"alpha": rng.standard_normal(6, np.float32)}),
        affine("first", "scaled", 6, 4, 5),
        affine("second", "first", 6),
    ]
    model = model_of(nodes, (8, 4, 5))
    x = rng.standard_normal((3, 8, 4, 5), np.float32)
    np.testing.assert_allclose(compiled(model)(x), run(model.graph, x)[0], rtol=1e-5, atol=1e-5)
