"""Binary neural networks trained through matrix and tensor decompositions, run as 1-bit weights on a CPU.

`bitfactor.runtime` and `bitfactor.format` need numpy and safetensors alone. The names below need torch
(`pip install bitfactor[train]`) and import it when first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfactor import models as models
    from bitfactor.convert import Binarization as Binarization
    from bitfactor.convert import binarize_ as binarize_
    from bitfactor.convert import summary as summary
    from bitfactor.exporter import export as export

__version__ = "0.1.0"

_HOMES = {
    "Binarization": "bitfactor.convert",
    "binarize_": "bitfactor.convert",
    "summary": "bitfactor.convert",
    "export": "bitfactor.exporter",
    "models": "bitfactor",
}

__all__ = ["Binarization", "binarize_", "export", "models", "summary"]


def __getattr__(name: str) -> object:
    if name == "models":
        return importlib.import_module("bitfactor.models")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bitfactor' has no attribute {name!r}")
