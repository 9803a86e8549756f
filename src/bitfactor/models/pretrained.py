"""Weights of other people's networks.

A network with a method `from_published` translates its authors' tensors itself. For ResNets:

- torchvision and timm count `downsample` from 0, where here a pooling comes first. Their `bn1` and `bn2` of a
  block normalise what comes out of a convolution, ours what goes in: they are not taken over;
- binary-networks-pytorch (`PreBasicBlock`) calls alpha `conv1.activation_post_process.alpha`, here it is
  `conv1.scale.alpha`; `conv1.weight` becomes `conv1.latent.weight` once the layer is binary.

All other names agree. A checkpoint may hold them under `state_dict` or `model`, and each behind `module.`.

Authors sign, centre and scale their binary weights each in their own way. What a convolution is given here
has their signs, and their scale as the mean magnitude of each filter, where `binarize_` takes its scale from.
"""

import os
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked, expect
from bitfactor.common.errors import InputError, imported, near_matches


@dataclass(frozen=True)
class Loaded:
    """Names of the model that were given weights, those left as they were, and those of no use to it."""

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{len(self.taken)} tensors taken over"]
        parts += [f"left as they were: {', '.join(self.fresh)}"] if self.fresh else []
        parts += [f"not used: {', '.join(self.unused)}"] if self.unused else []
        return "; ".join(parts)


def load_weights(model: nn.Module, checkpoint: Mapping[str, Any], skip: Sequence[str] = ()) -> Loaded:
    """Give `model` the weights of a float network or of a binary one, whoever trained it.

    Load a float network's weights before `bitfactor.binarize_`: it factorises what it finds. A binary one's
    go into a model that is binary already, with latent "none" and a learned scale.

    Parameters
    ----------
    checkpoint
        What `torch.load(file, weights_only=True)` gives: names and tensors, or a mapping that holds them.
    skip
        Modules to leave as they are, such as `fc` where the classes differ.

    Raises
    ------
    InputError
        If a tensor of the model is missing, one of the checkpoint has no use or another shape, or `skip`
        names no module. The model is then as it was.

    Example
    -------
    >>> model = bitfactor.models.resnet18(num_classes=10)
    >>> print(load_weights(model, torch.load("resnet18.pth", weights_only=True), skip=["fc"]))
    """
    expect("model", model, nn.Module)
    expect("skip", skip, Sequence[str])
    given = getattr(model, "from_published", _renamed)(_tensors(checkpoint))
    for module in skip:
        if not any(_within(name, module) for name in model.state_dict()):
            fix = near_matches(module, [name for name, _ in model.named_modules()])
            raise InputError("skip", expected="names of modules", found=repr(module), fix=fix)
    wanted = {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if not name.endswith("num_batches_tracked") and not any(_within(name, module) for module in skip)
    }
    pairs = {name: source for name in wanted if (source := _source(name)) in given}
    used = set(pairs.values())
    fresh = [name for name in wanted if name not in pairs]
    unused = [name for name in given if name not in used]
    _expect_fit(fresh, [name for name in unused if not any(_within(name, module) for module in skip)])
    values = {name: _shaped(name, wanted[name], given[source]) for name, source in pairs.items()}
    with torch.no_grad():
        for name, value in values.items():
            wanted[name].copy_(value)
    return Loaded(tuple(pairs), tuple(fresh), tuple(unused))


def _within(name: str, module: str) -> bool:
    return name.startswith(f"{module}.")


def _expect_fit(fresh: Sequence[str], unused: Sequence[str]) -> None:
    """Allow the BatchNorms of blocks to differ, which torchvision places elsewhere, and nothing else."""
    elsewhere = [name for name in unused if _BEHIND in name]
    missing = [name for name in fresh if not (elsewhere and re.match(r"layer\d+\.\d+\.bn\d", name))]
    extra = [name for name in unused if _BEHIND not in name]
    if missing:
        latent = ".latent." in missing[0]
        raise InputError(
            "checkpoint",
            expected=f"a tensor for {missing[0]}",
            found=f"none, and {len(missing) - 1} others missing",
            fix="load before binarize_" if latent else "load the weights of the same network, or use skip",
        )
    if extra:
        raise InputError(
            "checkpoint",
            expected="tensors that the model has",
            found=f"{extra[0]} and {len(extra) - 1} others",
            fix="build the model of the same depth, or name the module in skip",
        )


_BEHIND = ".behind."


def _tensors(checkpoint: object) -> dict[str, Tensor]:
    if not isinstance(checkpoint, Mapping):
        raise InputError(
            "checkpoint",
            expected="a mapping from names to tensors",
            found=type(checkpoint).__name__,
            fix="pass what torch.load(file, weights_only=True) gives",
        )
    inner = (checkpoint.get(key) for key in ("state_dict", "model"))
    found: Mapping[str, Any] = next((value for value in inner if isinstance(value, Mapping)), checkpoint)
    return {
        name.removeprefix("module.").removeprefix("_orig_mod."): value
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, Tensor) and not name.endswith("num_batches_tracked")
    }


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename what torchvision and timm call otherwise; the rest agrees."""
    if not any(name.endswith("downsample.0.weight") for name in tensors):
        return tensors
    renamed = {}
    for name, tensor in tensors.items():
        name = re.sub(r"downsample\.(\d)", lambda match: f"downsample.{int(match[1]) + 1}", name)
        renamed[re.sub(r"^(layer\d+\.\d+)\.(bn\d)", r"\1.behind.\2", name)] = tensor
    return renamed


def _source(name: str) -> str:
    """Return what a checkpoint calls a tensor of ours."""
    name = name.replace(".latent.weight", ".weight")
    return name.replace(".scale.alpha", ".activation_post_process.alpha")


def _shaped(name: str, target: Tensor, tensor: Tensor) -> Tensor:
    if name.endswith(".alpha"):
        tensor = tensor.flatten()
    if target.shape != tensor.shape:
        raise InputError(
            f"checkpoint, {name}",
            expected=f"shape {tuple(target.shape)}",
            found=str(tuple(tensor.shape)),
            fix="build the model with the same widths and classes, or name the module in skip",
        )
    return tensor


@checked
def load_checkpoint(model: nn.Module, path: str | os.PathLike[str], skip: Sequence[str] = ()) -> Loaded:
    """Give a network of this package the weights of a file that its authors published.

    The file is one of `torch.save`, read for tensors and plain values alone, or, for QuickNet, the HDF5 file
    of Keras. Names may stand behind `module.`, and under `state_dict` or `model`. Load before
    `bitfactor.binarize_`, which then gives the authors' signs and scales with latent "none" and scale
    "analytic". A weight of exactly 0, which most of them leave 0, becomes -1.

    Parameters
    ----------
    skip
        Modules to leave as they are, such as `fc` where the classes differ.

    Raises
    ------
    InputError
        If the file cannot be read, or its tensors are not those of the model. The model is then as it was.

    Example
    -------
    >>> model = bitfactor.models.reactnet_a()
    >>> print(load_checkpoint(model, "reactnet-a.pth.tar"))
    >>> bitfactor.binarize_(model, latent="none", scale="analytic")
    """
    keras = Path(path).suffix in (".h5", ".hdf5")
    try:
        checkpoint = _keras(path) if keras else torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except pickle.UnpicklingError as error:
        held = re.search(r"GLOBAL (\S+)", str(error))
        raise _unreadable(path, f"an object of {held[1]}" if held else "none, or a damaged one") from error
    except Exception as error:  # a damaged file raises nearly anything
        raise _unreadable(path, next(iter(str(error).strip().splitlines()), type(error).__name__)) from error
    try:
        return load_weights(model, checkpoint, skip)
    except InputError as error:
        error.add_note(f"in {path}")
        raise


def _unreadable(path: str | os.PathLike[str], found: str) -> InputError:
    return InputError(
        str(path),
        expected="a checkpoint of torch.save with tensors and plain values alone, or of Keras (.h5)",
        found=found,
        fix="pass the file as its authors published it",
    )


def _keras(path: str | os.PathLike[str]) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a file of Keras, in the order of its layers."""
    h5py = imported("h5py", path, "pose")
    with h5py.File(path) as file:
        root = file.get("model_weights", file)
        layers = [root[_text(name)] for name in root.attrs["layer_names"]]
        return {
            f"{layer.name}/{_text(name)}": torch.from_numpy(layer[_text(name)][()])
            for layer in layers
            for name in layer.attrs["weight_names"]
        }


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def flat_as_shaped(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `weights` (n, 1) as the `weight` that the convolution of this name has."""
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    shaped = {}
    for name, tensor in tensors.items():
        plain = name.removesuffix("s") if name.endswith(".weights") else name
        fits = plain in shapes and plain != name and tensor.numel() == shapes[plain].numel()
        shaped[plain] = tensor.reshape(shapes[plain]) if fits else tensor
    return shaped


def with_scale(weight: Tensor, alpha: Tensor | float) -> Tensor:
    """Return alpha times the weight, each filter at mean magnitude abs(alpha).

    `binarize_` then gives signs sign(alpha W) and a scale abs(alpha), whose product is alpha sign(W).
    """
    filters = (-1, *(1,) * (weight.dim() - 1))
    mean = weight.abs().flatten(1).mean(1).view(filters)
    return weight / mean * (alpha.view(filters) if isinstance(alpha, Tensor) else alpha)
