"""The core refuses a program that breaks a rule; every kind of instruction has rules."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cases import SMALL

from bitfactor.common import _native
from bitfactor.format import Graph, Node, Value, load, pack_signs
from bitfactor.format.program import Buffer, Instruction, SlidingWindow
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import Program, program_of
from bitfactor.runtime.zoo import file_of

ROOT = Path(__file__).parents[2]
KINDS = sorted(
    kind
    for file in (
        *ROOT.glob("native/steps/*.cpp"),
        ROOT / "native/program/program.cpp",
        ROOT / "native/program/description.cpp",
    )
    for kinds in re.findall(r"Kinds \w+_kinds\(\) \{(.*?)\n?\}\n", file.read_text(), re.DOTALL)
    for kind in re.findall(r'\{"(\w+)"', kinds)
)


def program_with_every_operation() -> Program:
    """Beside the zoo's: what their networks do not have."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    channels = {"alpha": floats(4), "scale": floats(4), "shift": floats(4), "slope": floats(4)}
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0)}
    nodes = (
        Node("scaled", "scale", ("x",), {}, {"alpha": channels["alpha"]}),
        Node("moved", "affine", ("scaled",), {}, {"scale": channels["scale"], "shift": channels["shift"]}),
        Node("bent", "prelu", ("moved",), {}, {"slope": channels["slope"]}),
        Node("cut", "clip", ("bent",), {"lower": -1.0, "upper": 1.0}),
        Node("pressed", "sigmoid", ("cut",)),
        Node("mean", "avg_pool2d", ("pressed",), {**window, "count_include_pad": 0}),
        Node("most", "max_pool2d", ("pressed",), window),
        Node("both", "concat", ("mean", "most")),
        Node("turned", "permute", ("both",), {"order": (2, 1, 0)}),
        Node("large", "upsample_nearest", ("both",), {"scale": (2, 2)}),
        Node("gate", "global_avg_pool", ("large",)),
        Node("gated", "multiply", ("large", "gate")),
        Node("shares", "softmax", ("gated",)),
    )
    return program_of(Graph(Value("x", (4, 6, 6), "float32"), nodes, ("shares", "turned")))


def description(outputs: list[Buffer]) -> list[Instruction]:
    pair = np.array([[0, 1]], np.int64)
    return [
        Instruction.of("image", size=(8, 8), resize=(9, 9), mean=np.zeros(1, "f"), std=np.ones(1, "f")),
        Instruction.of("labels", names="a\0b\0"),
        Instruction.of("skeleton", edges=pair, flip_pairs=pair),
        Instruction.of("golden_input", values=np.zeros((1, 64), np.float32)),
        Instruction.of("golden_output", values=np.zeros((1, 10), np.float32)),
    ]


def quantised() -> tuple[list[Instruction], int]:
    """A layer of 8-bit integers."""
    image, result = Buffer(0, 16, 3, False), Buffer(192, 16, 2, False)
    window = SlidingWindow((4, 4), (4, 4), (1, 1), (1, 1), (0, 0), (1, 1))
    ones = np.ones(2, np.float32)
    return [
        Instruction.of("input", buffer=image, name="x", shape=(3, 4, 4), dtype="float32"),
        Instruction.of(
            "quantised_conv",
            source=image,
            window=window,
            groups=1,
            weight=np.ones((2, 1, 1, 3), np.uint8),
            scale=ones,
            bias=ones,
            lowest=ones[:1],
            inverse=ones[:1],
        ),
        Instruction.of("store", buffer=result),
        Instruction.of("output", buffer=result, name="y", shape=(2, 4, 4), dtype="float32"),
    ], 320


def in_integers() -> Program:
    """Precision `integer`: all that a network of the zoo does not have."""
    rng = np.random.default_rng(0)

    def shorts(count: int, dtype: type = np.int16) -> np.ndarray:
        return rng.integers(-100, 101, count).astype(dtype)

    window = {"stride": (1, 1), "padding": (1, 1, 1, 1)}
    layer = {
        "weight": rng.integers(-9, 10, (4, 3, 3, 2)).astype(np.int8),
        "bias": shorts(4, np.int32),
        "outside": shorts(4),
        "multiplier": shorts(4),
    }
    sliding = {**window, "dilation": (1, 1), "groups": 2, "largest": 128, "shift": 7}
    bounds = {"lower": -99, "upper": 99}
    one = {"positive0": shorts(4), "negative0": shorts(4)}
    two = {"positive1": shorts(4), "negative1": shorts(4)}
    pool = {"kernel": (2, 3), **window, "count_include_pad": 0}
    nodes = (
        Node("n", "integer_quantise", ("x",), {"lower": -128, "upper": 127},
             {"factor": np.ones(4, "f"), "offset": np.ones(4, "f")}),
        Node("conv", "integer_conv2d", ("n",), sliding, layer),
        Node("bent", "integer_prelu", ("conv",), {"shift": 3}, {"slope": shorts(4)}),
        Node("moved", "integer_weigh", ("bent",), {"shifts": (2,), **bounds},
             {**one, "offset": shorts(4, np.int32)}),
        Node("sum", "integer_add", ("moved", "conv"), {"shifts": (1, 2), **bounds}, {**one, **two}),
        Node("mean", "integer_avg_pool2d", ("sum",), pool),
        Node("last", "integer_linear", ("mean",), {"largest": 32767, "shift": 0},
             {"weight": layer["weight"][:, 0, 0].repeat(2, 1), "bias": layer["bias"],
              "outside": layer["outside"], "scale": np.ones(1, "f")}),
    )  # fmt: skip
    return program_of(Graph(Value("x", (4, 6, 6), "float32"), nodes, ("last",)))


def all_programs() -> list[tuple[list[Instruction], int]]:
    """Programs that have an instruction of each kind."""
    files = [*map(file_of, SMALL), ROOT / "tests/format/golden/version2.safetensors"]
    programs = [program_of(packed(load(file).graph)) for file in files]
    programs += [program_with_every_operation(), in_integers()]
    found = [([i for layer in p.layers for i in layer.instructions], p.arena_bytes) for p in programs]
    digits = next(at for at, name in enumerate(SMALL) if name == "digits")
    found[digits][0].extend(description([]))
    return [*found, quantised()]


PROGRAMS = all_programs()


def load_all(instructions: list[Instruction], arena_bytes: int) -> _native.Program:
    core = _native.Program(isa="scalar", threads=1, arena_bytes=arena_bytes)
    for instruction in instructions:
        core.add(kind=instruction.kind, arguments=dict(instruction.arguments))
    return core


def example_of(kind: str) -> tuple[list[Instruction], int, int]:
    """The shortest program that has the kind, and where."""
    having = [(p, arena) for p, arena in PROGRAMS if any(i.kind == kind for i in p)]
    program, arena = min(having, key=lambda one: len(one[0]))
    return program, arena, next(at for at, i in enumerate(program) if i.kind == kind)


def expect_refused(program: list[Instruction], arena: int, at: int, arguments: dict[str, np.ndarray]) -> str:
    changed = [*program[:at], Instruction(program[at].kind, arguments), *program[at + 1 :]]
    with pytest.raises(ValueError, match="expected") as refusal:
        load_all(changed, arena)
    return str(refusal.value)


def test_every_kind_is_in_a_program():
    assert KINDS
    assert set(KINDS) == {i.kind for program, _ in PROGRAMS for i in program}


def test_whole_programs_are_taken():
    for program, arena in PROGRAMS:
        load_all(program, arena)


@pytest.mark.parametrize("kind", KINDS)
def test_no_argument_is_missing_or_unknown(kind):
    program, arena, at = example_of(kind)
    arguments = dict(program[at].arguments)
    optional = {"of_last", "apart", "count_include_pad", "keep_aspect", "maps", "transposed"}
    optional |= {"offset"} if kind == "weigh" else set()
    for name in arguments.keys() - optional:
        message = expect_refused(program, arena, at, {k: v for k, v in arguments.items() if k != name})
        assert f"({kind})" in message
    assert "no typo" in expect_refused(program, arena, at, {**arguments, "typo": np.zeros(1, np.int64)})


@pytest.mark.parametrize("kind", KINDS)
def test_no_argument_has_another_type_or_size(kind):
    program, arena, at = example_of(kind)
    arguments = dict(program[at].arguments)
    for name, value in arguments.items():
        other = value.astype(np.int32 if value.dtype != np.int32 else np.float32)
        expect_refused(program, arena, at, {**arguments, name: other})
        if value.dtype != np.uint8 or value.ndim > 1:  # a text may be longer
            longer = np.concatenate([value.reshape(-1), value.reshape(-1)[:1]])
            expect_refused(program, arena, at, {**arguments, name: longer})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [-1, 1 << 40])
def test_no_integer_is_out_of_range(kind, wrong):
    program, arena, at = example_of(kind)
    arguments = dict(program[at].arguments)
    for name, value in arguments.items():
        if value.dtype != np.int64:
            continue
        for place in range(value.size):
            changed = value.copy()
            changed.reshape(-1)[place] = wrong
            if name in ("pad_value", "lower", "upper") and wrong == -1:
                continue
            expect_refused(program, arena, at, {**arguments, name: changed})


def buffers_of(instruction: Instruction) -> list[str]:
    return [name for name in ("source", "sources", "buffer") if name in instruction.arguments]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if buffers_of(example_of(kind)[0][example_of(kind)[2]])]
)
def test_no_map_lies_elsewhere_or_has_another_size(kind):
    program, arena, at = example_of(kind)
    arguments = dict(program[at].arguments)
    name = buffers_of(program[at])[-1]
    for place, change in ((0, 4), (0, 64), (0, arena), (1, 1), (2, 1), (3, 1)):
        changed = arguments[name].copy()
        changed[place] = 1 - changed[place] if place == 3 else changed[place] + change
        expect_refused(program, arena, at, {**arguments, name: changed})


def small_program(stored: int = 256, source: int = 0, arena: int = 512) -> tuple[list[Instruction], int]:
    """Of 16 pixels of 4 numbers: relu from a place to another."""
    image = Buffer(0, 16, 4, False)
    shape = {"shape": (4, 4, 4), "dtype": "float32"}
    return [
        Instruction.of("input", buffer=image, name="x", **shape),
        Instruction.of("pointwise", source=Buffer(source, 16, 4, False)),
        Instruction.of("relu"),
        Instruction.of("store", buffer=Buffer(stored, 16, 4, False)),
        Instruction.of("output", buffer=Buffer(stored, 16, 4, False), name="y", **shape),
    ], arena


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stored": 0}, "does not write what it reads"),
        ({"stored": 128, "arena": 384}, "does not write what it reads"),
        ({"source": 256}, "a map that has been written"),
        ({"arena": 0}, "within the arena"),
        ({"arena": 256}, "within the arena"),
        ({"arena": 4096}, "an arena of the 512 bytes"),
        ({"arena": 1 << 40}, "at most 4 GiB"),
    ],
)
def test_places_in_the_arena(change, message):
    load_all(*small_program())
    with pytest.raises(ValueError, match=message):
        load_all(*small_program(**change))


def test_order():
    program, arena = small_program()
    x, rows, relu, store, y = program
    for wrong in (
        [rows],
        [x, relu],
        [x, x],
        [x, y],
        [x, rows, store, x],
        [*program, rows],
        [*program, relu, y],
    ):
        with pytest.raises(ValueError, match="expected"):
            load_all(wrong, arena)
    with pytest.raises(ValueError, match="no instruction is called reul"):
        load_all([Instruction.of("reul")], arena)
    core = load_all(program[:-1], arena)
    with pytest.raises(ValueError, match="a program with an output"):
        core.run(x=np.zeros((1, 64), np.float32), outs=[])


def test_signs_beyond_the_last_channel():
    signs = pack_signs(np.ones((2, 1, 1, 3), np.int8)).view(np.uint32)[..., :1].copy()
    bits, sums = Buffer(256, 16, 3, True), Buffer(384, 16, 2, False)
    image = Buffer(0, 16, 3, False)
    window = SlidingWindow((4, 4), (4, 4), (1, 1), (1, 1), (0, 0), (1, 1))
    ones = np.ones(3, np.float32)

    def built(weight: np.ndarray) -> list[Instruction]:
        return [
            Instruction.of("input", buffer=image, name="x", shape=(3, 4, 4), dtype="float32"),
            Instruction.of("pointwise", source=image),
            Instruction.of("signs", buffer=bits, direction=ones, threshold=ones),
            Instruction.of(
                "binary_conv", source=bits, window=window, groups=1, in_channels=3, weight=weight, pad_value=0
            ),
            Instruction.of("store", buffer=sums),
            Instruction.of("output", buffer=sums, name="y", shape=(2, 4, 4), dtype="int32"),
        ]

    load_all(built(signs), 512)
    with pytest.raises(ValueError, match="unused bits"):
        load_all(built(signs | np.uint32(8)), 512)


def test_what_a_program_takes_is_what_it_gives():
    core = load_all(*small_program())
    out = np.empty((1, 64), np.float32)
    x = np.linspace(-1, 1, 64, dtype=np.float32)[None]
    assert core.run(x=x, outs=[out])
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert math.isclose(out.max(), 1)
