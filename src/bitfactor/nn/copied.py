"""Copies of a model."""

import copy
from typing import TypeVar

from torch import Tensor, nn

from bitfactor.errors import InputError

_Model = TypeVar("_Model", bound=nn.Module)


def copied(model: _Model) -> _Model:
    """Return a deep copy.

    Raises
    ------
    InputError
        If a layer keeps a tensor that was computed from parameters, which torch does not copy.
    """
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                raise InputError(
                    f"layer {name}" if name else "the model",
                    expected=f"a {key} that is a parameter or a buffer",
                    found="one computed from parameters, as torch.nn.utils.weight_norm keeps it",
                    fix="use torch.nn.utils.parametrizations instead, or remove_weight_norm before",
                )
    return copy.deepcopy(model)
