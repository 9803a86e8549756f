"""An altered model file that still loads is written in every form, or there is one InputError."""

import math
import random
from itertools import islice

import numpy as np
import pytest
from tests.data.test_mutated import SECONDS, SEED, attempts
from tests.fuzz.model_files import altered
from tests.fuzz.test_replay import GOLDEN, MODELS

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.format.file import load
from bitfactor.runtime import zoo
from bitfactor.targets.c99 import export_c
from bitfactor.targets.onnx import export_onnx

FORMS = {
    "net.onnx": lambda path, output: export_onnx(load(path), output, overwrite=True),
    "net.c": lambda path, output: export_c(load(path), output, overwrite=True),
    "net.bfp": lambda path, output: bitfactor.freeze(path, output, overwrite=True),
    "net.html": lambda path, output: bitfactor.page(path, output, overwrite=True),
    "inspected": lambda path, _: str(bitfactor.inspect(path)),
}
MOST_VALUES = 1 << 20


def loads(path) -> bool:
    try:
        inputs = load(path).graph.inputs
    except InputError:
        return False
    return sum(np.prod(value.shape, dtype=float) for value in inputs) < MOST_VALUES


def expect_forms_or_errors(path) -> None:
    for name, write in FORMS.items():
        try:
            write(path, path.with_name(name))
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 - one of many


@pytest.mark.filterwarnings("ignore")
def test_every_form(tmp_path):
    """One try of four; most of what is altered does not load."""
    draw, path = random.Random(f"written {SEED}"), tmp_path / "net.safetensors"
    bases = [path.read_bytes() for path in (*MODELS, zoo.file_of("digits")) if loads(path)]
    written = 0
    for _ in islice(attempts(), 0, None, 4):
        base = draw.choice(bases)
        for _ in range(10):
            path.write_bytes(altered(base, draw))
            if loads(path):
                expect_forms_or_errors(path)
                written += 1
                break
    assert written or math.inf > SECONDS


def test_more_shapes_than_inputs(tmp_path):
    """A list of shapes in place of one shape, which ONNX took for the shapes of several inputs."""
    path = min(GOLDEN.glob("*.safetensors"))
    with pytest.raises(InputError, match="input shapes: expected 1 of them, found 2"):
        load(path).graph_for((3, 8, 8), (3, 8, 8))
