"""Binary neural networks trained through matrix and tensor decompositions, run as 1-bit weights on a CPU.

The names below are imported when first used. Those of a file (`Session`, `bench`, ...) need numpy and
safetensors alone, and OpenCV for images (`pip install 'bitfactor[cli]'`); those of training need torch
(`pip install 'bitfactor[train]'`).

    plan = bitfactor.binarize_(model, bitfactor.Binarization(latent="tucker"))    # any torch model
    bitfactor.export(model, "net.safetensors", example)
    scores = bitfactor.Session("net.safetensors")(x)                              # without torch
"""

from typing import TYPE_CHECKING

from bitfactor.common import __version__ as __version__
from bitfactor.common.errors import imported, near_matches

if TYPE_CHECKING:
    from bitfactor import decompositions as decompositions
    from bitfactor import exporter as exporter
    from bitfactor import format as format
    from bitfactor import models as models
    from bitfactor import nn as nn
    from bitfactor import pose as pose
    from bitfactor import recipes as recipes
    from bitfactor import runtime as runtime
    from bitfactor.api.ablate import ablate as ablate
    from bitfactor.api.adopt import adopt_ as adopt_
    from bitfactor.api.assign import assign as assign
    from bitfactor.api.bench import bench as bench
    from bitfactor.api.check import check as check
    from bitfactor.api.compare import compare as compare
    from bitfactor.api.convert import convert as convert
    from bitfactor.api.decide import decide as decide
    from bitfactor.api.evaluate import evaluate as evaluate
    from bitfactor.api.export import freeze as freeze
    from bitfactor.api.export import page as page
    from bitfactor.api.inspect import inspect as inspect
    from bitfactor.api.predict import predict as predict
    from bitfactor.api.pretrained import from_pretrained as from_pretrained
    from bitfactor.api.pretrained import push_to_hub as push_to_hub
    from bitfactor.api.pretrained import save_pretrained as save_pretrained
    from bitfactor.api.report import report as report
    from bitfactor.api.reproduce import reproduce as reproduce
    from bitfactor.api.train import train as train
    from bitfactor.binarization import Binarization as Binarization
    from bitfactor.binarization import binarize_ as binarize_
    from bitfactor.binarization import parameter_groups as parameter_groups
    from bitfactor.binarization import summary as summary
    from bitfactor.common import errors as errors
    from bitfactor.common.errors import InputError as InputError
    from bitfactor.common.image_spec import InputSpec as InputSpec
    from bitfactor.data.readers.check import check_data as check_data
    from bitfactor.exporter import export as export
    from bitfactor.recipes.runs import load as load
    from bitfactor.runtime import Session as Session
    from bitfactor.runtime import zoo as zoo
    from bitfactor.training import Optimization as Optimization
    from bitfactor.training import metrics as metrics

# Where each public name is from: a name of a module, or, after a dot alone, the module itself.
_WITHOUT_TORCH = {
    "InputError": "common.errors",
    "InputSpec": "common.image_spec",
    "Session": "runtime",
    "bench": "api.bench",
    "check_data": "data.readers.check",
    "convert": "api.convert",
    "errors": "common.",
    "evaluate": "api.evaluate",
    "format": ".",
    "freeze": "api.export",
    "inspect": "api.inspect",
    "page": "api.export",
    "pose": ".",
    "predict": "api.predict",
    "runtime": ".",
    "zoo": "runtime.",
}
_WITH_TORCH = {
    "Binarization": "binarization",
    "Optimization": "training",
    "ablate": "api.ablate",
    "adopt_": "api.adopt",
    "assign": "api.assign",
    "binarize_": "binarization",
    "check": "api.check",
    "compare": "api.compare",
    "decide": "api.decide",
    "decompositions": ".",
    "export": "exporter",
    "exporter": ".",
    "from_pretrained": "api.pretrained",
    "load": "recipes.runs",
    "metrics": "training.",
    "models": ".",
    "nn": ".",
    "parameter_groups": "binarization",
    "push_to_hub": "api.pretrained",
    "recipes": ".",
    "report": "api.report",
    "reproduce": "api.reproduce",
    "save_pretrained": "api.pretrained",
    "summary": "binarization",
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
    home = _HOMES[name]
    path = "bitfactor." + (home.lstrip(".") + name if home.endswith(".") else home)
    extra = "bench,train" if name == "compare" else "train" if name in _WITH_TORCH else "cli"
    module = imported(path, f"bitfactor.{name}", extra)
    value: object = module if home.endswith(".") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
