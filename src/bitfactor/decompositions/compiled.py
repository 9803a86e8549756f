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


def is_traced() -> bool:
    """Return whether torch.jit traces what is computed."""
    return not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None


def is_followed() -> bool:
    """Return whether torch compiles, traces or transforms what is computed, so that all must be its own."""
    if torch.compiler.is_compiling():
        return True
    return is_traced() or torch._C._are_functorch_transforms_active()


def takes(*tensors: torch.Tensor) -> bool:
    """Return whether the core may read these: plain tensors on a CPU, which torch does not follow."""
    return (
        available()
        and not is_followed()
        and all(type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type == "cpu" for x in tensors)
    )


def addresses(*tensors: torch.Tensor) -> list[int]:
    """Return where the core finds the values of tensors."""
    return [tensor.data_ptr() for tensor in tensors]


def has_tiles() -> bool:
    """Return whether the instruction set in use has tiles, as torch's products of bfloat16 then have."""
    return available() and chosen_isa() == "amx"


def trainer() -> Any:
    """Return the core's side of training, with the threads that torch uses."""
    return _trainer(chosen_isa(), torch.get_num_threads())


@lru_cache(maxsize=4)
def _trainer(isa: str, threads: int) -> Any:
    sets = _native.instruction_sets()
    return _native.Trainer(isa if isa in sets else sets[-1], threads)


atexit.register(_trainer.cache_clear)  # or nanobind reports them as leaked
