"""A limit for what a file may make the process allocate, and files that are no paths."""

import copy
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.cases import bytes_taken
from tests.fuzz.model_files import put_together, taken_apart

from bitfactor.common import _native
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, Node, Value, load
from bitfactor.format.graph import MOST_NODES
from bitfactor.format.model import golden_input
from bitfactor.format.program import Buffer, Instruction
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of

DIGITS = file_of("digits")
MODELS = Path(__file__).parents[1] / "fuzz" / "corpus" / "models"
X = golden_input((1, 8, 8))


@pytest.fixture(scope="module")
def content():
    return DIGITS.read_bytes()


@pytest.mark.parametrize("given", [lambda c: c, io.BytesIO, lambda _: DIGITS.open("rb")])
def test_bytes_and_open_files_are_models_too(content, given):
    session = Session(given(content), threads=1)
    shape = session.input_shape
    assert np.array_equal(session(golden_input(shape)), Session(DIGITS, threads=1)(golden_input(shape)))
    for again in (copy.copy(session), pickle.loads(pickle.dumps(session))):
        again.verify()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"", "an empty file"),
        (b"\x89PNG\r\n", "a PNG image"),
        (b"hello", "a text file"),
        (io.BytesIO(b"\x10"), "a text file"),
        (io.StringIO("hello"), "open it with"),
        (bytes(8) + b"{}", "truncated or damaged"),
    ],
)
def test_bytes_that_are_no_model(given, words):
    with pytest.raises(InputError, match=words):
        Session(given)


def test_what_a_file_needs_is_found_by_halving(content):
    """A limit either suffices for all, or is refused as such; what suffices stays within it."""
    least, most, refused = 1, 1 << 26, set()
    Session(content, threads=1, max_bytes=most).verify()
    while most - least > 1000:
        middle = (least + most) // 2
        try:
            Session(content, threads=1, max_bytes=middle).verify()
            most = middle
        except InputError as error:
            least = middle
            refused.add(str(error).split(":")[0])
    assert refused == {"max_bytes"}
    assert len(content) < most < 40 * len(content)


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_limit_is_at_least_one_byte(content, max_bytes):
    with pytest.raises(InputError, match="1 or more"):
        Session(content, max_bytes=max_bytes)


def test_no_limit_is_promised_for_the_reference(content):
    with pytest.raises(InputError, match="leave out isa, or max_bytes"):
        Session(content, isa="reference", max_bytes=1 << 30)


def with_names(content: bytes) -> bytes:
    """A file whose values without a name have one."""
    document, tensors = taken_apart(content)
    return put_together(json.loads(json.dumps(document).replace('""', '"z"')), tensors)


def large(channels: int, size: int, nodes: tuple[Node, ...]) -> bytes:
    """A network that its file says little of: the digits' document with other operations."""
    document, tensors = taken_apart(DIGITS.read_bytes())
    graph = Graph(Value("x", (channels, size, size), "float32"), nodes, (nodes[-1].name,))
    own = {f"{node.name}.{role}": array for node in nodes for role, array in node.tensors.items()}
    document["input"] = {"name": "x", "shape": [channels, size, size], "kind": "float32"}
    document["nodes"] = [
        {
            "name": node.name,
            "op": node.op,
            "inputs": node.inputs,
            "attributes": node.attributes,
            "tensors": sorted(node.tensors),
            "shape": graph.values[node.name].shape,
            "kind": graph.values[node.name].dtype,
        }
        for node in nodes
    ]
    document |= {"outputs": [nodes[-1].name], "input_spec": None, "labels": []}
    return put_together(document, own | {"golden/output/0": tensors["golden/output/0"]})


ZEROS = np.zeros
WINDOW = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
BOMBS = {
    "a large map": large(64, 2000, (Node("y", "relu", ("x",)),)),
    "a map that grows": large(
        1, 1000, (Node("y", "upsample_nearest", ("x",), {"scale": (20, 20)}), Node("z", "relu", ("y",)))
    ),
    "a large map that is turned": large(3, 2000, (Node("y", "permute", ("x",), {"order": (0, 2, 1)}),)),
    "a large map that stays where it is": large(3, 2000, (Node("y", "flatten", ("x",)),)),
    "a large map, every second row": large(
        3, 2000, (Node("y", "slice", ("x",), {"range": (1, 0, 2000, 2)}),)
    ),
    "several large inputs": with_names((MODELS / "13.safetensors").read_bytes()),
    "weights that kernels fill up": large(
        4096,
        2,
        (
            Node(
                "y",
                "conv2d",
                ("x",),
                WINDOW | {"groups": 2048},
                {"weight": ZEROS((2048, 2, 2, 2), np.float32), "bias": ZEROS(2048, np.float32)},
            ),
        ),
    ),
}


def opened_and_run(content: bytes) -> None:
    session = Session(content, threads=1, max_bytes=1 << 20)
    session(np.zeros((1, *session.input_shape), np.float32))


@pytest.mark.parametrize("name", BOMBS)
def test_what_takes_more_than_it_looks_is_refused_before_it_is_allocated(name):
    with pytest.raises(InputError, match=r"^max_bytes: expected"):
        opened_and_run(BOMBS[name])


FIRST = """
import sys
import numpy as np
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
Session(file_of("digits"), threads=1).verify()
"""
OPEN_AND_RUN = """
try:
    session = Session(sys.stdin.buffer.read(), threads=1, max_bytes=1 << 24)
    session(np.zeros((1, *session.input_shape), np.float32))
except ValueError:
    pass
"""


@pytest.mark.parametrize("name", BOMBS)
def test_the_process_stays_within_the_limit(name):
    assert bytes_taken(OPEN_AND_RUN, after=FIRST, given=BOMBS[name]) < 1.5 * (1 << 24)


def test_a_description_is_counted_as_what_it_becomes(content):
    document, tensors = taken_apart(content)
    document["report"] = {"x": [[] for _ in range(200_000)]}
    with pytest.raises(InputError, match=r"^max_bytes: .*content in memory of"):
        load(put_together(document, tensors), max_bytes=1 << 23)


def test_a_description_of_many_megabytes_is_refused(content):
    document, tensors = taken_apart(content)
    document["report"] = {"x": " " * (1 << 24)}
    with pytest.raises(InputError, match="bytes that describe it"):
        load(put_together(document, tensors))


def test_the_number_of_nodes_is_limited():
    nodes = tuple(Node(f"n{i}", "relu", ("x" if i == 0 else f"n{i - 1}",)) for i in range(MOST_NODES + 1))
    with pytest.raises(InputError, match=f"at most {MOST_NODES}"):
        Graph(Value("x", (1,), "float32"), nodes, (nodes[-1].name,))


def test_a_core_with_a_limit_refuses_to_run_more_samples_at_once_than_fit():
    core = _native.Program(isa="scalar", threads=4, arena_bytes=1 << 18, most_bytes=1 << 19)
    port = {"buffer": Buffer(0, 1, 1 << 16, False), "name": "x", "shape": (1 << 16,), "dtype": "float32"}
    for kind in ("input", "output"):
        core.add(kind=kind, arguments=dict(Instruction.of(kind, **port).arguments))
    one, many = (np.zeros((n, 1 << 16), np.float32) for n in (1, 4))
    assert core.run(x=one, outs=[np.empty_like(one)])
    with pytest.raises(MemoryError):
        core.run(x=many, outs=[np.empty_like(many)])
    assert core.run(x=one, outs=[np.empty_like(one)])
