"""The loader of model files under atheris; see `make test-fuzz`.

python -m tests.fuzz.loader FOUND SEEDS -max_total_time=60
"""

import random
import sys
import warnings
from collections.abc import Iterator
from inspect import unwrap
from types import FunctionType

import atheris
from tests.fuzz.model_files import altered, expect_one_error_or_an_answer, made_right

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
    return atheris.Mutate(data[:most], most)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    watch()
    atheris.Setup(sys.argv, one_input, custom_mutator=mutated)
    atheris.Fuzz()
