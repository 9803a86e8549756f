"""Which images a network that classifies is evaluated on."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bitfactor.api.network import Network
from bitfactor.data.at_directory import Wanted, digits, images_in
from bitfactor.data.evaluation_set import EvaluationSet, of_data_set
from bitfactor.data.identity import identity_of
from bitfactor.data.scans import read_scans
from bitfactor.errors import InputError, imported
from bitfactor.format import InputSpec

if TYPE_CHECKING:
    from bitfactor.training import Recipe

_OF_ANY_DIRECTORY = ("cifar10-resnet18", "cifar100-resnet18", "imagenet-resnet18", "folder-resnet18")


def images_of(
    network: Network, data: str | os.PathLike[str] | None = None, limit: int | None = None
) -> EvaluationSet:
    """Return the images to evaluate a network on: of a directory, of its recipe, or those that it remembers.

    Raises
    ------
    InputError
        If there are none, or they do not fit the network.
    """
    directory = network.directory(data)
    if network.recipe == "digits":
        return digits(_wanted(_as_digits(network), limit), directory)
    recipe = _with_own_data(network)
    if recipe is not None:
        return _of_recipe(recipe, network, directory, limit)
    return images_in(directory, _wanted(network, limit))


def _wanted(network: Network, limit: int | None) -> Wanted:
    if network.input_spec is None or not network.labels:
        missing = "no input specification" if network.input_spec is None else "no names of classes"
        raise InputError(
            network.path,
            expected="a file that says how images are prepared and names its classes",
            found=missing,
            fix="pass input_spec and labels to bitfactor.export",
        )
    return Wanted(
        str(network.path), network.labels, network.input_spec, network.holdout, network.trained_with, limit
    )


def _as_digits(network: Network) -> Network:
    """Return a network of digits whose file does not say how images are prepared, as if it did."""
    scans = read_scans()
    images = scans.images[scans.train]
    mean, std = (float(value) for value in (images.mean(), images.std(ddof=1)))
    spec = network.input_spec or InputSpec((8, 8), (8, 8), (mean,), (std,))
    return replace(network, input_spec=spec, labels=network.labels or tuple(map(str, range(10))))


def _with_own_data(network: Network) -> "Recipe | None":
    """Return the network's recipe where its data are not images in class directories or CIFAR's."""
    if network.recipe is None or network.recipe in _OF_ANY_DIRECTORY:
        return None
    try:
        recipe = network.full_recipe()
    except InputError:
        if network.path.is_dir():
            raise
        return None  # a file whose recipe is not known here can be evaluated on class directories
    known = tuple(
        getattr(imported(f"bitfactor.recipes.{module}", network.path, "train"), name)
        for module, name in (("folder", "FolderOptions"), ("cifar", "CifarOptions"))
    )
    return None if isinstance(recipe.data, known) else recipe


def _of_recipe(
    recipe: "Recipe", network: Network, directory: Path | None, limit: int | None
) -> EvaluationSet:
    data = recipe.data(directory)
    found = of_data_set(data, network.labels, limit)
    return found.with_notes(*other_images(network, identity_of(data, directory)["fingerprint"]))


def other_images(network: Network, fingerprint: str) -> tuple[str, ...]:
    """Return a note where data are not those that a network was trained with."""
    known = (network.trained_with or {}).get("fingerprint", fingerprint)
    return () if known == fingerprint else ("other images than it was trained with",)
