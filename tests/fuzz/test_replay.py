"""The fuzzers' corpus, and mutations of it, the same each time: a model runs, or says why not."""

import random
from ctypes import c_void_p
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz.model_files import altered, expect_one_error_or_an_answer, made_right
from tests.native.test_c_api import LIBRARY, OK, Error, Tensor, aligned, with_checksum

CORPUS = Path(__file__).parent / "corpus"
GOLDEN = CORPUS.parents[1] / "format" / "golden"
ALTERED = sorted(GOLDEN.glob("*.safetensors"))
MODELS = sorted((*CORPUS.glob("models/*"), *ALTERED))
PROGRAMS = sorted(CORPUS.glob("core/*"))
assert ALTERED
assert len(MODELS) > len(ALTERED)
assert PROGRAMS
MOST_BYTES = 1 << 22
SPECIAL = (0, 1, 2, 63, 64, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_model_files(path):
    expect_one_error_or_an_answer(path.read_bytes())
    expect_one_error_or_an_answer(made_right(path.read_bytes()))


@pytest.mark.parametrize("path", ALTERED, ids=lambda path: path.name)
def test_altered_model_files(path):
    draw, content = random.Random(path.name), path.read_bytes()
    runs = 0
    for _ in range(100):
        changed = content
        for _ in range(draw.randrange(1, 3)):
            changed = altered(changed, draw)
        runs += expect_one_error_or_an_answer(changed)
    assert 0 < runs < 100


def loaded_and_run(content: bytes) -> bool:
    """Whether a program runs, on every instruction set; else there is a status and a sentence."""
    error, memory = Error(), aligned(content)
    network = LIBRARY.bf_load_within(memory.ctypes.data, len(content), MOST_BYTES, error)
    if not network:
        assert error.status != OK
        assert error.bytes
        assert min(error.bytes) >= ord(" ")
        return False
    i = 0
    while name := LIBRARY.bf_instruction_sets(i):
        i += 1
        if LIBRARY.bf_set_instruction_set(network, name, error) == OK:
            run(network)
    LIBRARY.bf_free(network)
    return True


def run(network: int) -> None:
    error, tensor = Error(), Tensor()
    assert LIBRARY.bf_input(network, 0, tensor, error) == OK
    x = np.full(tensor.size, 0.5, np.float32)
    outs = []
    for i in range(LIBRARY.bf_output_count(network)):
        assert LIBRARY.bf_output(network, i, tensor, error) == OK
        outs.append(np.empty(tensor.size, np.float32))
    ins = (c_void_p * 1)(x.ctypes.data)
    places = (c_void_p * len(outs))(*(out.ctypes.data for out in outs))
    assert LIBRARY.bf_run(network, 1, ins, places, error) == OK or error.bytes
    LIBRARY.bf_verify(network, None, error)


def put_right(content: bytearray) -> bytes:
    """With the size, few threads and the checksum that such a file has."""
    content[16:24] = len(content).to_bytes(8, "little")
    content[40:44] = (1).to_bytes(4, "little")
    return with_checksum(bytes(content))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs(path):
    content = path.read_bytes()
    loaded_and_run(content)
    if len(content) < 64:
        return
    draw = random.Random(path.name)
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(draw.randrange(1, 4)):
            size = draw.choice((1, 4, 8))
            at = draw.randrange(28, max(len(changed) - 8, 29)) // size * size
            value = draw.choice(SPECIAL) if draw.random() < 0.7 else draw.randrange(2**64)
            changed[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
        loaded_and_run(put_right(changed))


def test_the_corpus_has_programs_that_run():
    assert sum(loaded_and_run(path.read_bytes()) for path in PROGRAMS) >= 10
