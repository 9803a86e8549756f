"""Others' binary networks, by their own unchanged code, exported and compared with torch: a table.

    python tests/exporter/foreign.py DIR [NAME ...]

DIR holds checkouts of GitHub repositories, each as owner+name; a network whose repository is not there is
left out. Weights are drawn, BatchNorm has seen noise. Each network runs in a process of its own, as their
modules share names. What their code needs beside torch and numpy (timm, torchvision, a GPU) is replaced by
empty modules, and `.cuda()` by nothing: no layer of these networks comes from there.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.common.result import text_table

IMAGENET, CIFAR = (2, 3, 224, 224), (2, 3, 32, 32)


@dataclass(frozen=True)
class Foreign:
    """A network: where its code is, the module and the expression that makes it, the shape of a batch."""

    repository: str
    folder: str
    module: str
    make: str
    shape: tuple[int, ...]
    prepare: Callable[[nn.Module], Any] = lambda model: None


def _switch(model: nn.Module) -> None:
    """End the annealing of BNext: signs in place of its clamps."""
    for name, buffer in model.named_buffers():
        if name.endswith("temperature"):
            buffer.fill_(1e-8)


def _converted(model: nn.Module) -> None:
    """Turn a network binary as the README of bnn does, but for the first and the last layer."""
    bnn, ops = importlib.import_module("bnn"), importlib.import_module("bnn.ops")
    config = bnn.BConfig(
        activation_pre_process=ops.BasicInputBinarizer,
        activation_post_process=ops.BasicScaleBinarizer,
        weight_pre_process=ops.XNORWeightBinarizer.with_args(center_weights=True),
    )
    bnn.prepare_binary_model(model, config, modules_mapping=None, ignore_layers_name=["conv1", "fc"])


_RECU, _RBNN, _IRNET = "z-hXu+ReCU", "lmbxmu+RBNN", "htqin+IR-Net"
_ADABIN, _BINARYNET = "huawei-noah+Efficient-Computing", "itayhubara+BinaryNet.pytorch"
_DOREFA, _BIREAL, _REACT = "zzzxxxttt+pytorch_DoReFaNet", "liuzechun+Bi-Real-net", "liuzechun+ReActNet"
_ADA, _BNN = "BinaryNetworks/AdaBin/", "1adrianb+binary-networks-pytorch"
_PYTORCH = "pytorch_implementation/"

NETWORKS = {
    "ReActNet-A": Foreign(_REACT, "mobilenet/2_step2", "reactnet", "reactnet()", IMAGENET),
    "ReActNet-A, step 1": Foreign(_REACT, "mobilenet/1_step1", "reactnet", "reactnet()", IMAGENET),
    "ReActNet-18": Foreign(_REACT, "resnet/2_step2", "birealnet", "birealnet18()", IMAGENET),
    "Bi-Real-18": Foreign(_BIREAL, f"{_PYTORCH}BiReal18_34", "birealnet", "birealnet18()", IMAGENET),
    "Bi-Real-34": Foreign(_BIREAL, f"{_PYTORCH}BiReal18_34", "birealnet", "birealnet34()", IMAGENET),
    "Bi-Real-50": Foreign(_BIREAL, f"{_PYTORCH}BiReal_50", "birealnet", "birealnet50()", IMAGENET),
    "IR-Net ResNet-20": Foreign(_IRNET, "CIFAR-10/ResNet20/1w1a", "resnet", "resnet20_1w1a()", CIFAR),
    "IR-Net ResNet-20, 1w32a": Foreign(
        _IRNET, "CIFAR-10/ResNet20/1w32a", "resnet", "resnet20_1w32a()", CIFAR
    ),
    "IR-Net ResNet-18": Foreign(_IRNET, "CIFAR-10", "ResNet18.resnet", "ResNet18()", CIFAR),
    "IR-Net VGG-small": Foreign(_IRNET, "CIFAR-10/VGG-Small", "vgg", "vgg_small_1w1a()", CIFAR),
    "IR-Net ResNet-18, 224": Foreign(
        _IRNET, "ImageNet/ResNet18/1w1a", "models.resnet", "resnet18()", IMAGENET
    ),
    "ReCU ResNet-20": Foreign(_RECU, "cifar", "models_cifar", "resnet20_1w1a()", CIFAR),
    "ReCU ResNet-18": Foreign(_RECU, "cifar", "models_cifar", "resnet18_1w1a()", CIFAR),
    "ReCU VGG-small": Foreign(_RECU, "cifar", "models_cifar", "vgg_small_1w1a()", CIFAR),
    "RBNN ResNet-20": Foreign(_RBNN, "cifar", "models_cifar", "resnet20_1w1a()", CIFAR),
    "RBNN ResNet-20, Bi-Real": Foreign(_RBNN, "cifar", "models_cifar", "resnet20_bireal_1w1a()", CIFAR),
    "RBNN VGG-small": Foreign(_RBNN, "cifar", "models_cifar", "vgg_small_1w1a()", CIFAR),
    "AdaBin ResNet-20": Foreign(_ADABIN, f"{_ADA}cifar10", "nets.resnet20", "resnet20_1w1a()", CIFAR),
    "AdaBin ResNet-18": Foreign(_ADABIN, f"{_ADA}imagenet", "nets.resnet18", "resnet18_1w1a()", IMAGENET),
    "bnn ResNet-18": Foreign(_BNN, ".", "bnn.models", "resnet18()", IMAGENET, _converted),
    "BNext-T": Foreign("hpi-xnor+BNext", "src", "bnext", "BNext(size='tiny')", IMAGENET, _switch),
    "BinaryNet VGG": Foreign(_BINARYNET, ".", "models.vgg_cifar10_binary", "vgg_cifar10_binary()", CIFAR),
    "BinaryNet AlexNet": Foreign(_BINARYNET, ".", "models.alexnet_binary", "alexnet_binary()", IMAGENET),
    "DoReFa ResNet-20, 1w1a": Foreign(_DOREFA, ".", "nets.cifar_resnet", "resnet20(1, 1)", CIFAR),
    "DoReFa ResNet-20, 1w32a": Foreign(_DOREFA, ".", "nets.cifar_resnet", "resnet20(1, 32)", CIFAR),
    "BiDet SSD": Foreign(
        "ZiweiWangTHU+BiDet", "ssd", "bidet_ssd", "build_bidet_ssd('train', 300, 21)", (2, 3, 300, 300)
    ),
}
_EMPTY = (
    "timm",
    "timm.models",
    "timm.models.layers",
    "einops",
    "torchinfo",
    "torchvision",
    "easydict",
    "pycocotools",
)
_EMPTY += (
    "torchvision.transforms",
    "torchvision.datasets",
    "torchvision.models",
    "pycocotools.coco",
    "pycocotools.cocoeval",
)


def model_of(foreign: Foreign, directory: Path) -> nn.Module:
    """Return a network, made by its authors' code, in evaluation mode."""
    for name in _EMPTY:
        sys.modules.setdefault(name, _Empty(name))
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment,method-assign]
    nn.Module.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment,method-assign]
    sys.argv = [foreign.module]
    os.chdir(directory / foreign.repository)
    sys.path.insert(0, str(directory / foreign.repository / foreign.folder))
    torch.manual_seed(0)
    model: nn.Module = eval(foreign.make, vars(importlib.import_module(foreign.module)))
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter.numel() > len(parameter) and parameter.min() >= 0:
            parameter.data -= parameter.data.mean()  # drawn from 0 to 1, all its signs would be +1
        parameter.data[parameter == 0] = 1e-9  # one of ten millions drawn is 0, whose sign is 0
    foreign.prepare(model)
    _see_noise(model.eval(), foreign.shape)
    return model.eval()


def _see_noise(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Let BatchNorm take its statistics from noise, so that values are as large as in a trained network."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d)]
    for norm in norms:
        if norm.affine:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.2)
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        model(torch.randn(shape))


class _Empty(ModuleType):
    """A module that has any name."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


def row(name: str, directory: Path) -> list[str]:
    """Export one network and return what the table shows of it."""
    foreign = NETWORKS[name]
    model, example = model_of(foreign, directory), torch.randn(foreign.shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        started = time.perf_counter()
        try:
            report = bitfactor.export(model, path, example)
        except InputError as error:
            return [name, str(error)[:400].replace("\n", " ")]
        seconds = time.perf_counter() - started
        session = bitfactor.Session(path)
        x = example[:1].numpy()
        milliseconds = min(_timed(session, x) for _ in range(10))
    kinds = [layer.kind for layer in report.layers]
    half = kinds.count("binary weights") + kinds.count("binary inputs")
    return [
        name,
        f"{kinds.count('binary')} + {half} of {len(kinds)}",
        f"{report.float_bytes:,}",
        f"{report.file_bytes:,}",
        f"{report.float_bytes / report.file_bytes:.1f}",
        f"{report.max_difference:.1e}",
        f"{report.same_class} of {report.checked_inputs}",
        f"{milliseconds:.2f}",
        f"{seconds:.0f}",
    ]


def _timed(session: Any, x: Any) -> float:
    started = time.perf_counter()
    session(x)
    return 1000 * (time.perf_counter() - started)


HEAD = [
    "network",
    "binary + half binary",
    "float bytes",
    "file bytes",
    "ratio",
    "difference",
    "class",
    "ms",
    "s",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one", action="store_true", help="run the one network that is named here")
    given = parser.parse_args()
    if given.one:
        print("|".join(row(given.names[0], given.directory.resolve())))
        return
    rows = []
    for name in given.names or NETWORKS:
        if not (given.directory / NETWORKS[name].repository).is_dir():
            continue
        command = [sys.executable, __file__, str(given.directory), name, "--one"]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stdout.strip().splitlines()
        found = lines[-1].split("|") if done.returncode == 0 else [name, done.stderr.strip()[-400:]]
        print(" | ".join(found), flush=True)
        rows.append(found)
    whole = [found for found in rows if len(found) == len(HEAD)]
    print(text_table(HEAD, whole, right=frozenset(range(1, len(HEAD)))))
    print(f"{len(whole)} of {len(rows)} networks exported")


if __name__ == "__main__":
    main()
