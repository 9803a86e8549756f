"""The examples do what their first lines say."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

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
    study = ["--import", own, "ablate", "digits", "--latent", "gated", "--scale", "learned", "--seeds", "1"]
    assert bitfactor(*study, "--out", tmp_path / "study", *SMALL).returncode == 0


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
