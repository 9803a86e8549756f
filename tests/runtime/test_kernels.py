"""Every instruction set of this machine gives the bits of the reference, operation by operation."""

import platform
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.runtime.sets import drawn, every_set, reference, scalar

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.format.graph import run
from bitfactor.format.operations.quantised import MOST_TERMS
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.program import program_of
from bitfactor.runtime.runner import runner

sizes = st.integers(1, 9)
channels = st.one_of(st.integers(1, 20), st.sampled_from([32, 33, 63, 64, 65, 96, 128, 130, 200]))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
seeds = st.integers(0, 2**32 - 1)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice(np.array([-1, 1], np.int8), shape)


def expect_reference(graph: Graph, x: np.ndarray, isa: str) -> None:
    for found, expected in zip(runner(graph, isa)(x), reference(graph, x), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def check(nodes: list[Node], x: np.ndarray, isa: str) -> None:
    expect_reference(Graph(Value("x", x.shape[1:], "float32"), tuple(nodes), (nodes[-1].name,)), x, isa)


def to_bits(channels: int, rng: np.random.Generator) -> Node:
    tensors = {"threshold": floats(rng, channels) / 4, "direction": signs(rng, channels)}
    return Node("bits", "threshold", ("x",), {}, tensors)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, object], tuple[int, int], tuple[int, ...], int]:
    """Attributes, kernel, shape of x and output channels, such that at least one window fits."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    depth = draw(channels) if groups == 1 else draw(st.sampled_from([1, 5, 31, 32, 40, 64, 70]))
    outputs = groups * (draw(channels) if groups == 1 else draw(st.integers(1, 40)))
    kernel, stride, dilation = draw(pairs), draw(pairs), draw(pairs)
    padding = draw(st.tuples(*[st.integers(0, 4)] * 4))
    least = [max(1, (kernel[i] - 1) * dilation[i] + 1 - padding[i] - padding[2 + i]) for i in range(2)]
    shape = (draw(st.integers(1, 3)), groups * depth, *(size + draw(sizes) - 1 for size in least))
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return attributes, kernel, shape, outputs


@every_set
@drawn(60, layer=convolutions(), pad_value=st.sampled_from([-1, 0, 1]), seed=seeds)
def test_binary_conv2d(isa, layer, pad_value, seed):
    attributes, kernel, shape, outputs = layer
    rng = np.random.default_rng(seed)
    weight = pack_signs(signs(rng, outputs, *kernel, shape[1] // attributes["groups"]))
    attributes = {**attributes, "pad_value": pad_value}
    node = Node("y", "binary_conv2d", ("bits",), attributes, {"weight": weight})
    check([to_bits(shape[1], rng), node], floats(rng, *shape), isa)


@every_set
@pytest.mark.parametrize("pad_value", [-1, 0, 1])
@pytest.mark.parametrize(
    ("depth", "outputs", "size", "kernel", "stride", "dilation", "padding"),
    [
        (64, 64, (14, 17), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # several strips, widths not of 16
        (200, 72, (9, 16), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        (70, 200, (15, 15), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),  # each phase of the strides
        (65, 40, (16, 13), (3, 2), (2, 3), (1, 1), (0, 2, 1, 0)),
        (128, 48, (12, 12), (3, 3), (1, 1), (2, 3), (2, 3, 2, 3)),
        (64, 33, (11, 12), (2, 3), (3, 2), (3, 2), (4, 1, 0, 5)),  # padding of several widths
        (128, 144, (8, 33), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
        (192, 64, (9, 10), (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),  # pixels that no tap reads
        (64, 16, (4, 5), (5, 5), (1, 1), (1, 1), (4, 4, 4, 4)),  # more padding than map
        (512, 512, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ],
)
def test_binary_conv2d_of_many_channels(
    isa, depth, outputs, size, kernel, stride, dilation, padding, pad_value
):
    rng = np.random.default_rng(0)
    weight = pack_signs(signs(rng, outputs, *kernel, depth))
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 1}
    node = Node("y", "binary_conv2d", ("bits",), {**attributes, "pad_value": pad_value}, {"weight": weight})
    check([to_bits(depth, rng), node], floats(rng, 2, depth, *size), isa)


@pytest.mark.skipif("avx2" not in instruction_sets(), reason="lookups are those of AVX2 and AVX-512")
@pytest.mark.parametrize(
    ("depth", "outputs", "size", "expected", "reason"),
    [
        (64, 64, 8, "binary_conv by lookups", "by lookups; not by popcounts, 2.00 times as long"),
        (64, 4, 8, "binary_conv", "by popcounts; not by lookups, 2.00 times as long"),  # 28 of 32 lanes empty
        (64, 64, 1, "binary_conv", "by popcounts; not by lookups, as a single pixel waits for its weights"),
        (7300, 32, 4, "binary_conv", "by popcounts; not by lookups, whose sums would overflow"),
    ],
)
def test_a_layer_is_looked_up_where_that_is_faster(depth, outputs, size, expected, reason):
    padding = (1, 1, 1, 1) if size > 1 else (0, 0, 0, 0)
    attributes = {"stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1, "pad_value": 0}
    kernel = 3 if size > 1 else 1
    weight = pack_signs(np.ones((outputs, kernel, kernel, depth), np.int8))
    nodes = (
        to_bits(depth, np.random.default_rng(0)),
        Node("y", "binary_conv2d", ("bits",), attributes, {"weight": weight}),
    )
    graph = Graph(Value("x", (depth, size, size), "float32"), nodes, ("y",))
    core, _ = program_of(graph).compile("avx2", 1)
    assert core.phases()[-2] == expected
    assert core.reasons()[-2] == f"{reason}; not by tiles, which this instruction set lacks"


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="flags of x86")
def test_the_sets_are_those_of_the_cpu():
    avx2 = {"avx2", "fma"}
    avx512bw = avx2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
    avx512 = avx512bw | {"avx512_vnni", "avx512_vpopcntdq"}
    needed = {
        "amx": avx512 | {"avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"},
        "avx512": avx512,
        "avx512vnni": avx512bw | {"avx512_vnni"},
        "avx512bw": avx512bw,
        "avxvnni": avx2 | {"avx_vnni"},
        "avx2": avx2,
        "scalar": set(),
    }
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(set(line.split()) for line in lines if line.startswith("flags"))
    expected = [name for name, wanted in needed.items() if wanted <= flags]
    by_compiler = {"amx", "avxvnni"}  # an older one does not know them
    assert set(instruction_sets()) - by_compiler == set(expected) - by_compiler
    assert set(instruction_sets()) <= set(expected)


def test_medium_is_bfloat16_where_the_cpu_multiplies_it_faster():
    rng = np.random.default_rng(0)
    attributes = {"stride": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    tensors = {"weight": floats(rng, 8, 3, 3, 4), "bias": floats(rng, 8)}
    nodes = (Node("y", "conv2d", ("x",), attributes, tensors),)
    program = program_of(Graph(Value("x", (4, 8, 8), "float32"), nodes, ("y",)))
    cpu = Path("/proc/cpuinfo").read_text()
    for isa in instruction_sets():
        dots = isa == "avx512" and "avx512_bf16" in cpu and "GenuineIntel" not in cpu
        expected = "conv by tiles" if isa == "amx" else "conv by dots" if dots else "conv"
        core, _ = program.compile(isa, 1, bfloat16_parts=1)
        assert core.phases()[-2] == expected


@every_set
@pytest.mark.parametrize("pad_value", [-1, 0, 1])
@pytest.mark.parametrize("depth", [4, 60, 64, 244, 512, 7300])  # the last are more signs than 16 bits count
def test_sums_of_signs_that_all_differ_or_agree(isa, depth, pad_value):
    size, outputs = 4, 40
    weight = np.ones((outputs, 3, 3, depth), np.int8)
    weight[::2] = -1
    x = np.ones((2, depth, size, size), np.float32)
    x[1] = -1
    node = Node(
        "y",
        "binary_conv2d",
        ("bits",),
        {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": pad_value},
        {"weight": pack_signs(weight)},
    )
    tensors = {"threshold": np.zeros(depth, np.float32), "direction": np.ones(depth, np.int8)}
    graph = Graph(
        Value("x", x.shape[1:], "float32"), (Node("bits", "threshold", ("x",), {}, tensors), node), ("y",)
    )
    (sums,) = runner(graph, isa)(x)
    np.testing.assert_array_equal(sums, run(graph, x)[0])
    assert abs(sums).max() == 9 * depth


@every_set
@drawn(60, layer=convolutions(), seed=seeds)
def test_conv2d(isa, layer, seed):
    attributes, kernel, shape, outputs = layer
    rng = np.random.default_rng(seed)
    weight = floats(rng, outputs, *kernel, shape[1] // attributes["groups"])
    tensors = {"weight": weight, "bias": floats(rng, outputs)}
    check([Node("y", "conv2d", ("x",), attributes, tensors)], floats(rng, *shape), isa)


LESS_PRECISE = pytest.mark.parametrize(("precision", "bound"), [("high", 2.0**-16), ("medium", 2.0**-7)])


def error_of(
    isa: str, precision: str, op: str, x: np.ndarray, attributes: dict, weight: np.ndarray, bias: np.ndarray
) -> float:
    """The largest error at a precision, as a fraction of the sum of the magnitudes of what is added."""

    def graph(weight: np.ndarray, bias: np.ndarray) -> Graph:
        node = Node("y", op, ("x",), attributes, {"weight": weight, "bias": bias})
        return Graph(Value("x", x.shape[1:], "float32"), (node,), ("y",))

    (found,) = runner(graph(weight, bias), isa, precision=precision)(x)
    (exact,) = reference(graph(weight, bias), x, scalar)
    (magnitude,) = reference(graph(abs(weight), abs(bias)), abs(x), scalar)
    return float((abs(found - exact) / magnitude).max())


@every_set
@LESS_PRECISE
@drawn(60, layer=convolutions(), seed=seeds)
def test_conv2d_of_less_precision(isa, precision, bound, layer, seed):
    attributes, kernel, shape, outputs = layer
    rng = np.random.default_rng(seed)
    weight, bias = floats(rng, outputs, *kernel, shape[1] // attributes["groups"]), floats(rng, outputs)
    assert error_of(isa, precision, "conv2d", floats(rng, *shape), attributes, weight, bias) < bound


@every_set
@LESS_PRECISE
@pytest.mark.parametrize(
    ("depth", "outputs", "size", "kernel", "stride", "padding"),
    [
        (3, 64, (37, 44), (7, 7), (2, 2), (3, 3, 3, 3)),  # the stem of a ResNet
        (64, 128, (15, 14), (1, 1), (1, 1), (0, 0, 0, 0)),
        (96, 20, (14, 15), (1, 1), (2, 2), (0, 0, 0, 0)),
        (40, 33, (9, 17), (3, 3), (1, 1), (1, 1, 1, 1)),  # many steps, rows of tiles not aligned
        (1, 5, (12, 70), (4, 5), (3, 1), (0, 4, 2, 4)),
    ],
)
def test_conv2d_of_less_precision_on_maps(
    isa, precision, bound, depth, outputs, size, kernel, stride, padding
):
    rng = np.random.default_rng(0)
    attributes = {"stride": stride, "padding": padding, "dilation": (1, 1), "groups": 1}
    x, weight = floats(rng, 2, depth, *size), floats(rng, outputs, *kernel, depth)
    assert error_of(isa, precision, "conv2d", x, attributes, weight, floats(rng, outputs)) < bound


@every_set
def test_memory_of_tiles_is_used_again(isa):
    """Bytes of signs that an earlier layer left, which as bfloat16 are NaN, must not reach a sum."""
    rng = np.random.default_rng(0)
    one = {"stride": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    weight = pack_signs(signs(rng, 3, 3, 3, 64))
    big = Node("a", "binary_conv2d", ("bits",), {**one, "pad_value": 0}, {"weight": weight})
    real = Node("b", "conv2d", ("f",), one, {"weight": floats(rng, 4, 3, 3, 3), "bias": floats(rng, 4)})
    nodes = (to_bits(64, rng), big, Node("f", "scale", ("a",), {}, {"alpha": floats(rng, 3)}), real)
    graph = Graph(Value("x", (64, 30, 5), "float32"), nodes, ("b",))
    x = floats(rng, 1, 64, 30, 5)
    (found,), (expected,) = runner(graph, isa, precision="high")(x), run(graph, x)
    np.testing.assert_allclose(found, expected, atol=1e-2)


def quantised(op: str, attributes: dict, weight: np.ndarray, rng: np.random.Generator, ranges: int) -> Node:
    """A layer by int8, whose input has so many ranges."""
    tensors = {
        "weight": weight.astype(np.int8),
        "scale": floats(rng, len(weight)) / np.float32(1000),
        "bias": floats(rng, len(weight)),
        "lowest": -abs(floats(rng, ranges)) * np.float32(2),
        "inverse": np.float32(60) + floats(rng, ranges),
    }
    return Node("y", op, ("x",), attributes, tensors)


@every_set
@drawn(60, layer=convolutions(), by_channel=st.booleans(), seed=seeds)
def test_quantised_conv2d(isa, layer, by_channel, seed):
    attributes, kernel, shape, outputs = layer
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (outputs, *kernel, shape[1] // attributes["groups"]))
    ranges = shape[1] if by_channel else 1
    check([quantised("quantised_conv2d", attributes, weight, rng, ranges)], floats(rng, *shape), isa)


@every_set
@drawn(60, layer=convolutions(), count=channels, by_channel=st.booleans(), seed=seeds)
def test_quantised_depthwise(isa, layer, count, by_channel, seed):
    """Each channel by itself: the sums stand in floats, and are those of integers all the same."""
    attributes, kernel, (samples, _, *size), _ = layer
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (count, *kernel, 1))
    ranges = count if by_channel else 1
    node = quantised("quantised_conv2d", {**attributes, "groups": count}, weight, rng, ranges)
    check([node], floats(rng, samples, count, *size), isa)


@every_set
@pytest.mark.parametrize("side", [22, 23])  # 23 x 23 of the largest products are more than floats count
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_of_a_depthwise_layer(isa, side, sign):
    weight = np.full((3, side, side, 1), 127 if sign > 0 else -128)
    weight[1, ::2], weight[2] = 1, sign
    attributes = {"stride": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 3}
    node = quantised("quantised_conv2d", attributes, weight, np.random.default_rng(0), 1)
    node.tensors["scale"][:] = 1
    check([node], np.full((1, 3, side, side + 1), 1e9, np.float32), isa)


@every_set
@pytest.mark.parametrize("width", [3, 4, 15, 16, 17, 40])
@pytest.mark.parametrize(
    ("channels", "kernel", "outputs"), [(3, (7, 7), 64), (24, (3, 3), 70), (64, (1, 1), 30)]
)
def test_quantised_conv2d_of_rows_that_tiles_cut(isa, channels, kernel, outputs, width):
    rng = np.random.default_rng(width)
    attributes = {"stride": (2, 1), "padding": (1, kernel[1] // 2) * 2, "dilation": (1, 1), "groups": 1}
    weight = rng.integers(-128, 128, (outputs, *kernel, channels))
    node = quantised("quantised_conv2d", attributes, weight, rng, 1)
    check([node], floats(rng, 2, channels, 9, width), isa)


@every_set
@drawn(60, n=st.integers(1, 3), features=st.integers(1, 300), outputs=st.integers(1, 150), seed=seeds)
def test_quantised_linear(isa, n, features, outputs, seed):
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (outputs, features))
    check([quantised("quantised_linear", {}, weight, rng, 1)], floats(rng, n, features), isa)


@every_set
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_of_8_bit_integers(isa, sign):
    """As many products as may be added, each the largest: 16 bits hold not even two."""
    weight = np.full((3, MOST_TERMS), 127 if sign > 0 else -128)
    node = quantised("quantised_linear", {}, weight, np.random.default_rng(0), 1)
    node.tensors["scale"][:] = 1
    check([node], np.full((1, MOST_TERMS), 1e9, np.float32), isa)


@every_set
@drawn(60, n=st.integers(1, 3), features=st.integers(1, 300), outputs=st.integers(1, 150), seed=seeds)
def test_linear(isa, n, features, outputs, seed):
    rng = np.random.default_rng(seed)
    tensors = {"weight": floats(rng, outputs, features), "bias": floats(rng, outputs)}
    check([Node("y", "linear", ("x",), {}, tensors)], floats(rng, n, features), isa)


@every_set
@LESS_PRECISE
@drawn(60, n=st.integers(1, 3), features=st.integers(1, 600), outputs=st.integers(1, 150), seed=seeds)
def test_linear_of_less_precision(isa, precision, bound, n, features, outputs, seed):
    rng = np.random.default_rng(seed)
    weight, bias = floats(rng, outputs, features), floats(rng, outputs)
    assert error_of(isa, precision, "linear", floats(rng, n, features), {}, weight, bias) < bound


@every_set
@drawn(60, n=st.integers(1, 3), features=st.integers(1, 3000), outputs=st.integers(1, 150), seed=seeds)
def test_binary_linear(isa, n, features, outputs, seed):
    rng = np.random.default_rng(seed)
    node = Node("y", "binary_linear", ("bits",), {}, {"weight": pack_signs(signs(rng, outputs, features))})
    check([to_bits(features, rng), node], floats(rng, n, features), isa)


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, object], tuple[int, ...]]:
    kernel, stride = draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), draw(pairs)
    padding = tuple(draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4))
    least = [max(1, kernel[i] - padding[i] - padding[2 + i]) for i in range(2)]
    shape = (draw(st.integers(1, 2)), draw(channels), *(size + draw(sizes) - 1 for size in least))
    return {"kernel": kernel, "stride": stride, "padding": padding}, shape


@every_set
@drawn(60, pool=pools(), seed=seeds)
def test_max_pool2d(isa, pool, seed):
    attributes, shape = pool
    check([Node("y", "max_pool2d", ("x",), attributes)], floats(np.random.default_rng(seed), *shape), isa)


@every_set
@drawn(60, pool=pools(), count_include_pad=st.integers(0, 1), seed=seeds)
def test_avg_pool2d(isa, pool, count_include_pad, seed):
    attributes, shape = pool
    attributes = {**attributes, "count_include_pad": count_include_pad}
    check([Node("y", "avg_pool2d", ("x",), attributes)], floats(np.random.default_rng(seed), *shape), isa)


maps = st.tuples(st.integers(1, 3), channels, sizes, sizes)
vectors = st.tuples(st.integers(1, 3), st.integers(1, 200))


@every_set
@pytest.mark.parametrize("op", ["global_avg_pool", "flatten"])
@drawn(60, shape=maps, seed=seeds)
def test_whole_maps(isa, op, shape, seed):
    check([Node("y", op, ("x",))], floats(np.random.default_rng(seed), *shape), isa)


@every_set
@drawn(60, shape=maps, scale=st.tuples(st.integers(1, 3), st.integers(1, 3)), seed=seeds)
def test_upsample_nearest(isa, shape, scale, seed):
    node = Node("y", "upsample_nearest", ("x",), {"scale": scale})
    check([node], floats(np.random.default_rng(seed), *shape), isa)


def pointwise(op: str, shape: tuple[int, ...], rng: np.random.Generator) -> Node:
    c = shape[1]
    tensors = {
        "scale": {"alpha": floats(rng, c)},
        "scale each": {"alpha": floats(rng, *shape[1:])},
        "affine": {"scale": floats(rng, c), "shift": floats(rng, c)},
        "relu": {},
        "prelu": {"slope": floats(rng, c)},
        "clip": {},
        "sigmoid": {},
        "add": {},
        "multiply": {},
        "threshold": {"threshold": floats(rng, c), "direction": signs(rng, c)},
    }
    inputs = ("x", "x") if op in ("add", "multiply") else ("x",)
    attributes = {"lower": -0.5, "upper": float(rng.random())} if op == "clip" else {}
    return Node("y", op.split()[0], inputs, attributes, tensors[op])


POINTWISE = ["scale", "scale each", "affine", "relu", "prelu", "clip"]
POINTWISE += ["sigmoid", "add", "multiply", "threshold"]


@every_set
@pytest.mark.parametrize("op", POINTWISE)
@drawn(60, shape=st.one_of(maps, vectors), seed=seeds)
def test_pointwise(isa, op, shape, seed):
    rng = np.random.default_rng(seed)
    check([pointwise(op, shape, rng)], floats(rng, *shape), isa)


@every_set
@drawn(60, shape=maps, seed=seeds)
def test_one_factor_a_channel(isa, shape, seed):
    """As in squeeze-and-excitation: a map times one number for each of its channels."""
    x = floats(np.random.default_rng(seed), *shape)
    check([Node("mean", "global_avg_pool", ("x",)), Node("y", "multiply", ("x", "mean"))], x, isa)


@every_set
@drawn(60, shape=st.one_of(maps, vectors), seed=seeds)
def test_softmax(isa, shape, seed):
    rng = np.random.default_rng(seed)
    check([Node("y", "softmax", ("x",))], floats(rng, *shape) * np.float32(30), isa)


@every_set
@drawn(60, shape=maps, others=st.lists(channels, max_size=3), seed=seeds)
def test_concat(isa, shape, others, seed):
    """The input itself, twice, and maps of other numbers of channels."""
    rng = np.random.default_rng(seed)
    one = {"stride": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    maps = [
        Node(
            f"m{i}", "conv2d", ("x",), one, {"weight": floats(rng, c, 1, 1, shape[1]), "bias": floats(rng, c)}
        )
        for i, c in enumerate(others)
    ]
    names = ("x", *(node.name for node in maps), "x")
    check([*maps, Node("y", "concat", names)], floats(rng, *shape), isa)


@st.composite
def moves(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Node]]:
    """A shape of x, a part of it along one axis, its axes in another order, and its numbers as a matrix."""
    shape, axis, order = draw(maps), draw(st.integers(0, 2)), tuple(draw(st.permutations(range(3))))
    start = draw(st.integers(0, shape[1 + axis] - 1))
    stop = draw(st.integers(start + 1, shape[1 + axis]))
    nodes = [
        Node("sliced", "slice", ("x",), {"range": (axis, start, stop, draw(st.integers(1, 3)))}),
        Node("moved", "permute", ("sliced",), {"order": order}),
    ]
    graph = Graph(Value("x", shape[1:], "float32"), tuple(nodes), ("moved",))
    numbers = int(np.prod(graph.values["moved"].shape))
    first = draw(st.sampled_from([n for n in range(1, numbers + 1) if numbers % n == 0]))
    return shape, [*nodes, Node("y", "reshape", ("moved",), {"shape": (first, numbers // first)})]


@every_set
@drawn(60, moved=moves(), seed=seeds)
def test_numbers_that_move(isa, moved, seed):
    shape, nodes = moved
    check(nodes, floats(np.random.default_rng(seed), *shape), isa)


@every_set
@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_smaller_weights(isa, dtype):
    rng = np.random.default_rng(0)
    one = {"stride": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 2}

    def tensors(*shape: int) -> dict[str, np.ndarray]:
        step = {"step": floats(rng, shape[0])} if dtype is np.int8 else {}
        return {"weight": (floats(rng, *shape) * 40).astype(dtype), "bias": floats(rng, shape[0])} | step

    nodes = [
        Node("conv", "conv2d", ("x",), one, tensors(6, 3, 3, 2)),
        Node("flat", "flatten", ("conv",)),
        Node("y", "linear", ("flat",), {}, tensors(5, 6 * 20)),
    ]
    check(nodes, floats(rng, 2, 4, 4, 5), isa)


@every_set
def test_threshold_takes_ties_zeros_and_infinities_as_the_reference_does(isa):
    values = np.array([-np.inf, -1, -1e-45, -0.0, 0.0, 1e-45, 1, np.inf], np.float32)
    points = np.repeat(values, 2)
    tensors = {"threshold": points, "direction": np.tile(np.array([1, -1], np.int8), 8)}
    x = np.repeat(values[1:-1, None], 16, axis=1)
    check([Node("y", "threshold", ("x",), {}, tensors)], x, isa)


@every_set
def test_fma_rounds_once(isa):
    """Operands whose float64 sum lies half-way between two float32, and results below the normal numbers."""
    rng = np.random.default_rng(0)
    x = floats(rng, 64, 16) * np.float32(2.0) ** rng.integers(-70, 10, (64, 16)).astype(np.float32)
    scale = floats(rng, 16) * np.float32(2.0) ** rng.integers(-70, 10, 16).astype(np.float32)
    shift = floats(rng, 16) * np.float32(2.0) ** rng.integers(-126, 10, 16).astype(np.float32)
    x[:, 0], scale[0], shift[0] = 1 + 2.0**-23, 1 + 2.0**-12, 2.0**-60
    x[:, 1], scale[1], shift[1] = 2.0**-60, 2.0**-60, 1 + 2.0**-23
    x[:, 2], scale[2], shift[2] = 1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60)
    check([Node("y", "affine", ("x",), {}, {"scale": scale, "shift": shift})], x, isa)
