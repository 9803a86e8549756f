"""Drawn networks as C in integers: the bits of the reference, sanitizers silent."""

import subprocess
import sys
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given as drawn_for
from hypothesis import reject, settings
from hypothesis import strategies as st
from tests.cases import SMALL, slow_beside
from tests.integers import of_input, run

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.format import Graph, Node, Value, load, pack_signs
from bitfactor.format.integer import integer_graph
from bitfactor.format.model import ModelFile
from bitfactor.runtime.runner import magnitudes_on
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c

IMAGES = 3
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LEVELS = "023"
COMPILERS = {"gcc": ["gcc"], "clang": [sys.executable, "-m", "ziglang", "cc"]}


class Drawn:
    """A network that is drawn operation by operation."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)
        side, self.channels = int(self.draw.integers(5, 10)), 3
        self.graph = Graph(Value("x", (3, side, side + 1), "float32"), (), ("x",))
        self.nodes, self.current = [], "x"

    def add(self, op, *inputs, attributes=None, **tensors):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(Node(name, op, inputs or (self.current,), attributes or {}, tensors))
        self.graph = Graph(self.graph.input, tuple(self.nodes), (name,))
        self.current = name
        return name

    @property
    def shape(self):
        return self.graph.values[self.current].shape

    def of(self, count, low=-1.0, high=1.0):
        return self.draw.uniform(low, high, count).astype(np.float32)

    def window(self, groups=1, **more):
        kernel = int(self.draw.choice([1, 3, 3, 5]))
        dilation = int(self.draw.choice([1, 1, 2])) if kernel == 3 else 1
        around = (int(self.draw.integers(0, 2)) + dilation * (kernel // 2),) * 2
        side = min(self.shape[1:])
        while side + 2 * around[0] < dilation * (kernel - 1) + 1:
            around = (around[0] + 1,) * 2
        stride = int(self.draw.choice([1, 1, 2])) if side > 4 else 1
        attributes = {"stride": (stride, 1), "padding": around * 2, "dilation": (dilation,) * 2}
        return kernel, {**attributes, "groups": groups, **more}

    def real(self, outputs, groups=1):
        kernel, window = self.window(groups)
        depth = self.shape[0] // groups
        weight = self.draw.normal(size=(outputs, kernel, kernel, depth)).astype(np.float32)
        self.add("conv2d", attributes=window, weight=weight, bias=self.of(outputs))

    def binary(self, outputs, groups=1):
        source, channels = self.current, self.shape[0]
        direction = self.draw.choice(np.array([-1, 1], np.int8), channels)
        if self.draw.random() < 0.5:
            direction[:] = 1
        self.add("threshold", threshold=self.of(channels), direction=direction)
        kernel, window = self.window(groups, pad_value=int(self.draw.integers(-1, 2)))
        signs = self.draw.choice(np.array([-1, 1], np.int8), (outputs, kernel, kernel, channels // groups))
        self.add("binary_conv2d", attributes=window, weight=pack_signs(signs))
        self.add("scale", alpha=self.of(outputs, -0.3, 0.3))
        if self.draw.random() < 0.4:
            self.add("affine", scale=self.of(outputs), shift=self.of(outputs))
        if self.draw.random() < 0.7:
            self.add("prelu", slope=self.of(outputs, -0.5, 1.0)) if self.draw.random() < 0.6 else self.add(
                "relu"
            )
        if self.shape == self.graph.values[source].shape and self.draw.random() < 0.8:
            self.add("add", self.current, source)
        if self.draw.random() < 0.3:
            self.add("clip", attributes={"lower": -1.0, "upper": 1.0})

    def residual(self, outputs, **curve):
        """Batch norm, a shortcut and what bends it, and every second pixel where channels are added."""
        before, channels, (height, width) = self.current, self.shape[0], self.shape[1:]
        stride = 2 if outputs > channels else 1
        self.add("threshold", threshold=self.of(channels), direction=np.ones(channels, np.int8))
        window = {
            "stride": (stride,) * 2,
            "padding": (1,) * 4,
            "dilation": (1, 1),
            "groups": 1,
            "pad_value": 0,
        }
        signs = self.draw.choice(np.array([-1, 1], np.int8), (outputs, 3, 3, channels))
        self.add("binary_conv2d", attributes=window, weight=pack_signs(signs))
        self.add("scale", alpha=self.of(outputs, 0.01, 0.1))
        self.add("affine", scale=self.of(outputs), shift=self.of(outputs))
        ended = self.current
        self.current = before
        if stride == 2:
            self.add("slice", before, attributes={"range": (1, 0, height, 2)})
            self.add("slice", attributes={"range": (2, 0, width, 2)})
            half = (outputs - channels) // 2
            self.add("pad", attributes={"axis": 0, "before": half, "after": half, "value": 0.0})
        self.add("add", ended, self.current)
        if not curve and self.draw.random() < 0.4:
            self.add("clip", attributes={"lower": -1.0, "upper": 1.0})
        else:
            self.rprelu(outputs, **curve)

    def rprelu(self, channels, before=None, behind=None, steepest=None):
        """A PReLU, of slopes that may be above 1, and a shift before and behind it, each or none."""
        ones, (may, might) = np.ones(channels, np.float32), self.draw.random(2) < 0.6
        drawn = self.draw.choice([0.9, 0.9, 1.5])
        if may if before is None else before:
            self.add("affine", scale=ones, shift=self.of(channels))
        self.add("prelu", slope=self.of(channels, -0.5, steepest or drawn))
        if might if behind is None else behind:
            self.add("affine", scale=ones, shift=self.of(channels))

    def joined(self):
        before = self.current
        self.add("affine", scale=self.of(self.shape[0]), shift=self.of(self.shape[0]))
        self.add("prelu", slope=self.of(self.shape[0], 0.0, 0.5))
        self.add("concat", before, self.current)

    def pooled(self):
        pool = {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 1, 1, 0)}
        if self.draw.random() < 0.5:
            self.add("max_pool2d", attributes=pool)
        else:
            self.add("avg_pool2d", attributes={**pool, "count_include_pad": int(self.draw.integers(2))})

    def moved(self):
        for op, attributes in (
            ("clip", {"lower": -0.75, "upper": 1.5}),
            ("upsample_nearest", {"scale": (1, 2)}),
            ("pad", {"axis": 2, "before": 1, "after": 0, "value": 0.25}),
            ("permute", {"order": (0, 2, 1)}),
        ):
            if self.draw.random() < 0.4:
                self.add(op, attributes=attributes)

    def ended(self):
        if self.draw.random() < 0.5:
            self.add("global_avg_pool")
        self.add("flatten")
        features = self.shape[0]
        if self.draw.random() < 0.8:
            weight = self.draw.normal(size=(5, features)).astype(np.float32)
            self.add("linear", weight=weight, bias=self.of(5))


def drawn(seed):
    net = Drawn(seed)
    net.real(int(net.draw.choice([4, 12, 16])))
    for _ in range(4):
        channels = net.shape[0]
        step = net.draw.choice(["binary", "same", "groups", "joined", "pooled", "moved", "real", "residual"])
        if step == "binary":
            net.binary(int(net.draw.choice([4, 8, 20, 32])))
        elif step == "same":
            net.binary(channels)
        elif step == "groups":
            net.binary(channels, 2) if net.draw.random() < 0.5 else net.real(channels, 2)
        elif step == "residual" and min(net.shape[1:]) > 2:
            net.residual(channels if channels % 8 or net.draw.random() < 0.5 else 2 * channels)
        elif step == "joined" and channels < 48:
            net.joined()
        elif step == "real":
            net.real(8)
        else:
            net.moved() if step == "moved" else net.pooled()
    net.ended()
    return net.graph


def as_model(graph, *, image):
    height, width = graph.input.shape[1:]
    spec = InputSpec((height, width), (height, width), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)) if image else None
    return ModelFile(graph=graph, golden_outputs=(), input_spec=spec)


def written(model, folder, kind, samples=None):
    """Write a network as C with a program that runs it on inputs from stdin."""
    export_c(model, folder / "net.c", precision="integer", samples=samples)
    entry = "net_run_image" if kind == "uint8_t" else "net_run"
    assert f"void {entry}(const {kind} *input" in (folder / "net.h").read_text()
    size = prod(model.graph.input.shape)
    (folder / "main.c").write_text(
        f'#include <stdio.h>\n#include "net.h"\nint main(void) {{ static {kind} x[{size}]; '
        f"static int32_t y[NET_OUTPUT_SIZE];\nwhile (fread(x, sizeof x, 1, stdin)) "
        f"{{ {entry}(x, y); fwrite(y, sizeof y, 1, stdout); }} return 0; }}\n"
    )


def outputs_of(folder, inputs, *flags, compiler=("gcc",)):
    """Compile what was written, and run it on inputs (N, H, W, C)."""
    sources = [str(folder / "main.c"), str(folder / "net.c")]
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, *strict, *flags, *sources, "-o", str(folder / "a")], check=True)
    done = subprocess.run([folder / "a"], input=inputs.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.int32).reshape(len(inputs), -1)


def drawn_case(seed, graph=None):
    """Return a drawn network, its samples if ranges need them, inputs (N, H, W, C), and the right outputs."""
    model = as_model(graph or drawn(seed), image=seed % 2 == 0)
    shape = (IMAGES, *model.graph.input.shape)
    draw = np.random.default_rng(seed)
    if model.input_spec:
        graph, samples = integer_graph(model.graph, model.input_spec), None
        integers = draw.choice([-128, -5, 0, 99, 127], shape)
        given = (integers + 128).astype(np.uint8)
    else:
        samples = draw.normal(size=shape).astype(np.float32)
        graph = integer_graph(model.graph, ranges=magnitudes_on(model.graph, samples))
        integers = of_input(graph, 2 * samples)
        given = integers.astype(np.int16)
    (expected,) = run(graph, integers)
    return model, samples, np.ascontiguousarray(given.transpose(0, 2, 3, 1)), expected.reshape(IMAGES, -1)


# Others are compiled in tests/conformance.
@drawn_for(seed=st.integers(0, 1 << 20))
@settings(max_examples=12)
def test_a_drawn_network(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    try:
        model, samples, given, expected = drawn_case(seed)
    except InputError:  # its factors take more than 16 bits
        reject()
    written(model, folder, given.dtype.name + "_t", samples)
    np.testing.assert_array_equal(outputs_of(folder, given, *SANITIZERS), expected)


@pytest.mark.parametrize(
    ("curve", "kind"),
    [
        ({"before": False, "behind": False, "steepest": 0.9}, "_slope("),
        ({"before": True, "behind": False, "steepest": 0.9}, "_shifted_slope("),
        ({"before": False, "behind": True, "steepest": 0.9}, "_shifted_slope("),
        ({"before": True, "behind": True, "steepest": 0.9}, "_shifted_slope("),
        ({"before": True, "behind": True, "steepest": 1.5}, "prelu("),
    ],
    ids=["prelu", "shift, prelu", "prelu, shift", "rprelu", "steep rprelu"],
)
def test_a_prelu_and_its_shifts_end_a_row(curve, kind, tmp_path):
    """Of layers of one part and of two; slopes above 1 take a pass of their own."""
    net = Drawn(seed=2)
    net.real(16)
    for outputs in (16, 32, 32, 32):
        net.residual(outputs, **curve)
    net.ended()
    model, samples, given, expected = drawn_case(2, net.graph)
    written(model, tmp_path, given.dtype.name + "_t", samples)
    assert (tmp_path / "net.c").read_text().count(f"{kind}") > 2
    np.testing.assert_array_equal(outputs_of(tmp_path, given, *SANITIZERS), expected)


def test_bounds_follow_bounds_and_pads_of_other_values_pads(tmp_path):
    net = Drawn(seed=3)
    net.real(8)
    net.add("clip", attributes={"lower": -1.0, "upper": 1.0})
    net.add("clip", attributes={"lower": -0.5, "upper": 2.0})
    for axis, value in ((2, 0.25), (1, -0.5), (2, 0.25), (0, 0.75)):
        net.add("pad", attributes={"axis": axis, "before": 1, "after": 2, "value": value})
    net.ended()
    model, samples, given, expected = drawn_case(3, net.graph)
    written(model, tmp_path, given.dtype.name + "_t", samples)
    np.testing.assert_array_equal(outputs_of(tmp_path, given, *SANITIZERS), expected)


@pytest.mark.parametrize(
    ("name", "levels"),
    slow_beside(
        [(name, LEVELS if name == "digits" else "2") for name in SMALL], product(SMALL, (LEVELS, "2"))
    ),
)
def test_a_network_of_the_zoo_however_it_is_compiled(name, levels, tmp_path):
    """At -O2, gcc 12 drops loops that write to memory through two pointers of different steps."""
    model = load(file_of(name))
    graph = integer_graph(model.graph, model.input_spec)
    shape = (2, *model.input_spec.size, len(model.input_spec.mean))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    (expected,) = run(graph, pixels.transpose(0, 3, 1, 2).astype(np.int64) - 128)
    written(model, tmp_path, "uint8_t")
    for compiler, command in COMPILERS.items():
        for level in levels:
            found = outputs_of(tmp_path, pixels, f"-O{level}", compiler=command)
            np.testing.assert_array_equal(found, expected.reshape(2, -1), err_msg=f"{compiler} -O{level}")


@pytest.mark.parametrize("name", slow_beside(("lsp-hourglass",), SMALL))
def test_the_stack_of_a_function_is_small(name, tmp_path):
    written(load(file_of(name)), tmp_path, "uint8_t")
    command = ["gcc", "-std=c99", "-O3", "-fstack-usage", "-c", "net.c", "-o", "net.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    lines = [line.split("\t") for line in (tmp_path / "net.su").read_text().splitlines()]
    assert all(kind != "dynamic" and int(size) <= 1024 for _, size, kind in lines)
