"""The compiled core of the runtime, for tensors on a CPU: by address, so callers check what lies there."""

import atexit
import warnings
from functools import lru_cache
from typing import Any

import torch

try:
    from bitfactor.common import _native
    from bitfactor.common.machine import chosen_isa
except ImportError as error:
    _native = None  # type: ignore[assignment]
    warnings.warn(f"binary layers run without the compiled core, slower: {error}", stacklevel=2)

Maps: Any = getattr(_native, "Maps", None)
"""The maps of a batch, as the core sees them."""


def available() -> bool:
    """Return whether there is a compiled core."""
    return _native is not None


def trainer() -> Any:
    """Return the core's side of training, with the threads that torch uses."""
    return _trainer(chosen_isa(), torch.get_num_threads())


@lru_cache(maxsize=4)
def _trainer(isa: str, threads: int) -> Any:
    sets = _native.instruction_sets()
    return _native.Trainer(isa if isa in sets else sets[-1], threads)


atexit.register(_trainer.cache_clear)  # or nanobind reports them as leaked
