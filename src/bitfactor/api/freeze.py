"""`bitfactor.freeze`: an exported file as one flat program, for the C library. Needs no torch."""

import os
from dataclasses import dataclass
from pathlib import Path

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.result import Result
from bitfactor.format import load
from bitfactor.runtime.session import MOST_THREADS
from bitfactor.runtime.zoo import locate
from bitfactor.targets.frozen import flat_program

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
    overwrite: bool = False,
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
    overwrite
        Replace a file that bitfactor did not write.

    Raises
    ------
    InputError
        If the file cannot be read, the network does not run at that size, or `output` cannot be written.

    Example
    -------
    >>> bitfactor.freeze("digits", "digits.bfp").instructions
    25
    """
    output = expect_output(output, [SUFFIX], overwrite=overwrite, flag="--output")
    if not 1 <= threads <= MOST_THREADS:
        raise InputError("threads", expected=f"1 to {MOST_THREADS}", found=str(threads), fix="pass threads=1")
    loaded = load(locate(model))
    loaded.expect_one_input(output)
    program = flat_program(loaded, size, threads)
    with replacing(output) as temporary:
        temporary.write_bytes(program.content)
    return Frozen(
        output,
        len(program.content),
        program.input_shape,
        program.instructions,
        program.arena_bytes,
        threads,
    )
