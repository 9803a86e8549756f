"""Pickled arrays, read without running what a pickle could run."""

import io
import pickle
from typing import Any

import numpy as np

from bitfactor.errors import InputError

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # before and since numpy 2
_ARRAY_PARTS = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}


class _ArrayUnpickler(pickle.Unpickler):
    """Knows plain types and numpy arrays, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the function or class that a pickle asks for, if it can only build arrays."""
        if module in _MULTIARRAY and name == "_reconstruct":
            return _empty_array
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        if (module, name) in _ARRAY_PARTS:
            return _ARRAY_PARTS[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _empty_array(kind: type, shape: tuple[int, ...], dtype: bytes) -> Any:
    return np.ndarray.__new__(np.ndarray, shape, dtype.decode() if isinstance(dtype, bytes) else dtype)


def _latin1(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


def read_pickled(data: bytes, where: object) -> dict[str, Any]:
    """Return the dictionary of plain values and arrays that `data` holds; keys of bytes become strings.

    `where` names the file in the error.

    Raises
    ------
    InputError
        If `data` is no pickle, is damaged, or holds anything else.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise _bad(where, f"a file that cannot be read ({error})" if data else "an empty file") from error
    if not isinstance(content, dict):
        raise _bad(where, f"a pickled {type(content).__name__}")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="a pickled dictionary of arrays", found=found, fix="download and unpack it again"
    )
