"""A run that was killed ends as one that never was."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from rich.console import Console
from tests.training.toy import same, toy_recipe

from bitfactor.cli import main
from bitfactor.training import Run, train

FLAGS = ["--epochs", "3", "--batch-size", "128", "--checkpoint-steps", "4", "--latent", "tucker"]
FLAGS += ["--widths", "16", "32", "--diagnose", "4"]
STEPS = 33


def start(out):
    code = "import sys; from bitfactor.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "train", "digits", "--out", str(out), *FLAGS]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after_checkpoint(out, process, step):
    """Kill the process once it has saved a step from `step` on, and return which."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (out / "checkpoint.ckpt").exists() and Run(out).load()["step"] >= step:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return Run(out).load()["step"]
        time.sleep(0.02)
    raise AssertionError("no checkpoint appeared")


@pytest.mark.slow
def test_killed_twice_and_started_again_gives_the_same_bits(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main(["train", "digits", "--out", str(whole), *FLAGS]) == 0
    first = kill_after_checkpoint(broken, start(broken), 4)
    second = kill_after_checkpoint(broken, start(broken), first + 8)
    assert first < second < STEPS
    process = start(broken)
    _, printed = process.communicate()
    assert process.returncode == 0, printed
    assert f"resuming from step {second} of {STEPS}" in printed

    a, b = Run(whole).load(), Run(broken).load()
    assert a["step"] == b["step"] == STEPS
    for part in ("model", "optimizer"):
        assert same(a[part], b[part]), part
    rows = [[{**row, "seconds": 0} for row in Run(out).history()] for out in (whole, broken)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 3
    movement = Run(broken).movement()
    assert movement == Run(whole).movement()
    assert sorted({line["step"] for line in movement}) == list(range(4, STEPS, 4))
    assert {path.name for path in broken.iterdir()} == {path.name for path in whole.iterdir()}


def test_resumed_from_each_checkpoint_it_gives_the_same_bits(tmp_path):
    """A process that dies leaves the last checkpoint and a log that may be further; here all of them."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    recipe = toy_recipe(keep_last=6, diagnose=2, epochs=3)
    train(recipe, whole, Console(quiet=True))
    run = Run(whole)
    for place in range(1, 6):
        shutil.copytree(whole, broken)
        shutil.copy(run.older(place), Run(broken).checkpoint)
        train(recipe, broken, Console(quiet=True))
        a, b = run.load(), Run(broken).load()
        assert a["step"] == b["step"] == 9
        assert all(same(a[part], b[part]) for part in ("model", "optimizer"))
        rows = [[{**row, "seconds": 0} for row in Run(out).history()] for out in (whole, broken)]
        assert rows[0] == rows[1]
        assert Run(broken).movement() == run.movement()
        assert {path.name for path in broken.iterdir()} == {path.name for path in whole.iterdir()}
        shutil.rmtree(broken)


def test_settings_are_recorded_with_versions(run):
    recorded = json.loads((run / "recipe.json").read_text())
    assert recorded["settings"]["recipe"] == "digits"
    assert recorded["versions"]["torch"] == torch.__version__
