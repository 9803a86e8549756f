"""The loader of model files under atheris; see `make test-fuzz`. Without atheris, no coverage guides it.

python -m tests.fuzz.loader FOUND SEEDS -max_total_time=60 -seed=7
"""

import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from inspect import unwrap
from pathlib import Path
from types import FunctionType

from tests.data.test_mutated import mutated as with_other_bytes
from tests.fuzz.model_files import altered, expect_one_error_or_an_answer, made_right

with suppress(ImportError):
    import atheris

WATCHED = ("bitfactor.common", "bitfactor.format", "bitfactor.runtime")


def watch() -> None:
    """Let atheris count the branches of the loader; its hook of imports does not see installed sources."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith(WATCHED):
            for function in functions_of(module):
                atheris.instrument_func(function)


def functions_of(holder: object) -> Iterator[FunctionType]:
    """Yield the functions that a module or a class defines, those behind decorators too."""
    name = holder.__name__
    for value in vars(holder).values():
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(value, type) and value.__module__ == name:
            yield from functions_of(value)
        if isinstance(value, FunctionType) and value.__module__ == getattr(holder, "__module__", name):
            yield unwrap(value)


def one_input(data: bytes) -> None:
    expect_one_error_or_an_answer(made_right(data))


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """One part of the description is changed, or, one time in eight, any bytes."""
    draw = random.Random(seed)
    if draw.random() > 0.125:
        try:
            for _ in range(draw.randrange(1, 4)):
                data = altered(data, draw)
        except Exception:  # it describes no network any more: then any bytes
            pass
        else:
            if len(data) <= most:
                return data
    if "atheris" not in globals():
        return with_other_bytes(data[:most], draw)
    return atheris.Mutate(data[:most], most)


def fuzz_without_atheris(words: list[str]) -> None:
    options = dict(word[1:].split("=") for word in words if word[0] == "-")
    folders = [Path(word) for word in words if word[0] != "-"]
    seeds = [path.read_bytes() for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    draw = random.Random(options["seed"])
    end, runs = time.monotonic() + int(options["max_total_time"]), 0
    while time.monotonic() < end:
        data = mutated(draw.choice(seeds), int(options["max_len"]), draw.getrandbits(32))
        try:
            one_input(data)
        except BaseException:
            Path(f"{options['artifact_prefix']}crash").write_bytes(data)
            raise
        runs += 1
    print(f"{runs} inputs, without atheris")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "atheris" not in globals():
        fuzz_without_atheris(sys.argv[1:])
        sys.exit()
    watch()
    atheris.Setup(sys.argv, one_input, custom_mutator=mutated)
    atheris.Fuzz()
