"""Weights from a file that authors published, as float weights that `binarize_` makes the same.

Authors sign, centre and scale their weights each in their own way. What a convolution is given here has their
signs, and their scale as the mean magnitude of each filter, which is where `binarize_` takes its scale from.
"""

import os
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, imported
from bitfactor.models.pretrained import Loaded, load_weights


@checked
def load_checkpoint(model: nn.Module, path: str | os.PathLike[str], skip: Sequence[str] = ()) -> Loaded:
    """Give a network of this package the weights of a file that its authors published.

    The file is one of `torch.save`, of which tensors and plain values alone are read, or, for QuickNet, the
    HDF5 file of Keras. Names may stand behind `module.`, and under `state_dict` or `model`. Load before
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
    read = _keras if Path(path).suffix in (".h5", ".hdf5") else _torch
    try:
        checkpoint = read(path)
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


def _torch(path: str | os.PathLike[str]) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


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
