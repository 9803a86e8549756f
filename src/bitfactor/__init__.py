"""Binary neural networks trained through matrix and tensor decompositions, run as 1-bit weights on a CPU.

The names below are imported when first used. Those of a file (`Session`, `bench`, ...) need numpy and
safetensors alone; those of training need torch (`pip install 'bitfactor[train]'`).

    plan = bitfactor.binarize_(model, bitfactor.Binarization(latent="tucker"))    # any torch model
    bitfactor.export(model, "net.safetensors", example)
    scores = bitfactor.Session("net.safetensors")(x)                              # without torch
"""

import importlib
from typing import TYPE_CHECKING

from bitfactor.common.errors import imported, near_matches

if TYPE_CHECKING:
    from bitfactor import decompositions as decompositions
    from bitfactor import exporter as exporter
    from bitfactor import format as format
    from bitfactor import models as models
    from bitfactor import nn as nn
    from bitfactor import recipes as recipes
    from bitfactor import runtime as runtime
    from bitfactor.api.ablate import ablate as ablate
    from bitfactor.api.bench import bench as bench
    from bitfactor.api.check import check as check
    from bitfactor.api.evaluate import evaluate as evaluate
    from bitfactor.api.freeze import freeze as freeze
    from bitfactor.api.inspect import inspect as inspect
    from bitfactor.api.page import page as page
    from bitfactor.api.predict import predict as predict
    from bitfactor.api.report import report as report
    from bitfactor.api.reproduce import reproduce as reproduce
    from bitfactor.api.train import load as load
    from bitfactor.api.train import train as train
    from bitfactor.binarization import Binarization as Binarization
    from bitfactor.binarization import binarize_ as binarize_
    from bitfactor.binarization import parameter_groups as parameter_groups
    from bitfactor.binarization import summary as summary
    from bitfactor.common.errors import InputError as InputError
    from bitfactor.data.readers.check import check_data as check_data
    from bitfactor.exporter import export as export
    from bitfactor.format import InputSpec as InputSpec
    from bitfactor.runtime import Session as Session
    from bitfactor.runtime import zoo
    from bitfactor.training import Optimization as Optimization

__version__ = "0.1.0"

# Where each public name is from; "" for a room, which is the module of that name.
_WITHOUT_TORCH = {
    "InputError": "errors",
    "InputSpec": "format",
    "Session": "runtime",
    "bench": "",
    "check_data": "data.check",
    "evaluate": "api.evaluate",
    "format": "",
    "freeze": "api.freeze",
    "inspect": "api.inspect",
    "page": "api.page",
    "predict": "api.predict",
    "runtime": "",
    "zoo": "",
}
_WITH_TORCH = {
    "Binarization": "convert",
    "Optimization": "training",
    "ablate": "api.ablate",
    "binarize_": "convert",
    "check": "api.check",
    "decompositions": "",
    "export": "exporter",
    "exporter": "",
    "load": "api.train",
    "models": "",
    "nn": "",
    "parameter_groups": "convert",
    "recipes": "",
    "report": "",
    "reproduce": "api.reproduce",
    "summary": "convert",
    "train": "api.train",
}
_HOMES = _WITHOUT_TORCH | _WITH_TORCH

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        if name.startswith("__"):  # what Python itself asks for
            raise AttributeError(f"module 'bitfactor' has no attribute {name!r}")
        hint = near_matches(name, __all__)
        raise AttributeError(f"module 'bitfactor' has no attribute {name!r}; {hint}", name=name)
    room = _HOMES[name] or name
    if name in _WITH_TORCH:
        module = imported(f"bitfactor.{room}", f"bitfactor.{name}", "train")
    else:
        module = importlib.import_module(f"bitfactor.{room}")
    value: object = getattr(module, name) if _HOMES[name] else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
