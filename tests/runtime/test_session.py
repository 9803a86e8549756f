"""Session: what it accepts, what it refuses, and that it needs no torch."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node, Value, pack_signs, save
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input
from bitfactor.format.signature import FreeSizes
from bitfactor.runtime import Session, instruction_sets

RNG = np.random.default_rng(0)


def small_graph(*outputs: str) -> Graph:
    """Sign, binary convolution, alpha, mean, flatten, linear; (3, 6, 5) -> (4,)."""
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
    signs = RNG.choice(np.array([-1, 1], np.int8), (8, 3, 3, 3))
    nodes = (
        Node(
            "bits",
            "threshold",
            ("x",),
            {},
            {"threshold": np.zeros(3, np.float32), "direction": np.ones(3, np.int8)},
        ),
        Node("sums", "binary_conv2d", ("bits",), window, {"weight": pack_signs(signs)}),
        Node("scaled", "scale", ("sums",), {}, {"alpha": RNG.standard_normal(8, np.float32)}),
        Node("mean", "global_avg_pool", ("scaled",)),
        Node("flat", "flatten", ("mean",)),
        Node(
            "scores",
            "linear",
            ("flat",),
            {},
            {"weight": RNG.standard_normal((4, 8), np.float32), "bias": RNG.standard_normal(4, np.float32)},
        ),
    )
    return Graph(Value("x", (3, 6, 5), "float32"), nodes, outputs or ("scores",))


def model_of(graph: Graph) -> ModelFile:
    return ModelFile(graph, run(graph, golden_input(graph.input.shape)), labels=("a", "b", "c", "d"))


@pytest.fixture(scope="module")
def model() -> ModelFile:
    return model_of(small_graph())


@pytest.fixture(scope="module")
def path(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "net.safetensors"
    save(path, model)
    return path


def images(n: int) -> np.ndarray:
    return RNG.standard_normal((n, 3, 6, 5), np.float32)


@pytest.mark.parametrize("isa", [*instruction_sets(), "reference"])
def test_gives_the_reference_and_verifies(path, model, isa, monkeypatch):
    x = images(3)
    session = Session(path, isa=isa)
    np.testing.assert_array_equal(session(x), run(model.graph, x)[0])
    assert session.isa == isa
    session.verify()
    monkeypatch.setenv("BITFACTOR_ISA", isa)
    assert Session(path).isa == isa


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_verifies_at_another_precision(path, precision):
    x, session = images(3), Session(path, precision=precision)
    assert session.precision == precision
    assert session(x).shape == Session(path)(x).shape
    session.verify()


def test_refuses_an_unknown_precision(path):
    with pytest.raises(
        InputError,
        match=r"precision\): expected one of highest, high, medium, low, integer, found 'hihg'; did you mean",
    ):
        Session(path, precision="hihg")


def test_attributes(path, model, monkeypatch):
    monkeypatch.delenv("BITFACTOR_ISA", raising=False)
    session = Session(path, threads=2)
    assert session.threads == 2
    assert session.isa == instruction_sets()[0]
    assert session.input_shape == (3, 6, 5)
    assert session.labels == model.labels
    assert session.model.graph.outputs == ("scores",)


def test_the_argument_goes_before_the_environment(path, monkeypatch):
    monkeypatch.setenv("BITFACTOR_ISA", "no such set")
    assert Session(path, isa="scalar").isa == "scalar"


@pytest.mark.parametrize("isa", [instruction_sets()[0], "reference"])
def test_several_outputs_are_a_tuple_of_their_own_types(tmp_path, isa):
    graph = small_graph("scores", "sums", "bits", "x")
    save(tmp_path / "net.safetensors", model_of(graph))
    x = images(2)
    outputs = Session(tmp_path / "net.safetensors", isa=isa)(x)
    assert [(out.dtype, out.shape) for out in outputs] == [
        (np.float32, (2, 4)),
        (np.int32, (2, 8, 6, 5)),
        (np.int8, (2, 3, 6, 5)),
        (np.float32, (2, 3, 6, 5)),
    ]
    for found, expected in zip(outputs, run(graph, x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_empty_batch_gives_an_empty_result(path):
    assert Session(path)(images(0)).shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8, np.int16, np.bool_])
def test_takes_types_that_float32_holds(path, dtype):
    x = (images(2) > 0).astype(dtype)
    session = Session(path)
    np.testing.assert_array_equal(session(x), session(x.astype(np.float32)))


def test_a_call_reads_no_annotations(path, monkeypatch):
    """What is known of the file is looked at once: to do it in each call took longer than a small network."""
    session = Session(path)
    x = np.zeros((1, *session.input_shape), np.float32)
    session(x)
    monkeypatch.setattr("bitfactor.common.checks._hints", None)
    monkeypatch.setattr("bitfactor.format.signature.check_fields", None)
    session(x)


def test_takes_any_memory_order(path):
    x = images(4)
    session = Session(path)
    np.testing.assert_array_equal(session(np.asfortranarray(x)), session(x))
    np.testing.assert_array_equal(session(x[::2]), session(np.ascontiguousarray(x[::2])))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (images(1)[0], r"expected shape \(N, 3, 6, 5\), found \(3, 6, 5\)"),
        (images(1)[:, :2], r"found \(1, 2, 6, 5\)"),
        (images(1).astype(np.float64), "found float64; use numpy.asarray"),
        (images(1).astype(np.int64), "found int64"),
        (images(1).astype(np.complex64), "found complex64"),
        (np.full((1, 3, 6, 5), np.nan, np.float32), r"found nan at \[0, 0, 0, 0\]"),
        (np.full((1, 3, 6, 5), np.inf, np.float32), r"found inf at \[0, 0, 0, 0\]"),
    ],
)
def test_refuses_other_input(path, x, message):
    with pytest.raises(InputError, match=message):
        Session(path)(x)


def test_refuses_an_unknown_instruction_set(path, monkeypatch):
    with pytest.raises(InputError, match=r"isa: expected .* found 'scalr'; did you mean scalar"):
        Session(path, isa="scalr")
    monkeypatch.setenv("BITFACTOR_ISA", "no such set")
    with pytest.raises(InputError, match="BITFACTOR_ISA: expected an instruction set of this machine"):
        Session(path)


@pytest.mark.parametrize("threads", [0, -1])
def test_refuses_fewer_than_one_thread(path, threads):
    with pytest.raises(InputError, match="threads: expected 1 to 1024"):
        Session(path, threads=threads)


def test_refuses_a_file_that_is_no_model(tmp_path):
    (tmp_path / "net.safetensors").write_text("no model")
    with pytest.raises(InputError, match="expected a bitfactor model file"):
        Session(tmp_path / "net.safetensors")


def test_refuses_sums_that_float32_does_not_hold(tmp_path):
    features = 1 << 24
    bits = {"threshold": np.zeros(features, np.float32), "direction": np.ones(features, np.int8)}
    nodes = (
        Node("bits", "threshold", ("x",), {}, bits),
        Node("sums", "binary_linear", ("bits",), {}, {"weight": np.zeros((1, features // 64), np.uint64)}),
    )
    graph = Graph(Value("x", (features,), "float32"), nodes, ("sums",))
    nothing = ModelFile(graph, (np.zeros((0, 1), np.float32),))
    save(tmp_path / "net.safetensors", nothing)
    with pytest.raises(InputError, match="node 'sums': expected sums of fewer than 16777216 signs"):
        Session(tmp_path / "net.safetensors")


def test_verify_says_how_far_off_the_outputs_are(model, tmp_path):
    wrong = replace(model, golden_outputs=(model.golden_outputs[0] + np.float32(0.5),))
    save(tmp_path / "net.safetensors", wrong)
    with pytest.raises(
        InputError, match=r"output 'scores': expected the golden output .* 4 of 4 numbers differing"
    ):
        Session(tmp_path / "net.safetensors").verify()


def test_runs_without_torch(path):
    code = (
        "import sys\n"
        "from bitfactor.runtime import Session\n"
        f"Session({str(path)!r}).verify()\n"
        "assert not {'torch', 'cv2', 'scipy', 'tyro', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_refuses_a_size_that_the_core_has_no_memory_for(tmp_path):
    """Of 512 x 512 pixels with 4,096 channels, 4 GiB."""
    window = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    weight, bias = np.ones((4096, 1, 1, 1), np.float32), np.zeros(4096, np.float32)
    nodes = (
        Node("wide", "conv2d", ("x",), window, {"weight": weight, "bias": bias}),
        Node("y", "reduce_channels", ("wide",), {"how": "max"}),
    )
    graph = Graph(Value("x", (1, 2, 2), "float32"), nodes, ("y",))
    free = FreeSizes(((0, 1, 1), (0, 2, 1)))
    save(tmp_path / "net.safetensors", replace(model_of(graph), labels=(), free=free))
    message = r"x: expected a size that the network can take, found .* 512\); pass a smaller one .*4 GiB"
    with pytest.raises(InputError, match=message):
        Session(tmp_path / "net.safetensors")(np.zeros((1, 1, 512, 512), np.float32))


def test_a_copy_opens_the_file_again(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    session, x = Session(path.name, threads=1, precision="medium"), images(2)
    stored = pickle.dumps(session)
    monkeypatch.chdir(os.sep)
    for other in (copy.deepcopy(session), pickle.loads(stored)):
        assert (other.isa, other.threads, other.precision) == (session.isa, 1, "medium")
        np.testing.assert_array_equal(other(x), session(x))


def test_a_forked_child_ends(path):
    """A child has none of its parent's threads; it must still run, and free, a session from before."""
    code = (
        "import os, numpy as np\n"
        "from bitfactor.runtime import Session\n"
        f"session = Session({str(path)!r}, threads=2)\n"
        "x = np.ones((4, 3, 6, 5), np.float32)\n"
        "session(x)\n"
        "child = os.fork()\n"
        "session(x)\n"
        "del session\n"
        "assert child == 0 or os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
