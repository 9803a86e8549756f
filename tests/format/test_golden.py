"""A file that an earlier version wrote is read by this one, and does what it did.

`golden/` keeps one file of each format version. When the version changes, run this module as a script: it
writes the file of the new version beside the earlier ones, and prints what to add to `RECORDED`.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bitfactor.format import (
    Graph,
    InputSpec,
    ModelFile,
    Node,
    Signature,
    Skeleton,
    Value,
    load,
    pack_signs,
    save,
)
from bitfactor.format.bits import are_signs
from bitfactor.format.document import FORMAT_VERSION
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input, golden_inputs
from bitfactor.format.operations import OPERATIONS
from bitfactor.runtime import Session, instruction_sets

FOLDER = Path(__file__).parent / "golden"
SHAPE, OTHER_SHAPE = (3, 8, 6), (3, 12, 10)


@dataclass(frozen=True)
class Recorded:
    """SHA-256 of the file, and of its outputs for inputs of both shapes that are not its golden one."""

    file: str
    outputs: tuple[str, str]


RECORDED = {
    1: Recorded(
        "876771cbf12b050494f894b4ac20803e012c6c93462c4a26373bed45a2120abc",
        (
            "fd7ddb872f35c1f20dd9a25f252da89536df2baed83257768ed64d3cb6e86ad4",
            "8d9339523d97a2d28fcaf8f1057baf105d0983175e5d4a46702eb1bcb03cd0ff",
        ),
    ),
    2: Recorded(
        "6c22cd0e55ebd22f15d11559d43d9591e3069aa378beb58b8948b083af55ae29",
        (
            "4c4d4b7d9f8611b1adabc1c692cfabf52a4e3efafa03902651504ebb15e2dc19",
            "ef484c82a4299b49af32e723c5d4a8fb4f6b169b5db936b8c49bfd403b37281c",
        ),
    ),
    3: Recorded(
        "1237320b2158c819b798b807052eb3abd350f0f5cacfc4461f0b21dc4cd834d9",
        (
            "d94d8bc3d997004ced725ca382e474142eccc0c2e9f86d545ca1cf1e61c7a0fd",
            "84e80dea7507dc15c68d5777e602b61f0005c420e626587d35f23aad5b39b8f8",
        ),
    ),
}


class Numbers:
    """Arrays from one sequence of numbers from -2 to 2 that is the same everywhere."""

    def __init__(self):
        self.sequence = golden_input((5000,))[0]
        self.used = 0

    def floats(self, *shape):
        size = int(np.prod(shape))
        self.used += size
        return self.sequence[self.used - size : self.used].reshape(shape).copy()

    def signs(self, *shape):
        return np.where(self.floats(*shape) > 0, np.int8(1), np.int8(-1))


def golden_model():
    """A network of every operation, and of every type that weights may have."""
    draw = Numbers()
    sliding = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0)}
    nodes = []

    def add(name, op, *inputs, attributes=None, **tensors):
        nodes.append(Node(name, op, inputs, attributes or {}, tensors))

    def sign(name, source, channels):
        add(name, "threshold", source, threshold=draw.floats(channels) / 4, direction=draw.signs(channels))

    ranges = np.float32([[-2, -2, -2], [2, 2, 2]])
    add(
        "stem",
        "conv2d",
        "x",
        attributes=sliding,
        weight=draw.floats(8, 3, 3, 3),
        bias=draw.floats(8),
        range=ranges,
    )
    add("norm", "affine", "stem", scale=draw.floats(8), shift=draw.floats(8))
    sign("bits", "norm", 8)
    packed = pack_signs(draw.signs(8, 3, 3, 8))
    add("binary", "binary_conv2d", "bits", attributes={**sliding, "pad_value": 0}, weight=packed)
    add("alpha", "scale", "binary", alpha=draw.floats(8))
    add("slope", "prelu", "alpha", slope=draw.floats(8))
    add("sum", "add", "slope", "norm")
    add("pool", "max_pool2d", "sum", attributes=pool)
    add("up", "upsample_nearest", "pool", attributes={"scale": (2, 2)})
    add("gate", "sigmoid", "sum")
    add("product", "multiply", "up", "gate")
    add("both", "concat", "product", "up")
    add("turned", "permute", "both", attributes={"order": (0, 2, 1)})
    add("half", "slice", "turned", attributes={"range": (0, 1, 16, 2)})
    add("cut", "clip", "half", attributes={"lower": -1.5, "upper": 2.0})
    mean = {**pool, "padding": (1, 0, 1, 0), "count_include_pad": 0}
    add("mean", "avg_pool2d", "cut", attributes=mean)
    half_floats = draw.floats(4, 1, 1, 8).astype(np.float16)
    plain = {**sliding, "padding": (0, 0, 0, 0)}
    add("maps", "conv2d", "mean", attributes=plain, weight=half_floats, bias=draw.floats(4))
    add("positive", "relu", "maps")
    sign("bits2", "positive", 4)
    grouped = {"stride": (2, 1), "padding": (1, 2, 0, 1), "dilation": (1, 2), "groups": 2, "pad_value": 1}
    packed = pack_signs(draw.signs(6, 2, 2, 2))
    add("binary2", "binary_conv2d", "bits2", attributes=grouped, weight=packed)
    add("alpha2", "scale", "binary2", alpha=draw.floats(6))
    add("global", "global_avg_pool", "alpha2")
    add("each", "scale", "global", alpha=draw.floats(6, 1, 1))
    add("square", "reshape", "each", attributes={"shape": (2, 3)})
    add("flat", "flatten", "square")
    whole = (draw.floats(5, 6) * 60).astype(np.int8)
    add("real", "linear", "flat", weight=whole, step=np.abs(draw.floats(5)) / 64, bias=draw.floats(5))
    sign("bits3", "flat", 6)
    add("binary3", "binary_linear", "bits3", weight=pack_signs(draw.signs(5, 6)))
    add("alpha3", "scale", "binary3", alpha=draw.floats(5))
    add("logits", "add", "alpha3", "real")
    add("weighted", "multiply", "logits", "weights")
    add("chosen", "multiply", "weighted", "on")
    add("classes", "softmax", "chosen")
    levels = {"lowest": np.float32([-1.0]), "inverse": np.float32([100.0])}
    whole = (draw.floats(4, 1, 1, 4) * 60).astype(np.int8)
    fewer = {**levels, "scale": draw.floats(4) / 64, "bias": draw.floats(4)}
    add("fewer", "quantised_conv2d", "maps", attributes=plain, weight=whole, **fewer)
    whole = (draw.floats(5, 6) * 60).astype(np.int8)
    fewer = {**levels, "scale": draw.floats(5) / 64, "bias": draw.floats(5)}
    add("fewer2", "quantised_linear", "flat", weight=whole, **fewer)
    turned = {"split": (3, 2), "parts": (1, 1), "repeats": (2,), "groups": ((2, 0), (1,))}
    add("turned2", "rearrange", "square", attributes=turned)
    add("longer", "pad", "turned2", attributes={"axis": 1, "before": 1, "after": 1, "value": 0.5})
    add("some", "take", "longer", attributes={"axis": 1, "indices": (7, 0, 3, 3)})
    add("fixed", "constant", value=draw.floats(2, 2))
    add("joined", "join", "some", "fixed", attributes={"axis": 1})
    add("normal", "layer_norm", "joined", attributes={"eps": 1e-5})
    for name, source in (("gelu", "normal"), ("exp", "gelu"), ("log", "exp"), ("sqrt", "exp")):
        add(name, name, source)
    add("reciprocal", "reciprocal", "sqrt")
    add("sum2", "add", "reciprocal", "log")
    add("cube", "reshape", "sum2", attributes={"shape": (2, 1, 6)})
    add("squares", "matmul", "cube", "cube", attributes={"groups": 1, "transposed": 1})
    size = {"size": (2, 0), "scale": (0.0, 1.5), "align_corners": 0}
    add("wide", "resize_bilinear", "squares", attributes=size)
    add("sums", "reduce_channels", "wide", attributes={"how": "sum"})
    add("peaks", "reduce_pixels", "wide", attributes={"how": "max"})
    add("rows", "embedding", "on", table=draw.floats(2, 3))
    signs = draw.signs(4, 6)
    add("kept", "linear", "flat", weight=signs, step=np.abs(draw.floats(4)), bias=draw.floats(4))
    others = (Value("weights", (5,), "float32"), Value("on", (5,), "float32"))
    outputs = ("classes", "maps", "fewer", "fewer2", "sums", "peaks", "rows", "kept")
    graph = Graph(Value("x", SHAPE, "float32"), tuple(nodes), outputs, others)
    given = {2: np.array([[1, 0, 1, 1, 0]], np.float32)}
    return ModelFile(
        graph,
        run(graph, *golden_inputs(graph, given)),
        InputSpec((8, 6), (10, 8), (0.5, 0.4, 0.3), (0.25, 0.2, 0.2)),
        ("circle", "square", "star", "line", "point"),
        Skeleton(("head", "left_hand", "right_hand", "hip"), ((1, 2),), ((0, 1), (0, 2), (0, 3))),
        {"recipe": "golden", "bitfactor": "0.1.0"},
        (OTHER_SHAPE,),
        {"warnings": ["a network for tests"]},
        Signature(
            ("float32", "float32", "bool"), {"classes": 0, "maps": ([1], None), "fewer": [2, 3, 4, 5, 6, 7]}
        ),
        given,
    )


def inputs(version):
    """Two samples of each shape that the file takes."""
    maps = [-golden_input((2, *shape))[0] for shape in (SHAPE, OTHER_SHAPE)]
    if version == 1:
        return [(x,) for x in maps]
    return [(x, golden_input((2, 5))[0], golden_input((2, 5))[0] > 0) for x in maps]


def digest(outputs):
    if isinstance(outputs, dict):
        outputs = outputs["classes"], outputs["maps"][0][0], *outputs["fewer"]
    joined = b"".join(np.ascontiguousarray(output).tobytes() for output in outputs)
    return hashlib.sha256(joined).hexdigest()


def path_of(version):
    return FOLDER / f"version{version}.safetensors"


every_version = pytest.mark.parametrize("version", RECORDED)


def test_there_is_a_file_of_this_version_and_of_every_one_before():
    assert list(RECORDED) == list(range(1, FORMAT_VERSION + 1))
    assert sorted(FOLDER.iterdir()) == [path_of(version) for version in RECORDED]


@every_version
def test_the_file_is_the_recorded_one(version):
    assert hashlib.sha256(path_of(version).read_bytes()).hexdigest() == RECORDED[version].file


@every_version
@pytest.mark.parametrize("isa", [*instruction_sets(), "reference"])
def test_it_does_what_it_did(version, isa):
    session = Session(path_of(version), isa=isa)
    session.verify()
    assert tuple(digest(session(*xs)) for xs in inputs(version)) == RECORDED[version].outputs


def test_the_newest_holds_every_operation_and_all_that_a_file_can_hold():
    model = load(path_of(FORMAT_VERSION))
    assert {node.op for node in model.graph.nodes} == {op for op in OPERATIONS if OPERATIONS[op].in_files}
    types = {node.tensors["weight"].dtype for node in model.graph.nodes if "weight" in node.tensors}
    assert types == {np.dtype(name) for name in ("float32", "float16", "int8", "uint64")}
    assert any(
        are_signs("weight", node.tensors["weight"]) for node in model.graph.nodes if node.name == "kept"
    )
    for part in ("input_spec", "labels", "skeleton", "provenance", "other_shapes", "report", "signature"):
        assert getattr(model, part) == getattr(golden_model(), part)
        assert getattr(model, part)


def test_it_is_written_the_same_today(tmp_path):
    save(tmp_path / "now.safetensors", golden_model())
    assert (tmp_path / "now.safetensors").read_bytes() == path_of(FORMAT_VERSION).read_bytes()


if __name__ == "__main__":
    newest = path_of(FORMAT_VERSION)
    save(newest, golden_model())
    outputs = tuple(digest(Session(newest)(*xs)) for xs in inputs(FORMAT_VERSION))
    print(FORMAT_VERSION, Recorded(hashlib.sha256(newest.read_bytes()).hexdigest(), outputs))
