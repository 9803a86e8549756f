"""Small networks trained on folders of coloured images."""

import json

import pytest

from bitfactor.cli import main
from bitfactor.data import ImageFolder, identity_of

SMALL = ["--blocks", "1", "1", "--widths", "8", "16", "--batch-size", "16", "--epochs", "1", "--size", "32"]


@pytest.fixture(scope="session")
def parted(colours, tmp_path_factory):
    """A directory with train/ and val/: 36 and 15 images of three classes."""
    place = tmp_path_factory.mktemp("parted")
    colours(place / "train", 12)
    colours(place / "val", 5, seed=1)
    return place


@pytest.fixture(scope="session")
def flat(colours, tmp_path_factory):
    """A directory of class directories alone: 60 images of three classes."""
    return colours(tmp_path_factory.mktemp("flat") / "flowers", 20)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Train a small network on a directory -> the run, which remembers its data, and the file of it."""

    def trained(data, *flags):
        place = tmp_path_factory.mktemp("trained")
        run, file = place / "run", place / "net.safetensors"
        options = ["--data", str(data), "--out", str(run), *SMALL, *flags]
        assert main(["train", "folder-resnet18", *options]) == 0
        settings = json.loads((run / "recipe.json").read_text())
        holdout = settings["settings"]["data"]["holdout"]
        settings["data_identity"] = identity_of(ImageFolder.load(data, size=32, holdout=holdout), data)
        (run / "recipe.json").write_text(json.dumps(settings))
        assert main(["export", str(run), "-o", str(file)]) == 0
        return run, file

    return trained


@pytest.fixture(scope="session")
def of_parted(parted, trained):
    return trained(parted)


@pytest.fixture(scope="session")
def of_flat(flat, trained):
    return trained(flat)
