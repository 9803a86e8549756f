"""The C library, by ctypes: the Python module carries it too. What it loads are files that `freeze` wrote."""

import ctypes
import os
import subprocess
import sys
import zlib
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_size_t, c_void_p
from threading import Thread

import numpy as np
import pytest

import bitfactor
from bitfactor.common import _native
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node, Value, save
from bitfactor.format.graph import run as execute
from bitfactor.format.model import golden_input
from bitfactor.format.program import Instruction
from bitfactor.pose import images
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import program_of
from bitfactor.runtime.zoo import file_of, names
from bitfactor.targets.frozen import _ARRAY
from bitfactor.targets.frozen import frozen as write_frozen

OK, BAD_ARGUMENT, BAD_FILE, NOT_FOUND, NOT_FINITE, DIFFERENT, NO_MEMORY = range(7)


class Error(ctypes.Structure):
    _fields_ = (("status", c_int), ("bytes", ctypes.c_char * 508))

    @property
    def text(self) -> str:
        return self.bytes.decode()


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("values", c_int),
        ("dimensions", c_size_t),
        ("lengths", c_size_t * 6),
        ("size", c_size_t),
    )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.lengths[: self.dimensions])


class Image(ctypes.Structure):
    _fields_ = (
        ("size", c_int * 2),
        ("resize", c_int * 2),
        ("keep_aspect", c_int),
        ("channels", c_int),
        ("mean", c_float * 3),
        ("std", c_float * 3),
    )


LIBRARY = ctypes.CDLL(_native.__file__)
for name, result, arguments in (
    ("bf_load", c_void_p, (c_void_p, c_size_t, POINTER(Error))),
    ("bf_load_within", c_void_p, (c_void_p, c_size_t, c_size_t, POINTER(Error))),
    ("bf_open_within", c_void_p, (c_char_p, c_size_t, POINTER(Error))),
    ("bf_open", c_void_p, (c_char_p, POINTER(Error))),
    ("bf_free", None, (c_void_p,)),
    ("bf_set_threads", c_int, (c_void_p, c_int, POINTER(Error))),
    ("bf_set_instruction_set", c_int, (c_void_p, c_char_p, POINTER(Error))),
    ("bf_instruction_set", c_char_p, (c_void_p,)),
    ("bf_instruction_sets", c_char_p, (c_size_t,)),
    ("bf_input_count", c_size_t, (c_void_p,)),
    ("bf_output_count", c_size_t, (c_void_p,)),
    ("bf_input", c_int, (c_void_p, c_size_t, POINTER(Tensor), POINTER(Error))),
    ("bf_output", c_int, (c_void_p, c_size_t, POINTER(Tensor), POINTER(Error))),
    ("bf_label_count", c_size_t, (c_void_p,)),
    ("bf_label", c_char_p, (c_void_p, c_size_t)),
    ("bf_edge_count", c_size_t, (c_void_p,)),
    ("bf_edge", c_int, (c_void_p, c_size_t, POINTER(c_int32 * 2), POINTER(Error))),
    ("bf_image_of", c_int, (c_void_p, POINTER(Image), POINTER(Error))),
    ("bf_prepare_image", c_int, (c_void_p, c_void_p, c_int, c_int, c_int, c_void_p, POINTER(Error))),
    ("bf_run", c_int, (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p), POINTER(Error))),
    ("bf_verify", c_int, (c_void_p, POINTER(c_float), POINTER(Error))),
):
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = result, arguments


def aligned(content: bytes) -> np.ndarray:
    """The bytes at a multiple of 8, in memory of their size."""
    memory = np.zeros(-(-len(content) // 8) or 1, np.uint64).view(np.uint8)[: len(content)]
    memory[:] = np.frombuffer(content, np.uint8)
    return memory


def refusal(content: bytes) -> str:
    """What bf_load says of them; it must not load them."""
    error, memory = Error(), aligned(content)
    assert LIBRARY.bf_load(memory.ctypes.data, len(content), error) is None
    assert error.status == BAD_FILE
    return error.text


def with_checksum(content: bytes) -> bytes:
    return content[:24] + zlib.crc32(content[28:]).to_bytes(4, "little") + content[28:]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """The files of the zoo's networks, by name."""
    folder = tmp_path_factory.mktemp("frozen")
    paths = {name: folder / f"{name}.bfp" for name in names()}
    for name, path in paths.items():
        bitfactor.freeze(name, path)
    return paths


@pytest.fixture
def network(frozen, request):
    """A network of the zoo, by default the small classifier of digits."""
    opened = LIBRARY.bf_open(str(frozen[getattr(request, "param", "digits")]).encode(), None)
    assert opened
    yield opened
    LIBRARY.bf_free(opened)


every_network = pytest.mark.parametrize("network", names(), indirect=True)


def run(network, x: np.ndarray, error: Error | None = None) -> tuple[int, list[np.ndarray]]:
    """Run the samples x; the status, and the outputs."""
    tensor, outs = Tensor(), []
    for i in range(LIBRARY.bf_output_count(network)):
        LIBRARY.bf_output(network, i, tensor, None)
        outs.append(np.full((len(x), *tensor.shape), np.nan, np.float32))
    ins = (c_void_p * 1)(x.ctypes.data)
    pointers = (c_void_p * len(outs))(*(out.ctypes.data for out in outs))
    return LIBRARY.bf_run(network, len(x), ins, pointers, error), outs


@every_network
@pytest.mark.parametrize("isa", instruction_sets())
def test_golden_output_on_every_instruction_set(network, isa):
    error, difference = Error(), c_float(1)
    assert LIBRARY.bf_set_instruction_set(network, isa.encode(), error) == OK, error.text
    assert LIBRARY.bf_instruction_set(network) == isa.encode()
    assert LIBRARY.bf_verify(network, byref(difference), error) == OK, error.text
    assert difference.value == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_samples_equal_a_session(network, threads):
    session = Session(file_of("digits"))
    x = np.random.default_rng(0).standard_normal((5, *session.input_shape), np.float32)
    assert LIBRARY.bf_set_threads(network, threads, None) == OK
    status, (found,) = run(network, x)
    assert status == OK
    np.testing.assert_array_equal(found, session(x))


def test_description(network):
    tensor, session = Tensor(), Session(file_of("digits"))
    assert LIBRARY.bf_input_count(network) == 1
    assert LIBRARY.bf_input(network, 0, tensor, None) == OK
    assert tensor.name.decode() == session.model.graph.input.name
    assert (tensor.shape, tensor.size) == ((1, 8, 8), 64)
    assert LIBRARY.bf_output(network, 0, tensor, None) == OK
    assert (tensor.shape, tensor.values) == ((10,), 0)
    labels = [LIBRARY.bf_label(network, i).decode() for i in range(LIBRARY.bf_label_count(network))]
    assert tuple(labels) == session.labels
    image, spec = Image(), session.model.input_spec
    assert LIBRARY.bf_image_of(network, image, None) == OK
    assert (tuple(image.size), tuple(image.resize)) == (spec.size, spec.resize)
    np.testing.assert_array_equal(image.mean[:1], np.float32(spec.mean))
    np.testing.assert_array_equal(image.std[:1], np.float32(spec.std))


@pytest.mark.parametrize("network", ["lsp-hourglass"], indirect=True)
def test_keypoints_and_edges(network):
    skeleton, pair = Session(file_of("lsp-hourglass")).model.skeleton, (c_int32 * 2)()
    edges = []
    for i in range(LIBRARY.bf_edge_count(network)):
        assert LIBRARY.bf_edge(network, i, pair, None) == OK
        edges.append(tuple(pair))
    assert tuple(edges) == skeleton.edges
    labels = [LIBRARY.bf_label(network, i).decode() for i in range(LIBRARY.bf_label_count(network))]
    assert tuple(labels) == skeleton.keypoints


def test_another_size(tmp_path):
    path = tmp_path / "net.bfp"
    assert bitfactor.freeze("cifar10-resnet18", path, size=(40, 24), threads=2).input_shape == (3, 40, 24)
    network = LIBRARY.bf_open(str(path).encode(), None)
    assert LIBRARY.bf_verify(network, None, None) == OK
    image = Image()
    assert LIBRARY.bf_image_of(network, image, None) == OK
    assert tuple(image.size) == (40, 24)
    LIBRARY.bf_free(network)


@every_network
@pytest.mark.parametrize("size", [(8, 8), (32, 32), (33, 200), (300, 217), (96, 40), (1, 1)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_is_prepared_as_in_python(network, size, channels):
    tensor, spec = Tensor(), Image()
    LIBRARY.bf_input(network, 0, tensor, None)
    LIBRARY.bf_image_of(network, spec, None)
    image = np.random.default_rng(0).integers(0, 256, (*size, channels), np.uint8)
    found = np.empty(tensor.shape, np.float32)
    status = LIBRARY.bf_prepare_image(network, image.ctypes.data, *size, channels, found.ctypes.data, None)
    assert status == OK
    rule = bitfactor.InputSpec(
        tuple(spec.size),
        tuple(spec.resize),
        tuple(spec.mean[: spec.channels]),
        tuple(spec.std[: spec.channels]),
        bool(spec.keep_aspect),
    )
    pixels = image[:, :, 0] if channels == 1 else np.ascontiguousarray(image[:, :, :3])
    expected = images.prepare(images.with_channels(pixels, spec.channels), rule)
    np.testing.assert_array_equal(found, expected)


def test_an_image_that_is_none(network):
    error, pixels, x = Error(), np.zeros(64, np.uint8), np.zeros(64, np.float32)
    for arguments in (
        (None, 8, 8, 1, x.ctypes.data),
        (pixels.ctypes.data, 8, 8, 1, None),
        (pixels.ctypes.data, 0, 8, 1, x.ctypes.data),
        (pixels.ctypes.data, 8, 1 << 30, 1, x.ctypes.data),
        (pixels.ctypes.data, 8, 8, 2, x.ctypes.data),
    ):
        assert LIBRARY.bf_prepare_image(network, *arguments, error) == BAD_ARGUMENT
        assert error.text.startswith("expected")


def test_numbers_that_are_none(network):
    error, x = Error(), golden_input((1, 8, 8))
    x[0, 0, 3, 3] = np.nan
    assert run(network, x, error)[0] == NOT_FINITE == error.status
    assert "NaN" in error.text
    assert run(network, golden_input((1, 8, 8)), error)[0] == OK
    assert error.text == ""


def test_an_output_that_is_no_number(tmp_path):
    nodes = [Node("r", "reciprocal", ("x",)), Node("y", "multiply", ("x", "r"))]
    graph = Graph(Value("x", (2,), "float32"), tuple(nodes), ("y",))
    save(tmp_path / "net.safetensors", ModelFile(graph, (execute(graph, golden_input((2,)))[0],)))
    bitfactor.freeze(tmp_path / "net.safetensors", tmp_path / "net.bfp")
    network, error = LIBRARY.bf_open(str(tmp_path / "net.bfp").encode(), None), Error()
    assert run(network, np.ones((3, 2), np.float32), error)[0] == OK
    assert run(network, np.zeros((3, 2), np.float32), error)[0] == NOT_FINITE
    assert "expected numbers in output y, found NaN" in error.text
    LIBRARY.bf_free(network)


def test_golden_values_of_some_outputs_alone():
    graph = Graph(Value("x", (2,), "float32"), (Node("y", "relu", ("x",)),), ("y", "x"))
    program = program_of(packed(graph))
    instructions = [one for layer in program.layers for one in layer.instructions]
    golden = Instruction.of("golden_output", values=np.zeros((1, 2), np.float32))
    content, error = aligned(write_frozen([*instructions, golden], program.arena_bytes)), Error()
    network = LIBRARY.bf_load(content.ctypes.data, len(content), error)
    assert network, error.text
    assert LIBRARY.bf_verify(network, None, error) == NOT_FOUND
    assert "golden values of each output" in error.text
    LIBRARY.bf_free(network)


def test_names_stay_where_they_are(network):
    """A caller may keep them as long as the network."""
    label_at = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)(("bf_label", LIBRARY))

    def places():
        tensors = Tensor(), Tensor()
        assert LIBRARY.bf_input(network, 0, tensors[0], None) == OK
        assert LIBRARY.bf_output(network, 0, tensors[1], None) == OK
        return label_at(network, 3), *(c_void_p.from_buffer(tensor).value for tensor in tensors)

    before = places()
    assert LIBRARY.bf_set_threads(network, 2, None) == OK
    assert LIBRARY.bf_set_instruction_set(network, b"scalar", None) == OK
    assert places() == before
    assert LIBRARY.bf_verify(network, None, None) == OK


def test_threads_that_the_system_does_not_give(frozen):
    """In little memory, in a process of its own: it goes on, with an error."""
    code = f"""
import resource, bitfactor
from bitfactor.common.errors import InputError
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
try:
    bitfactor.Session({str(file_of("digits"))!r}, threads=1024)
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("threads: expected as many as the system gives, found 1024"), done


def test_an_error_steers_no_terminal():
    error = Error()
    assert LIBRARY.bf_open(b"\x9b2J\xc2\x9b2J\x1b[2J\xc3\xbc.bfp", error) is None
    assert error.bytes.startswith(b"?2J\xc2?2J?[2J\xc3\xbc.bfp")


def test_what_is_missing_or_unknown(network):
    error, tensor = Error(), Tensor()
    assert LIBRARY.bf_set_threads(network, 0, error) == BAD_ARGUMENT
    assert LIBRARY.bf_set_instruction_set(network, b"avx3", error) == BAD_ARGUMENT
    assert "scalar" in error.text
    assert LIBRARY.bf_output(network, 1, tensor, error) == NOT_FOUND
    assert "one of 1 outputs" in error.text
    assert LIBRARY.bf_label(network, 10) is None
    assert LIBRARY.bf_instruction_sets(len(instruction_sets())) is None
    assert LIBRARY.bf_edge(network, 0, (c_int32 * 2)(), error) == NOT_FOUND
    assert LIBRARY.bf_run(network, 1, None, None, error) == BAD_ARGUMENT
    assert LIBRARY.bf_run(None, 1, None, None, error) == BAD_ARGUMENT
    assert LIBRARY.bf_input_count(None) == 0
    LIBRARY.bf_free(None)


@pytest.mark.parametrize("isa", instruction_sets())
def test_memory_that_overlaps(network, isa):
    """An output may begin right where the input ends, or end where it begins, and no float nearer."""
    assert LIBRARY.bf_set_instruction_set(network, isa.encode(), None) == OK
    samples, size, classes = 3, 64, 10
    memory, error = np.zeros(1000, np.float32), Error()
    x = golden_input((samples, 1, 8, 8))[0]
    expected = run(network, x)[1][0]
    for at in range(400 - classes * samples - 1, 400 + size * samples + 2):
        memory[400 : 400 + x.size] = x.ravel()
        ins, outs = ((c_void_p * 1)(memory[i:].ctypes.data) for i in (400, at))
        status = LIBRARY.bf_run(network, samples, ins, outs, error)
        if at in (400 - classes * samples - 1, 400 - classes * samples) or at >= 400 + size * samples:
            assert status == OK
            np.testing.assert_array_equal(memory[at:][: expected.size], expected.ravel())
        else:
            assert status == BAD_ARGUMENT
            assert error.text.startswith("expected an input and an output in memory of their own")
            np.testing.assert_array_equal(memory[400:][: size * samples], x.ravel())


def test_outputs_that_overlap(tmp_path):
    nodes = (Node("a", "relu", ("x",)), Node("b", "flatten", ("a",)))
    graph = Graph(Value("x", (2, 2, 2), "float32"), nodes, ("a", "b"))
    save(tmp_path / "net.safetensors", ModelFile(graph, execute(graph, golden_input((2, 2, 2)))))
    bitfactor.freeze(tmp_path / "net.safetensors", tmp_path / "net.bfp")
    network = LIBRARY.bf_open(str(tmp_path / "net.bfp").encode(), None)
    memory, x, error = np.zeros(100, np.float32), np.ones(8, np.float32), Error()
    for at, status in ((41, OK), (42, OK), (43, BAD_ARGUMENT), (57, BAD_ARGUMENT), (58, OK), (66, OK)):
        outs = (c_void_p * 2)(memory[at:].ctypes.data, memory[50:].ctypes.data)
        assert LIBRARY.bf_run(network, 1, (c_void_p * 1)(x.ctypes.data), outs, error) == status
    LIBRARY.bf_free(network)


def test_pixels_that_overlap_the_input(network):
    """64 pixels of a byte each, and 64 floats."""
    memory = np.zeros(1000, np.uint8)
    for pixels, x, status in ((0, 0, 1), (255, 0, 1), (256, 0, OK), (0, 63, 1), (0, 64, OK)):
        places = (memory[at:].ctypes.data for at in (pixels, x))
        assert LIBRARY.bf_prepare_image(network, next(places), 8, 8, 1, next(places), None) == status


def test_a_file_that_is_none(tmp_path):
    error = Error()
    assert LIBRARY.bf_open(str(tmp_path / "no.bfp").encode(), error) is None
    assert error.status == NOT_FOUND
    assert LIBRARY.bf_open(str(tmp_path).encode(), error) is None
    assert "cannot be read" in error.text
    (tmp_path / "empty.bfp").touch()
    assert LIBRARY.bf_open(str(tmp_path / "empty.bfp").encode(), error) is None
    assert "found something else" in error.text
    assert LIBRARY.bf_open(None, error) is None
    assert LIBRARY.bf_load(None, 64, error) is None
    assert "null pointer" in error.text
    for content, found in ((b"", "something else"), (b"PK\3\4" * 40, "something else")):
        assert found in refusal(content)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipe has a path here")
def test_a_file_may_be_a_pipe(frozen, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = frozen["cifar10-resnet18"].read_bytes()
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True)
    writer.start()
    network = LIBRARY.bf_open(str(tmp_path / "pipe").encode(), None)
    writer.join(10)
    assert network is not None
    LIBRARY.bf_free(network)


def test_memory_at_an_odd_place(frozen):
    error, content = Error(), frozen["digits"].read_bytes()
    memory = aligned(b"-" * 4 + content)
    assert LIBRARY.bf_load(memory[4:].ctypes.data, len(content), error) is None
    assert "multiple of 8" in error.text


def test_truncated_altered_or_of_another_version(frozen):
    content = frozen["digits"].read_bytes()
    for length in (*range(1, 64), *range(64, len(content), 997), len(content) - 1):
        refusal(content[:length])
    for place in (*range(64), *range(64, len(content), 997)):
        refusal(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert "version 3" in refusal(with_checksum(content[:8] + b"\3\0\0\0" + content[12:]))
    assert "byte order" in refusal(content[:12] + content[15:11:-1] + content[16:])
    assert "not match their checksum" in refusal(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(("dimensions", "first", "second"), [(1, 1025, 0), (1, 0, 1 << 40), (2, 0, 1 << 40)])
def test_lengths_of_an_array(frozen, dimensions, first, second):
    """Of the name of the input: one of 0 takes no bytes, whatever the others say."""
    content = bytearray(frozen["digits"].read_bytes())
    records, arrays = (int.from_bytes(content[at : at + 4], "little") for at in (28, 44))
    table = np.frombuffer(content, _ARRAY, arrays, offset=64 + 40 * records)
    entry = table[int(np.flatnonzero(table["name"] == b"name")[0])]
    entry["shape"], entry["dimensions"] = (first, second, 1, 1, 1, 1), dimensions
    assert "an array of impossible lengths" in refusal(with_checksum(bytes(content)))


def test_golden_output_that_differs(frozen):
    content = bytearray(frozen["digits"].read_bytes())
    content[-1] ^= 1
    memory = aligned(with_checksum(bytes(content)))
    network = LIBRARY.bf_load(memory.ctypes.data, len(content), None)
    assert LIBRARY.bf_verify(network, None, None) == DIFFERENT
    LIBRARY.bf_free(network)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "net.safetensors"}, "a name in .bfp"),
        ({"output": "net.bfp", "size": (0, 8)}, "height and width"),
        ({"output": "net.bfp", "model": "lsp-hourglass", "size": (90, 90)}, "export the model again"),
        ({"output": "net.bfp", "threads": 0}, "1 to 1024"),
    ],
)
def test_what_cannot_be_frozen(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        bitfactor.freeze(**{"model": "digits", **arguments, "output": tmp_path / arguments["output"]})
    assert not list(tmp_path.iterdir())


def test_memory_is_limited(frozen):
    """A limit suffices for all, or the network is refused; nothing between."""
    content = frozen["digits"].read_bytes()
    memory, path, error = aligned(content), str(frozen["digits"]).encode(), Error()
    x = golden_input((1, 8, 8))
    statuses = set()
    for most in (0, 1 << 10, len(content), 3 * len(content) // 2, 1 << 18, 1 << 22):
        for network in (
            LIBRARY.bf_load_within(memory.ctypes.data, len(content), most, error),
            LIBRARY.bf_open_within(path, most, error),
        ):
            statuses.add((most, run(network, x, error)[0] if network else error.status))
            assert error.status == OK or "than it may take" in error.text
            LIBRARY.bf_free(network)
    assert statuses >= {(0, NO_MEMORY), (len(content), NO_MEMORY), (1 << 22, OK)}


def test_what_the_first_run_allocates_is_limited_too(frozen):
    """What a run allocates for the first time, after loading, counts too."""
    content = frozen["digits"].read_bytes()
    memory, error = aligned(content), Error()
    seen = set()
    for most in range(1 << 14, 1 << 18, 1 << 11):
        network = LIBRARY.bf_load_within(memory.ctypes.data, len(content), most, error)
        if network:
            seen.add(run(network, golden_input((1, 8, 8)), error)[0])
        LIBRARY.bf_free(network)
    assert OK in seen
    assert seen <= {OK, NO_MEMORY}
