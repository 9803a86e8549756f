"""A short run and its export, processes without some packages, real data: for all tests."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import settings
from tests.study import made_up

from bitfactor.cli import main
from bitfactor.common.files import _ASKED, _LOADED
from bitfactor.data import Cifar10

# How long an example takes is the machine's affair. The default draws the same examples every time and keeps
# none; `make test-random` draws afresh.
settings.register_profile("default", deadline=None, derandomize=True, database=None)
settings.register_profile("random", deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def same_draws(request):
    """A test draws the same numbers whichever tests ran before it in its process."""
    torch.manual_seed(0)
    if hasattr(request.module, "RNG"):
        request.module.RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.fixture(autouse=True, scope="session")
def cache_of_tests(tmp_path_factory):
    """What trainings keep of their images is no business of the user's own cache directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def forgotten_files(tmp_path_factory):
    """What a test imports is no import of a later test's runs; what it wrote itself can be run anew."""
    before = set(_ASKED)
    yield
    for file in _ASKED - before:
        if file.is_relative_to(tmp_path_factory.getbasetemp()):
            _LOADED.pop(file, None)
    _ASKED.intersection_update(before)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The directory of a short training run."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["train", "digits", "--out", str(path), "--epochs", "2", "--learning-rate", "0.005"]) == 0
    return path


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory):
    """What `bitfactor export` wrote of that run."""
    path = tmp_path_factory.mktemp("exported") / "digits.safetensors"
    assert main(["export", str(run), "-o", str(path)]) == 0
    return path


_RUN_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
{code}
"""
_TRAINING = ("torch", "lightning_fabric", "torchmetrics", "matplotlib", "sklearn", "jinja2", "tensorboard")


@pytest.fixture(scope="session")
def without():
    """Run Python code in a process of its own where the packages named cannot be imported."""

    def without(missing, code, *arguments):
        script = _RUN_WITHOUT.format(missing=tuple(missing), code=code)
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    return without


@pytest.fixture(scope="session")
def without_torch(without):
    """Run a command where neither torch is installed nor what else comes with `bitfactor[train]` alone."""

    def without_torch(arguments):
        return without(_TRAINING, "from bitfactor.cli import main\nsys.exit(main(sys.argv[1:]))", *arguments)

    return without_torch


@pytest.fixture(scope="session")
def real_data():
    """The directory of real data; the test is skipped where there is none."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("BITFACTOR_DATA", beside))
    if not path.is_dir():
        pytest.skip("no real data; BITFACTOR_DATA names their directory")
    return path


@pytest.fixture
def toy_cells(monkeypatch):
    """Trainings of studies take milliseconds, and so do the trials of a dry run."""
    monkeypatch.setattr("bitfactor.study.run.train_cell", made_up.train_cell)
    monkeypatch.setattr("bitfactor.study.run.dry_run", made_up.try_recipe)


@pytest.fixture(params=["made up", pytest.param("real", marks=pytest.mark.slow)])
def trainings(request):
    """Trainings and trials take milliseconds, or are real ones."""
    if request.param == "made up":
        request.getfixturevalue("toy_cells")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are empty drawings, for tests that read what stands beside them."""
    monkeypatch.setattr("bitfactor.study.figures.svg", lambda figure: "<svg></svg>")


@pytest.fixture
def call(capsys):
    """Run a command that succeeds and return what it prints."""

    def call(*arguments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return call


CLASSES = ("blue", "green", "red")


@pytest.fixture(scope="session")
def colours():
    """Write `count` images of each class into directories below `place`, other ones for another seed."""

    def colours(place, count, seed=0, classes=CLASSES):
        for name in classes:
            (place / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                noise = np.random.default_rng((seed, i, len(name))).normal(0, 20, (40 + i, 36, 3))
                image = np.zeros_like(noise)
                image[..., ("blue", "green", "red").index(name) if name in CLASSES else 0] = 180
                path = place / name / f"{i}.png"
                assert cv2.imwrite(str(path), (image + noise).clip(0, 255).astype(np.uint8))
        return place

    return colours


@pytest.fixture
def cifar(tmp_path):
    """Write the official layout with `each` images in each file -> directory, pixels (N, 3072), labels."""

    def write(kind=Cifar10, each=40):
        layout, rng = kind.layout, np.random.default_rng(0)
        directory = tmp_path / "cifar" / layout.folder
        directory.mkdir(parents=True, exist_ok=True)
        classes = 10 if kind is Cifar10 else 100
        names = [f"class{i}".encode() for i in range(classes)]
        (directory / layout.names).write_bytes(pickle.dumps({layout.name_key.encode(): names}, protocol=2))
        pixels, labels = [], []
        for file in (*layout.train, layout.test):
            pixels.append(rng.integers(0, 256, (each, 3072)).astype(np.uint8))
            labels.append(rng.integers(0, classes, each))
            content = {b"data": pixels[-1], layout.label_key.encode(): labels[-1].tolist()}
            (directory / file).write_bytes(pickle.dumps(content, protocol=2))
        return directory, np.concatenate(pixels), np.concatenate(labels)

    return write
