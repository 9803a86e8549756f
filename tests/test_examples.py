"""The examples do what their first lines say."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bitfactor import predict
from bitfactor.common.errors import InputError

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = ["--epochs", "1", "--widths", "8", "16", "--blocks", "1", "1"]


def bitfactor(*arguments):
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "bitfactor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_decomposition_of_ones_own_is_remembered_by_its_run(tmp_path):
    own, out, file = EXAMPLES / "own_decomposition.py", tmp_path / "run", tmp_path / "net.safetensors"
    command = ["--import", own, "train", "digits", "--latent", "gated", "--out", out, *SMALL]
    assert bitfactor(*command).returncode == 0
    assert bitfactor("export", out, "-o", file).returncode == 0
    of_run, of_file = bitfactor("evaluate", out), bitfactor("--import", own, "evaluate", file)
    assert of_run.stdout.split(":")[1:] == of_file.stdout.split(":")[1:]
    scale, estimators = EXAMPLES / "own_scale.py", EXAMPLES / "own_estimators.py"
    parts = ["--latent", "gated", "--scale", "rms_scale", "--vary", "weight-estimator", "reste", "staircase"]
    study = [
        "--import",
        own,
        "--import",
        scale,
        "--import",
        estimators,
        "ablate",
        "digits",
        *parts,
        "--seeds",
        "1",
    ]
    assert bitfactor(*study, "--jobs", "1", "--out", tmp_path / "study", *SMALL).returncode == 0
    table = tmp_path / "table.tex"
    assert bitfactor("report", tmp_path / "study", "--format", "latex", "-o", table).returncode == 0
    assert "gated" in table.read_text()
    assert "staircase" in table.read_text()


def test_digits(tmp_path):
    script = [sys.executable, EXAMPLES / "digits.py", tmp_path, "1"]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert "360 of 360" in done.stdout
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("loop", "options"),
    [
        ("plain", {}),
        ("with_accelerate", {}),
        ("with_lightning", {"enable_progress_bar": False}),
        ("with_transformers", {}),
    ],
)
def test_the_loss_falls_in_a_loop_of_ones_own(loop, options, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "loops")
    monkeypatch.chdir(tmp_path)
    losses = import_module(loop).train(12, **options)
    assert len(losses) == 12
    assert sum(losses[-3:]) < 0.6 * sum(losses[:3])


def all_of(*commands):
    """Run commands in one process of its own, and return what it printed."""
    script = "import json, sys; from bitfactor.cli import main\n"
    script += "sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    words = json.dumps([[*map(str, command)] for command in commands])
    done = subprocess.run([sys.executable, "-c", script, words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("file", "recipe"), [("own_data.py", "spectra"), ("own_loss.py", "digits-focal")])
def test_a_recipe_of_ones_own_is_trained_and_exported(file, recipe, tmp_path):
    own, out, net = ["--import", EXAMPLES / file], tmp_path / "run", tmp_path / "net.safetensors"
    printed = all_of(
        [*own, "train", recipe, "--epochs", "1", "--out", out],
        ["export", out, "-o", net],
        ["evaluate", out, "--json"],
        [*own, "evaluate", net, "--json"],
        ["report", out],
        ["export", out, "-o", tmp_path / "net.c"],
    )
    of_run, of_file = re.findall(r'^  "accuracy": ([0-9.]+)', printed, re.MULTILINE)
    assert of_run == of_file
    if recipe == "spectra":
        image = np.full((40, 20, 5), 128, np.uint8)
        assert predict(net, image).images[0].classes
        with pytest.raises(InputError, match=r"uint8 values of 0 to 255 shaped \(H, W, 5\)"):
            predict(net, image[..., :3])
