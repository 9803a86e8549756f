"""Training when something fails: what is said, and that the run then ends as one that nothing befell."""

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from itertools import product

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console
from tests.cases import slow_beside
from tests.training.faults import PLACES, left
from tests.training.toy import Disturbed, Stopping, Toy, same, toy_recipe
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from bitfactor.binarization import Binarization
from bitfactor.common.errors import InputError
from bitfactor.data import ImageFolder
from bitfactor.data.readers.files import warn_of_empty
from bitfactor.models import ResNet
from bitfactor.training import Run, TerminatedError, dry_run, train
from bitfactor.training.processes import naming_the_lost

QUIET = Console(file=io.StringIO())


@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_leaves_the_same(tmp_path, kills):
    """Of digits and a small hourglass on people in the layout of LSP; checkpoints and log are the same."""
    command = [sys.executable, "-m", "tests.training.faults", str(tmp_path), "--kills", str(kills)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    print(done.stdout)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["recipe"] for one in found] == ["digits", "lsp"]
    assert sum(one["killed"] for one in found) == kills
    assert all(one["compared"] for one in found)
    if kills == 1000:
        assert all(set(one["while"]) >= set(PLACES) - {"best"} for one in found)


SMALL_DISK = """
import ctypes, os, resource, signal, sys
from pathlib import Path
from tests.training.toy import Disturbed, Toy, same, toy_recipe
from tests.training.faults import left
from rich.console import Console
from bitfactor.common.errors import InputError
from bitfactor.training import Run, train

place, quiet = Path(sys.argv[1]), Console(quiet=True)
libc, spaces = ctypes.CDLL(None), 0x20000  # mounts of its own, which end with the process
private = 1 << 18 | 1 << 14
apart = libc.unshare(spaces) == 0 and libc.mount(b"none", b"/", None, private, None) == 0
whole = place / "whole"
train(toy_recipe(), whole, quiet)


def fill():
    if not mounted:  # no mounts without root: there, no file may be longer than this
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return resource.setrlimit(resource.RLIMIT_FSIZE, (5000, -1))
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


for at in (1, 2):
    disk = place / str(at)
    disk.mkdir()
    mounted = apart and libc.mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 0, b"size=4m") == 0
    try:
        train(toy_recipe(Disturbed(Toy(), at, fill)), disk / "run", quiet)
    except InputError as error:
        message = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert Run(disk / "run").load()["step"] == at
    (disk / "filler").unlink(missing_ok=True)
    train(toy_recipe(), disk / "run", quiet)
    assert same(left(disk / "run"), left(whole))
    print("No space left" if mounted else "File too large", message, sep="|")
"""


def test_a_small_disk_that_is_full_costs_no_step_that_was_saved(tmp_path):
    """Filled before a checkpoint within an epoch, and before the lines at its end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.split("|") for line in done.stdout.splitlines()]
    assert len(said) == 2
    for reason, message in said:
        assert "expected a place that can be written, found " in message
        assert reason in message or "write failed" in message
    assert "the last checkpoint is whole: the same command resumes from it" in said[0][1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a training of the toy leaves that nothing befell."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(toy_recipe(), out, QUIET)
    return left(out)


def attempt(place):
    """One of two processes: it trains a run whole; then again, and kills rank 1 in the first attempt."""
    train(toy_recipe(batch_norm="frozen"), place / "whole", QUIET)
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    def die():
        (place / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    data = Disturbed(Toy(), 3, die if first and os.environ["RANK"] == "1" else lambda: None)
    try:
        train(toy_recipe(data, batch_norm="frozen"), place / "run", QUIET)
    except InputError as error:
        (place / "other").write_text(json.dumps([time.time(), str(error)]))
        raise


@pytest.mark.slow
def test_of_two_processes_one_is_killed_and_torchrun_restarts_them(tmp_path):
    """The other ends at once and says why; restarted, they go on from the last checkpoint."""
    endpoint = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
    elastic_launch(LaunchConfig(1, 1, 2, run_id="faults", max_restarts=1, **endpoint), attempt)(tmp_path)
    ended, message = json.loads((tmp_path / "other").read_text())
    assert ended - float((tmp_path / "killed").read_text()) < 60
    assert "expected all 2 processes of the training until the end, found one that ended (" in message
    assert "the same command resumes from the last checkpoint" in message
    assert same(left(tmp_path / "run"), left(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer"),
            "all 2 processes of the",
        ),
        (torch.distributed.DistBackendError("NCCL error"), "all 2 processes of the training until the end"),
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."),
            "processes that read images",
        ),
    ],
)
def test_a_process_that_was_lost_is_named(monkeypatch, error, expected):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=f"^runs/a: expected {expected}"), naming_the_lost("runs/a"):
        raise error
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), naming_the_lost("runs/a"):
        raise RuntimeError("shapes differ")


@pytest.fixture
def folder(tmp_path):
    """A recipe of a folder of noise, and the folder."""
    draws, place = np.random.default_rng(0), tmp_path / "images"
    for i in range(48):
        path = place / ("train", "val")[i % 6 == 5] / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), draws.integers(0, 255, (20, 24, 3)).astype(np.uint8))
    for name in ("cat", "dog"):
        (place / "val" / name).mkdir(exist_ok=True)

    def recipe_of(workers, at=-1, disturb=None):
        def load(directory):
            return Disturbed(ImageFolder.load(place, size=16, workers=workers), at, disturb)

        model = lambda: ResNet((1, 1), (8, 16), 2, in_channels=3, stem="cifar")  # noqa: E731
        return replace(toy_recipe(epochs=3, batch_size=4), model=model, data=load, input_shape=(3, 16, 16))

    return recipe_of, place


def test_a_process_that_reads_images_is_killed(folder, tmp_path):
    recipe_of, _ = folder
    train(recipe_of(2), tmp_path / "whole", QUIET)

    def kill():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with pytest.raises(InputError, match=r"processes that read images until the end, found one that ended"):
        train(recipe_of(2, 12, kill), tmp_path / "run", QUIET)
    assert 10 <= Run(tmp_path / "run").load()["step"] < 30
    train(recipe_of(2), tmp_path / "run", QUIET)
    assert same(left(tmp_path / "run"), left(tmp_path / "whole"))


def test_one_that_dies_while_a_checkpoint_is_written_is_no_full_disk(tmp_path):
    def write(path):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    (tmp_path / "run").mkdir()
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        Run(tmp_path / "run").save(write)


@pytest.mark.parametrize(
    ("workers", "unmounted"), slow_beside([(0, True), (1, False)], product((0, 1), (False, True)))
)
def test_the_folder_of_the_images_vanishes_and_comes_back(folder, tmp_path, workers, unmounted):
    """Nothing is trained on other images in place of those that are gone, as on those that are corrupt."""
    recipe_of, place = folder
    train(recipe_of(workers), tmp_path / "whole", QUIET)

    def vanish():
        place.rename(tmp_path / "away")
        if unmounted:
            place.mkdir()

    with pytest.raises(InputError, match=r"images.*: expected the images that were found there at the start"):
        train(recipe_of(workers, 12, vanish), tmp_path / "run", QUIET)
    assert 12 <= Run(tmp_path / "run").load()["step"] < 30
    if unmounted:
        place.rmdir()
    with pytest.raises(InputError, match="expected a directory with train/ and val/"):
        train(recipe_of(workers), tmp_path / "run", QUIET)
    (tmp_path / "away").rename(place)
    train(recipe_of(workers), tmp_path / "run", QUIET)
    assert same(left(tmp_path / "run"), left(tmp_path / "whole"))


def test_images_to_evaluate_on_vanish(folder, tmp_path):
    _, place = folder
    data = ImageFolder.load(place, size=16, workers=0, max_corrupt=1)
    (place / "val").rename(place / "away")
    with pytest.raises(InputError, match="expected the images that were found there at the start"):
        list(data.test_batches(4))


def test_a_clock_that_is_set_back_changes_nothing(tmp_path, whole, monkeypatch):
    now = iter(range(2**31, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    with pytest.raises(TerminatedError):
        train(toy_recipe(Stopping(Toy(), 2)), tmp_path / "run", QUIET)
    for path in (tmp_path / "run").iterdir():
        os.utime(path, (0, 0))
    row = train(toy_recipe(), tmp_path / "run", QUIET)
    assert row["seconds"] >= 0
    assert same(left(tmp_path / "run"), whole)


@pytest.mark.parametrize(
    ("signals", "ending"),
    [
        ((signal.SIGTERM, signal.SIGTERM), TerminatedError),
        ((signal.SIGINT, signal.SIGTERM), TerminatedError),
        ((signal.SIGTERM, signal.SIGINT), TerminatedError),
        ((signal.SIGINT, signal.SIGINT), KeyboardInterrupt),
    ],
)
def test_two_signals(tmp_path, whole, signals, ending):
    """All but a second Ctrl-C wait for the step and save; that ends at once, after the last checkpoint."""

    def both():
        for number in signals:
            signal.raise_signal(number)

    with pytest.raises(ending):
        train(toy_recipe(Disturbed(Toy(), 2, both)), tmp_path / "run", QUIET)
    assert Run(tmp_path / "run").load()["step"] == (3 if ending is TerminatedError else 2)
    train(toy_recipe(), tmp_path / "run", QUIET)
    assert same(left(tmp_path / "run"), whole)


class WithDeadLayer(ResNet):
    def __init__(self):
        super().__init__((1, 1), (8, 16), 3, in_channels=1, stem="cifar")
        self.dead = nn.Linear(16, 3)

    def forward(self, x):
        return super().forward(x) + 0 * self.dead(x.flatten(1)[:, :16])


def test_a_layer_without_gradients_is_named_with_the_step(tmp_path):
    with pytest.warns(UserWarning, match=r"run, step 3: layer dead: all its gradients are zero$") as said:
        train(replace(toy_recipe(), model=WithDeadLayer), tmp_path / "run", QUIET)
    assert sum("gradients are zero" in str(one.message) for one in said) == 1  # once, of two epochs


def test_a_rate_that_is_too_high_is_said_at_the_first_step_and_latents_that_explode(tmp_path):
    binarization = Binarization(latent="none", weight_estimator="identity")
    recipe = toy_recipe(binarization=binarization, learning_rate=300.0, epochs=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(recipe, tmp_path, QUIET)
    messages = [str(one.message) for one in said]
    assert any(
        "step 1: 5" in one and "changed sign, and 50% would if they were drawn anew" in one
        for one in messages
    )
    assert any(
        "step 1: layer layer1.0.conv1: expected latent weights with a std of" in one for one in messages
    )


def test_a_batch_of_one_is_refused_where_batch_norm_needs_more(tmp_path):
    for plan in ({"batch_size": 1}, {"batch_size": 4, "grad_accum_steps": 4}):
        with pytest.raises(InputError, match=r"--batch-size: expected 2 or more images at once .*, found 1;"):
            train(toy_recipe(**plan), tmp_path / "run", QUIET)
        assert not (tmp_path / "run").exists()
        assert dry_run(toy_recipe(**plan, batch_norm="frozen")).steps


def test_classes_without_images_are_named():
    with pytest.warns(UserWarning, match="^data: no image to train on is of the class b, d$"):
        warn_of_empty("data", np.array([0, 2, 2]), ("a", "b", "c", "d"))
