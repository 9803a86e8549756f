"""The networks that every target must run alike: drawn ones, one of every operation, and the zoo's.

    python -m tests.conformance.networks FOLDER

writes each as a model file and as a frozen program, with its golden input and outputs, and all programs one
behind the other as FOLDER/all.cases, which `replay` of tests/native runs without Python.

In a drawn network no number is rounded twice where a fused multiply-add would round once: its outputs are
the same bits on every target. Of the others signs and sums are, and real numbers within rounding.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from tests.cases import SMALL
from tests.targets.c99.test_integers import as_model
from tests.targets.c99.test_integers import drawn as drawn_of_images

import bitfactor
from bitfactor.format import Graph, ModelFile, Node, Value, load, pack_signs, save
from bitfactor.format.graph import run
from bitfactor.format.integer import in_integers
from bitfactor.format.model import golden_input
from bitfactor.format.program import Instruction
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import program_of
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.frozen import frozen

OF_VERSION_1 = Path(__file__).parents[1] / "format" / "golden" / "version1.safetensors"
DRAWN = tuple(range(12))


def drawn(seed: int) -> ModelFile:
    """Two binary layers with all that may surround them; widths and windows are any."""
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2]))
    width, middle, outputs = (groups * int(n) for n in rng.integers(1, 90, 3))
    shape = (width, *map(int, rng.integers(5, 14, 2)))

    def signs(*sizes: int) -> np.ndarray:
        return rng.choice(np.array([-1, 1], np.int8), sizes)

    def threshold(name: str, of: str, channels: int) -> Node:
        values = np.round(rng.standard_normal(channels) * 4).astype(np.float32) / 2
        return Node(name, "threshold", (of,), {}, {"threshold": values, "direction": signs(channels)})

    def layer(name: str, of: str, before: int, after: int) -> Node:
        kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        window = {
            "stride": tuple(map(int, rng.integers(1, 3, 2))),
            "padding": tuple(map(int, rng.integers(0, 3, 4))),
            "dilation": (1, 1),
            "groups": groups,
            "pad_value": int(rng.integers(-1, 2)),
        }
        weight = pack_signs(signs(after, *kernel, before // groups))
        return Node(name, "binary_conv2d", (of,), window, {"weight": weight})

    alpha, slope = (rng.standard_normal(middle).astype(np.float32) for _ in range(2))
    nodes = (
        threshold("bits", "x", width),
        layer("sums", "bits", width, middle),
        Node("scaled", "scale", ("sums",), {}, {"alpha": alpha}),
        Node("bent", "prelu", ("scaled",), {}, {"slope": slope}),
        Node("twice", "add", ("bent", "scaled")),
        threshold("more_bits", "twice", middle),
        layer("more_sums", "more_bits", middle, outputs),
    )
    graph = Graph(Value("x", shape, "float32"), nodes, ("more_sums", "twice", "more_bits"))
    golden = tuple(y.astype(np.float32) for y in run(graph, golden_input(shape)))
    return ModelFile(graph, golden)


def networks() -> Iterator[tuple[str, ModelFile]]:
    """Yield all with their names."""
    for seed in DRAWN:
        yield f"drawn-{seed}", drawn(seed)
    yield "every-operation", load(OF_VERSION_1)
    for name in SMALL:
        yield name, load(file_of(name))


def in_integers_too() -> Iterator[tuple[str, ModelFile]]:
    """Yield the zoo's networks, and drawn ones, at precision `integer`."""
    every = {name: load(file_of(name)) for name in SMALL}
    every |= {f"drawn-{seed}": as_model(drawn_of_images(seed), image=True) for seed in DRAWN}
    for name, real in every.items():
        model = in_integers(real)
        yield f"{name} in integers", replace(model, golden_outputs=run(model.graph, model.golden_input))


def case(name: str, model: ModelFile) -> bytes:
    """Return the program as `replay` takes it: its name is its label, and the golden input stands in it."""
    program = program_of(packed(model.graph))
    described = [
        Instruction.of("labels", names=f"{name}\0"),
        Instruction.of("golden_input", values=golden_input(model.graph.input.shape).reshape(1, -1)),
        *(Instruction.of("golden_output", values=y.reshape(1, -1)) for y in model.golden_outputs),
    ]
    instructions = [i for layer in program.layers for i in layer.instructions]
    return frozen([*instructions, *described], program.arena_bytes)


def write(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in networks():
        save(folder / f"{name}.safetensors", model)
        bitfactor.freeze(folder / f"{name}.safetensors", folder / f"{name}.bfp")
    every = chain(networks(), in_integers_too())
    (folder / "all.cases").write_bytes(b"".join(case(name, model) for name, model in every))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
