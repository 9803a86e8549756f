"""Whole graphs: fused or not, on one thread or two, the outputs are the bits of the reference."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.cases import slow_beside
from tests.runtime.sets import FULL, drawn, every_set

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.format.graph import run
from bitfactor.format.low_precision import low_precision
from bitfactor.runtime import instruction_sets, program
from bitfactor.runtime.plan import plan
from bitfactor.runtime.runner import runner

SAME = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


class Builder:
    """Adds nodes that keep the shape (C, H, W), with random parameters."""

    def __init__(self, rng: np.random.Generator, channels: int) -> None:
        self.rng, self.c = rng, channels
        self.nodes: list[Node] = []

    def floats(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape, np.float32)

    def signs(self, *shape: int) -> np.ndarray:
        return self.rng.choice(np.array([-1, 1], np.int8), shape)

    def quantised(self) -> tuple[dict[str, np.ndarray], dict[str, object]]:
        k = int(self.rng.choice([1, 3]))
        tensors = {
            "weight": self.rng.integers(-127, 128, (self.c, k, k, self.c)).astype(np.int8),
            "scale": self.floats(self.c) / 2**13,
            "bias": self.floats(self.c),
            "lowest": -abs(self.floats(1)),
            "inverse": np.full(1, 80, np.float32),
        }
        return tensors, {**SAME, "padding": 4 * (k // 2,)}

    def window(self, k: int) -> tuple[dict[str, np.ndarray], dict[str, object]]:
        weight = self.floats(self.c, k, k, self.c) / (3 * self.c)
        return {"weight": weight, "bias": self.floats(self.c)}, {**SAME, "padding": 4 * (k // 2,)}

    def add(self, op: str, *inputs: str) -> str:
        c = self.c
        tensors, attributes = {
            "threshold": lambda: ({"threshold": self.floats(c), "direction": self.signs(c)}, {}),
            "binary_conv2d": lambda: (
                {"weight": pack_signs(self.signs(c, 3, 3, c))},
                {**SAME, "pad_value": int(self.rng.integers(-1, 2))},
            ),
            "conv2d": lambda: self.rng.choice([self.window(3), self.window(1)]),
            "quantised_conv2d": self.quantised,
            "scale": lambda: ({"alpha": self.floats(c) / c}, {}),
            "affine": lambda: ({"scale": self.floats(c), "shift": self.floats(c)}, {}),
            "prelu": lambda: ({"slope": self.floats(c)}, {}),
            "relu": lambda: ({}, {}),
            "clip": lambda: ({}, {"lower": -0.25, "upper": 0.75}),
            "sigmoid": lambda: ({}, {}),
            "softmax": lambda: ({}, {}),
            "add": lambda: ({}, {}),
            "multiply": lambda: ({}, {}),
            "concat": lambda: ({}, {}),
            "slice": lambda: ({}, {"range": (0, 0, 2 * c, 2)}),
            "max_pool2d": lambda: ({}, {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)}),
        }[op]()
        self.nodes.append(Node(f"{op}{len(self.nodes)}", op, inputs, attributes, tensors))
        return self.nodes[-1].name

    def graph(self, outputs: list[str], height: int, width: int) -> Graph:
        return Graph(Value("x", (self.c, height, width), "float32"), tuple(self.nodes), tuple(outputs))


def residual(channels: int = 64, height: int = 7, width: int = 5, blocks: int = 3) -> Graph:
    """Pre-activation blocks: threshold, binary convolution, alpha, PReLU, twice, plus shortcut."""
    builder = Builder(np.random.default_rng(0), channels)
    stream = builder.add("conv2d", "x")
    for _ in range(blocks):
        value = stream
        for _ in range(2):
            bits = builder.add("threshold", value)
            value = builder.add("prelu", builder.add("scale", builder.add("binary_conv2d", bits)))
        stream = builder.add("add", value, stream)
    return builder.graph([builder.add("relu", builder.add("affine", stream))], height, width)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Operations drawn one by one over any values before them; some values are outputs as well."""
    builder = Builder(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([3, 33, 64, 70]))
    )
    known: dict[str, list[str]] = {"float32": ["x"], "int32": [], "bit": []}
    takes = {"threshold": ("float32", "int32"), "scale": ("float32", "int32"), "binary_conv2d": ("bit",)}
    gives = {"threshold": "bit", "binary_conv2d": "int32"}
    names = ["threshold", "binary_conv2d", "conv2d", "scale", "affine", "prelu", "relu", "max_pool2d"]
    names += ["add", "multiply", "clip", "sigmoid", "softmax", "concat", "shortcut", "quantised_conv2d"]
    for _ in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(names))
        inputs = [name for kind in takes.get(op, ("float32",)) for name in known[kind]]
        if not inputs:
            continue
        paired = op in ("add", "multiply", "concat", "shortcut")
        chosen = [draw(st.sampled_from(inputs)) for _ in range(2 if paired else 1)]
        if op == "shortcut":
            of = draw(st.sampled_from(["conv2d", "quantised_conv2d"]))
            op, chosen = "add", [builder.add(of, name) for name in chosen]
        name = builder.add(op, *chosen)
        if op == "concat":  # twice the channels: every other one goes on
            name = builder.add("slice", name)
        known[gives.get(op, "float32")].append(name)
    every = [name for names in known.values() for name in names]
    outputs = draw(st.lists(st.sampled_from(every), min_size=1, max_size=3))
    return builder.graph(outputs, draw(st.integers(1, 6)), draw(st.integers(1, 6)))


def samples(graph: Graph, n: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n, *graph.input.shape), np.float32)


def expect_equal(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@every_set
@drawn(100, graph=graphs(), n=st.integers(1, 2))
def test_any_graph(isa, graph, n):
    x = samples(graph, n)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = run(graph, x)
    expect_equal(runner(graph, isa)(x), expected)


@every_set
@pytest.mark.parametrize("channels", [16, 64, 100, 128])
def test_residual_network(isa, channels):
    graph = residual(channels)
    x = samples(graph, 2)
    expect_equal(runner(graph, isa)(x), run(graph, x))


COMPILED = [
    "threshold",
    "scale relu add store",
    "scale prelu add store",
    "scale relu add threshold store",
    "scale prelu add threshold store",
    "scale affine add threshold store",
    "scale affine add clip threshold store",
    "scale affine add store",
    "scale affine store",
    "scale relu affine add threshold store",
    "scale relu affine add relu store",
    "scale affine add affine prelu affine threshold store",
    "scale affine prelu store scale add store",
    "affine prelu affine threshold store",
    "add affine prelu affine threshold store",
    "multiply affine add threshold store scale store",
    "relu store",
    "relu threshold store",
    "threshold store",
    "add threshold store",
    "store",
]


@every_set
@pytest.mark.parametrize("channels", [64, 48, 40, 16])
@pytest.mark.parametrize("stages", COMPILED)
def test_lists_of_stages_that_are_compiled(isa, stages, channels):
    builder = Builder(np.random.default_rng(0), channels)
    of_signs = stages.startswith(("scale", "threshold")) and stages != "threshold store"
    value = builder.add("binary_conv2d", builder.add("threshold", "x")) if of_signs else "x"
    value = value if of_signs else builder.add("max_pool2d", value)
    outputs = []
    for op in stages.split():
        if op == "store":
            outputs.append(value)
        elif op == "threshold":
            outputs.append(builder.add(op, value))
        else:
            value = builder.add(op, value, *(["x"] if op in ("add", "multiply") else []))
    graph = builder.graph(outputs, 5, 7)
    assert [stage.op for stage in plan(graph)[-1].stages] == stages.split()
    x = samples(graph, 2)
    expect_equal(runner(graph, isa)(x), run(graph, x))


def test_residual_block_keeps_its_sum_and_its_signs_in_one_step():
    steps = plan(residual(blocks=2))
    assert [[stage.op for stage in step.stages] for step in steps] == [
        ["threshold", "store"],
        ["scale", "prelu", "threshold"],
        ["scale", "prelu", "add", "threshold", "store"],
        ["scale", "prelu", "threshold"],
        ["scale", "prelu", "add", "affine", "relu", "store"],
    ]


def test_the_stream_of_shortcuts_stays_in_one_place():
    """So the arena does not grow with depth: input, stream and two maps of signs."""
    one, many = (program._place(graph, plan(graph)) for graph in (residual(blocks=1), residual(blocks=6)))
    assert many[1] == one[1]
    places = [place for name, place in many[0].items() if name.startswith("add")]
    assert len(places) == 5  # the last sum goes straight on into batch norm
    assert len(set(places)) == 1


def test_a_value_added_to_itself_is_read_from_memory():
    builder = Builder(np.random.default_rng(0), 5)
    doubled = builder.add("affine", "x")
    graph = builder.graph([builder.add("add", doubled, doubled)], 2, 3)
    x = samples(graph, 1)
    expect_equal(runner(graph, instruction_sets()[0])(x), run(graph, x))


@every_set
def test_the_number_of_threads_changes_nothing(isa):
    graph = residual()
    x = samples(graph, 7)
    expect_equal(runner(graph, isa, threads=2)(x), runner(graph, isa, threads=1)(x))


@pytest.mark.parametrize("threads", [1, 3])
def test_concurrent_calls(threads):
    graph = residual()
    session = runner(graph, instruction_sets()[0], threads)
    batches = [samples(graph, 4) * np.float32(i + 1) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for found, x in zip(pool.map(session, batches), batches, strict=True):
            expect_equal(found, run(graph, x))


@cache
def pooled_integers():
    """Return the pool of a convolution of 8-bit integers, samples, and what it gives."""
    builder = Builder(np.random.default_rng(0), 33)
    last = builder.add("relu", builder.add("quantised_conv2d", "x"))
    graph = builder.graph([builder.add("max_pool2d", last)], 112, 112)
    x = samples(graph, 2)
    return graph, x, run(graph, x)


@every_set
@pytest.mark.parametrize("threads", [1, 3])
def test_a_pool_takes_the_map_of_8_bit_integers_in_bands(isa, threads):
    graph, x, expected = pooled_integers()
    assert [step.of_last for step in plan(graph)] == [False, True]
    expect_equal(runner(graph, isa, threads)(x), expected)


LARGE = [  # height, width, kernel, stride, padding
    (112, 112, (3, 3), (2, 2), (1, 1, 1, 1)),  # the stem of a ResNet
    (6, 4200, (5, 1), (1, 2), (2, 0, 2, 0)),  # one line is more than a band
]
ODD = [(61, 190, (2, 3), (3, 1), (1, 0, 0, 2)), (70, 1, (3, 1), (2, 1), (1, 0, 0, 0))]


@pytest.mark.parametrize(
    ("isa", "height", "width", "kernel", "stride", "padding"),
    slow_beside(
        [(isa, *size) for isa in instruction_sets() for size in (LARGE + ODD if isa == FULL[0] else ODD)],
        [(isa, *size) for isa in instruction_sets() for size in LARGE + ODD],
    ),
)
def test_a_pool_takes_the_map_of_a_convolution_in_bands(isa, height, width, kernel, stride, padding):
    """Bit for bit as where the map is an output as well, and so stands in memory."""
    builder = Builder(np.random.default_rng(0), 33)
    last = builder.add("prelu", builder.add("affine", builder.add("conv2d", "x")))
    attributes = {"kernel": kernel, "stride": stride, "padding": padding}
    builder.nodes.append(Node("pool", "max_pool2d", (last,), attributes))
    whole, bands = (builder.graph([*others, "pool"], height, width) for others in ([last], []))
    assert [step.of_last for graph in (whole, bands) for step in plan(graph)] == [False, False, False, True]
    x = np.random.default_rng(1).standard_normal((1, 33, height, width), np.float32)
    expected = runner(whole, isa, 3)(x)[1]
    for threads in (1, 3):
        np.testing.assert_array_equal(runner(bands, isa, threads)(x)[0], expected)


def with_a_shortcut(channels: int, side: int, stride: int, *outputs: str, pool: bool = False) -> Graph:
    """A block whose shortcut is a convolution of single pixels; `outputs` are what is stored besides."""
    builder = Builder(np.random.default_rng(0), channels)
    window = {**SAME, "stride": (stride, stride)}
    point = {"weight": builder.floats(channels, 1, 1, 12), "bias": builder.floats(channels)}
    point["range"] = np.float32([-3, 3])
    border = {"threshold": builder.floats(12), "direction": builder.signs(12)}
    bits = {"weight": pack_signs(builder.signs(channels, 3, 3, 12))}
    builder.nodes = [
        Node("shortcut", "conv2d", ("x",), {**window, "padding": (0, 0, 0, 0)}, point),
        Node("signs", "threshold", ("x",), {}, border),
        Node("sums", "binary_conv2d", ("signs",), {**window, "pad_value": 0}, bits),
    ]
    last = builder.add("relu", builder.add("add", builder.add("scale", "sums"), "shortcut"))
    if pool:
        attributes = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}
        builder.nodes.append(Node("pool", "max_pool2d", (last,), attributes))
        last = "pool"
    return Graph(Value("x", (12, side, side), "float32"), tuple(builder.nodes), (last, *outputs))


@cache
def shortcut_case(channels: int, side: int, stride: int, pool: bool):
    """Return a block, the same of less precision, samples, and what the reference makes of them by each."""
    graph = with_a_shortcut(channels, side, stride, pool=pool)
    x, low = samples(graph, 4), low_precision(graph)
    return graph, low, x, run(graph, x), run(low, x)


@every_set
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("channels", "side", "stride"), [(64, 23, 1), (33, 50, 2), (200, 7, 1), (16, 1, 1)])
def test_a_shortcut_is_made_where_it_is_added(isa, pool, channels, side, stride):
    graph, low, x, expected, of_low = shortcut_case(channels, side, stride, pool)
    assert [step.within_next for step in plan(graph)][:3] == [False, True, False]
    assert [step.of_last for step in plan(graph)][3:] == [True] * pool
    for threads in (1, 3):
        expect_equal(runner(graph, isa, threads)(x), expected)
        expect_equal(runner(low, isa, threads)(x), of_low)
    for precision in ("high", "medium"):
        one, several = (runner(graph, isa, threads, precision)(x) for threads in (1, 3))
        whole = runner(with_a_shortcut(channels, side, stride, "shortcut", pool=pool), isa, 1, precision)(x)
        expect_equal(several, one)
        expect_equal(one, whole[:1])


def test_a_shortcut_that_is_read_elsewhere_is_made_before():
    assert not any(step.within_next for step in plan(with_a_shortcut(16, 5, 1, "shortcut")))


@cache
def banded_sum(shortcut: bool):
    """Return y = pool(convolution(x)) + x, whose map takes several bands, a sample, and what it gives."""
    builder = Builder(np.random.default_rng(0), 64)
    x = builder.add("relu", "x")
    last = builder.add("conv2d", "x" if shortcut else x)
    if shortcut:
        tensors, attributes = builder.window(1)
        builder.nodes.append(Node("point", "conv2d", (x,), attributes, tensors))
        last = builder.add("add", last, "point")
    pool = builder.add("max_pool2d", last)
    graph = builder.graph([builder.add("relu", builder.add("add", pool, x))], 60, 60)
    batch = samples(graph, 1)
    return graph, batch, run(graph, batch)


@every_set
@pytest.mark.parametrize("shortcut", [False, True])
def test_a_sum_does_not_take_the_place_of_what_the_next_band_reads(isa, shortcut):
    """x is read for the last time by the sum."""
    graph, batch, expected = banded_sum(shortcut)
    for threads in (1, 2, 3):
        expect_equal(runner(graph, isa, threads)(batch), expected)


@every_set
@pytest.mark.parametrize("side", [9, 28])
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_the_strips_of_real_convolutions_change_nothing(isa, side, precision):
    """Channels that fill the lines of a cache, so that tiles are multiplied by strips of several."""
    builder = Builder(np.random.default_rng(0), 64)
    graph = builder.graph([builder.add("conv2d", builder.add("conv2d", "x"))], side, side)
    x = np.repeat(samples(graph, 1), 3, axis=0)
    (one,) = runner(graph, isa, 1, precision)(x)
    for threads in (1, 2, 3):
        (found,) = runner(graph, isa, threads, precision)(x)
        expect_equal((found, found[1:]), (one, one[:2]))
