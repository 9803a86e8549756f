"""How a network is called: the types of its inputs, and in what its outputs come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import check_fields
from bitfactor.common.errors import InputError

Structure = Any  # the number of an output, None, or a tuple, list or dict of such

_TYPES = ("float32", "int64", "bool")
_MORE = ("returned", "scalar_inputs", "scalar_outputs")  # in a file that has them


@dataclass(frozen=True)
class Signature:
    """What of a call a graph does not say, whose values are float32 all.

    `types` are those of the inputs as torch has them: float32, int64 (any integers) or bool. `outputs` is
    what the model returns, with the number of an output of the graph in the place of each; `returned` are
    their types, where not all are float32. Inputs and outputs in `scalar_inputs` and `scalar_outputs`, by
    their number, are one value a sample, (N,), which a graph has as (N, 1).

    Example
    -------
    >>> Signature(("int64",), {"logits": 0, "hidden": (1, 2)}).arrange([a, b, c])["hidden"]
    (b, c)
    """

    types: tuple[str, ...]
    outputs: Structure = 0
    returned: tuple[str, ...] = ()
    scalar_inputs: tuple[int, ...] = ()
    scalar_outputs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "signature: ")
        for name in (*self.types, *self.returned):
            if name not in _TYPES:
                raise InputError(
                    "signature: types", expected=f"of {', '.join(_TYPES)}", found=name, fix="export again"
                )

    def arrange(self, outputs: Sequence[NDArray[Any]]) -> Any:
        """Return the outputs as the model returns them."""
        given = list(outputs)
        for i in self.scalar_outputs:
            given[i] = given[i][:, 0]
        for i, name in enumerate(self.returned):
            if name != "float32":
                given[i] = given[i].astype(np.dtype(name))
        return _arranged(self.outputs, given)

    def described(self) -> dict[str, Any]:
        """Return it as plain types that JSON holds."""
        more = {name: list(getattr(self, name)) for name in _MORE if getattr(self, name)}
        return {"types": list(self.types), "outputs": _described(self.outputs), **more}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> "Signature":
        """Return what `described` told of."""
        more = (tuple(values.get(name, ())) for name in _MORE)
        return cls(tuple(values["types"]), _restored(values["outputs"]), *more)


def plain(inputs: int, outputs: int) -> Signature:
    """Return that of a file that states none: float32, one output by itself or several in a tuple."""
    return Signature(("float32",) * inputs, 0 if outputs == 1 else tuple(range(outputs)))


def _arranged(structure: Structure, outputs: Sequence[NDArray[Any]]) -> Any:
    if isinstance(structure, dict):
        return {name: _arranged(part, outputs) for name, part in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)(_arranged(part, outputs) for part in structure)
    return None if structure is None else outputs[structure]


def _described(structure: Structure) -> Any:
    """A list in JSON is a list, a tuple an object of that name, a dict one of pairs, whose order it keeps."""
    if isinstance(structure, dict):
        return {"dict": [[name, _described(part)] for name, part in structure.items()]}
    if isinstance(structure, list | tuple):
        parts = [_described(part) for part in structure]
        return parts if isinstance(structure, list) else {"tuple": parts}
    return structure


def _restored(value: Any) -> Structure:
    if isinstance(value, list):
        return [_restored(part) for part in value]
    if isinstance(value, dict) and "dict" in value:
        return {name: _restored(part) for name, part in value["dict"]}
    if isinstance(value, dict):
        return tuple(_restored(part) for part in value["tuple"])
    return value


def as_float(x: NDArray[Any], type_name: str, where: str) -> NDArray[np.float32]:
    """Return an input as the graph takes it."""
    if type_name == "float32" or x.dtype == bool:
        allowed = np.can_cast(x.dtype, np.float32)
    else:
        allowed = type_name == "int64" and x.dtype.kind in "iu"
    if not allowed:
        names = {"float32": "float32, or a type it holds exactly", "int64": "integers", "bool": "bool"}
        fix = f"use {where}.astype(numpy.{type_name.replace('bool', 'bool_')})"
        raise InputError(where, expected=names[type_name], found=str(x.dtype), fix=fix)
    if x.dtype.kind in "iu" and x.size and max(-int(x.min()), int(x.max())) > _LARGEST:
        expected, found = f"integers from -{_LARGEST} to {_LARGEST}", f"{x.min()} to {x.max()}"
        raise InputError(where, expected=expected, found=found, fix="number from 0")
    return np.ascontiguousarray(x, np.float32)


_LARGEST = 1 << 24  # beyond, float32 does not hold every integer
