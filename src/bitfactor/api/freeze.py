"""`bitfactor.freeze`: an exported file as one flat program, for the C library. Needs no torch."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing
from bitfactor.common.native import chosen_isa
from bitfactor.common.result import Result
from bitfactor.format import Graph, ModelFile, load
from bitfactor.format.file import golden_inputs
from bitfactor.format.program import Instruction
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import program_of
from bitfactor.runtime.session import MOST_THREADS, runner
from bitfactor.runtime.zoo import locate
from bitfactor.targets.frozen import frozen

SUFFIX = ".bfp"


@dataclass(frozen=True)
class Frozen(Result):
    """A program that was written; `arena_bytes` is the memory for values that a sample takes as it runs."""

    path: Path
    bytes: int
    input_shape: tuple[int, ...]
    instructions: int
    arena_bytes: int
    threads: int

    def __str__(self) -> str:
        shape = "x".join(map(str, self.input_shape))
        return (
            f"{self.path}: {self.bytes:,} bytes, {self.instructions} instructions for an input of {shape}, "
            f"{self.arena_bytes:,} bytes of memory a sample, threads {self.threads}"
        )


@checked
def freeze(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    threads: int = 1,
) -> Frozen:
    """Write an exported network as one flat program, which the C library runs from memory as it is.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    output
        File to write, NAME.bfp.
    size
        Height and width of the input; the file's own if left out.
    threads
        Threads that run it, unless the program that loads it says otherwise.

    Raises
    ------
    InputError
        If the file cannot be read, the network does not run at that size, or `output` cannot be written.

    Example
    -------
    >>> bitfactor.freeze("digits", "digits.bfp").instructions
    25
    """
    output = Path(output)
    if output.suffix.lower() != SUFFIX:
        found = output.suffix or "no ending"
        raise InputError(output, expected=f"a name in {SUFFIX}", found=found, fix="rename it")
    if not 1 <= threads <= MOST_THREADS:
        raise InputError("threads", expected=f"1 to {MOST_THREADS}", found=str(threads), fix="pass threads=1")
    loaded = load(locate(model))
    loaded.expect_one_input(output)
    graph = _graph(loaded, size)
    program = program_of(packed(graph))
    instructions = [i for layer in program.layers for i in layer.instructions]
    content = frozen([*instructions, *_description(loaded, graph)], program.arena_bytes, threads)
    with replacing(output) as temporary:
        temporary.write_bytes(content)
    shape = packed(graph).input.shape
    return Frozen(output, len(content), shape, len(instructions), program.arena_bytes, threads)


def _graph(model: ModelFile, size: tuple[int, int] | None) -> Graph:
    own = model.graph.input.shape
    if size is None:
        return model.graph
    if len(own) != 3 or min(size) < 1:
        found = f"{size} for an input of {own}"
        raise InputError("size", expected="height and width of a map", found=found, fix="leave it out")
    return model.graph_for((own[0], *size), *(value.shape for value in model.graph.others))


def _description(model: ModelFile, graph: Graph) -> Iterator[Instruction]:
    """Yield what is known beside the program."""
    spec, skeleton = model.input_spec, model.skeleton
    if spec is not None:
        # At another size, it is the same part of an image.
        size = graph.input.shape[1:]
        resize = [-(-whole * n // part) for whole, part, n in zip(spec.resize, spec.size, size, strict=True)]
        yield Instruction.of(
            "image",
            size=size,
            resize=resize,
            keep_aspect=spec.keep_aspect,
            mean=np.array(spec.mean, np.float32),
            std=np.array(spec.std, np.float32),
        )
    labels = model.labels or (skeleton.keypoints if skeleton else ())
    if labels:
        yield Instruction.of("labels", names="".join(f"{label}\0" for label in labels))
    if skeleton is not None:
        yield Instruction.of("skeleton", edges=_pairs(skeleton.edges), flip_pairs=_pairs(skeleton.flip_pairs))
    xs = golden_inputs(graph, model.golden_integers)
    if graph.others or model.golden_integers:  # one of real numbers is made, see golden_input
        yield Instruction.of("golden_input", values=np.concatenate([x.reshape(1, -1) for x in xs], 1))
    same = graph.input.shape == model.graph.input.shape
    for output in model.golden_outputs if same else runner(graph, chosen_isa())(*xs):
        yield Instruction.of("golden_output", values=output.reshape(1, -1).astype(np.float32))


def _pairs(pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)
