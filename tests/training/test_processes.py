"""Two processes are one process with the joined batch; killed together, they go on together."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from tests.training.toy import Stopping, Toy, toy_recipe
from torch.nn import functional as F

from bitfactor.common.errors import InputError
from bitfactor.training import Classification, Optimization, Run, TerminatedError, train
from bitfactor.training.processes import expect_devices, launch, run_joined, visible

QUIET = Console(quiet=True)
STEPS, COMPARED = 40, 20
FLAGS = ["--epochs", str(STEPS), "--limit", "32", "--batch-size", "32", "--batch-norm", "frozen"]
FLAGS += ["--eval-interval", str(STEPS), "--learning-rate", "0.001", "--warmup-epochs", "30"]
FLAGS += ["--widths", "16", "32"]


def start(out, processes):
    """Train, each step an epoch of its own so that the log has its loss and it ends with a checkpoint."""
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "bitfactor"]
    module = torchrun if processes > 1 else ["bitfactor"]
    command = [sys.executable, "-m", *module, "train", "digits", "--out", str(out), "--json", *FLAGS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one and of two processes, and one of two that were stopped on the way."""
    place = tmp_path_factory.mktemp("runs")
    running = {count: start(place / str(count), count) for count in (1, 2)}
    for process in running.values():
        printed, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert json.loads(printed)["step"] == STEPS  # printed once
    return place


def train_toy(out):
    """Train the toy, whole, and again stopped by SIGTERM after the second of six steps and resumed."""
    whole, stopped = out / "whole", out / "stopped"
    train(toy_recipe(batch_norm="frozen"), whole, QUIET)
    with pytest.raises(TerminatedError):
        train(toy_recipe(Stopping(Toy(), 1), batch_norm="frozen"), stopped, QUIET)
    assert Run(stopped).load()["step"] == 2
    train(toy_recipe(batch_norm="frozen"), stopped, QUIET)
    return 0


def test_two_processes_take_the_steps_of_one_and_stop_and_resume_together(tmp_path):
    assert train_toy(tmp_path / "1") == run_joined(["cpu", "cpu"], train_toy, tmp_path / "2") == 0
    one, two = (Run(tmp_path / name / "whole").history() for name in ("1", "2"))
    assert [row["loss"] for row in one] == pytest.approx([row["loss"] for row in two], abs=1e-3)
    assert one[-1]["accuracy"] == pytest.approx(two[-1]["accuracy"], abs=0.07)  # two of 30 images
    for name in ("1", "2"):
        whole, stopped = (Run(tmp_path / name / part).load()["model"] for part in ("whole", "stopped"))
        assert all(torch.equal(whole[part], stopped[part]) for part in whole)


class PartlySeen(Toy):
    """The toy, three quarters of whose images do not count."""

    def train_batches(self, *arguments):
        for inputs, target in super().train_batches(*arguments):
            yield inputs, {"class": target, "weight": (inputs[:, 0, 7, 7] > 0.7).float()}


class OfThoseSeen(Classification):
    def loss(self, outputs, target):
        if isinstance(target, torch.Tensor):  # of test images
            return super().loss(outputs, target)
        each = F.cross_entropy(outputs, target["class"], reduction="none")
        return (each * target["weight"]).sum() / target["weight"].sum().clamp_min(1)


def train_partly_seen(out):
    recipe = replace(toy_recipe(PartlySeen(), batch_norm="frozen", batch_size=12), task=OfThoseSeen())
    train(recipe, out, QUIET)
    return 0


def test_what_can_be_seen_counts_as_much_in_whichever_process_it_is(tmp_path):
    assert train_partly_seen(tmp_path / "1") == 0
    assert run_joined(["cpu", "cpu"], train_partly_seen, tmp_path / "2") == 0
    one, two = ([row["loss"] for row in Run(tmp_path / name).history()] for name in ("1", "2"))
    assert one == pytest.approx(two, abs=1e-4)


@pytest.mark.slow
def test_the_loss_curves_are_the_same(runs):
    """For twenty steps: a sign turns the last bit of a sum into a jump, sooner or later."""
    one, two = ([row["loss"] for row in Run(runs / name).history()] for name in ("1", "2"))
    assert len(one) == len(two) == STEPS
    assert one[:COMPARED] == pytest.approx(two[:COMPARED], abs=1e-4)
    assert one[COMPARED] < one[0] - 0.05


@pytest.mark.slow
def test_what_is_measured_is_measured_on_all_images(runs):
    rows = [Run(runs / name).history()[-1] for name in ("1", "2")]
    assert rows[0]["accuracy"] == pytest.approx(rows[1]["accuracy"], abs=0.07)  # two of 32 images


@pytest.mark.slow
def test_two_processes_that_were_terminated_go_on_together(runs, tmp_path):
    """SIGTERM comes to torchrun, as a scheduler sends it, once the first epoch is done."""
    process = start(tmp_path, 2)
    deadline = time.monotonic() + 200
    while not Run(tmp_path).checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    assert 0 < Run(tmp_path).load()["step"] < STEPS
    process = start(tmp_path, 2)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert errors.count("resuming from step") == 1
    whole, stopped = (Run(path).load()["model"] for path in (runs / "2", tmp_path))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


@pytest.mark.slow
def test_a_training_of_a_study_takes_two_devices_and_is_stopped_and_resumed_there(runs, tmp_path):
    """The study is told to stop; what it resumes is what torchrun trains."""
    fixed = ["--latent", "holistic", "--scale", "learned", "--seeds", "1", "--devices", "cpu+cpu", *FLAGS]
    command = [sys.executable, "-m", "bitfactor", "ablate", "digits", "--out", str(tmp_path), *fixed]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = Run(tmp_path / "cells" / "holistic-learned-seed0-lr0.001")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        deadline = time.monotonic() + 200
        while not run.checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=100)
    assert 0 < run.load()["step"] < STEPS
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    losses = [[row["loss"] for row in one.history()] for one in (run, Run(runs / "2"))]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("cpu+cuda:0", "of the 0 GPUs|different GPUs by their numbers, or cpu more than once"),
        ("cpu+auto", "different GPUs by their numbers, or cpu more than once, found cpu[+]auto"),
        ("cpu+", "auto, cpu, cuda or cuda:N"),
    ],
)
def test_devices_that_cannot_train_together(devices, said):
    with pytest.raises(InputError, match=said):
        expect_devices(devices)


@pytest.mark.parametrize(("seen", "numbers"), [("4,5,6", "6,4"), (None, "2,0"), ("", "2,0")])
def test_gpus_are_passed_on_by_their_numbers_among_those_that_are_seen(seen, numbers):
    assert visible(["cuda:2", "cuda:0"], seen) == numbers


def test_fabric_says_nothing_of_its_own(caplog):
    with caplog.at_level(logging.INFO, "lightning_fabric"):  # as its import has it
        launch(Optimization(1, 8, 1e-3, precision="bfloat16"), "cpu")
        assert logging.getLogger("lightning_fabric").level == logging.WARNING
