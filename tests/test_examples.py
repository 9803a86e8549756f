"""The examples do what their first lines say."""

import json
import re
import runpy
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bitfactor import bench, predict
from bitfactor.common.errors import InputError
from bitfactor.recipes import RECIPES

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = ["--epochs", "1", "--widths", "8", "16", "--blocks", "1", "1", "--limit", "256"]


def all_of(*commands):
    """Run commands in one process of its own, and return what it printed."""
    script = "import json, sys; from bitfactor.cli import main\n"
    script += "sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    words = json.dumps([[*map(str, command)] for command in commands])
    done = subprocess.run([sys.executable, "-c", script, words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_decomposition_of_ones_own_is_remembered_by_its_run(tmp_path):
    """One process registers it; another hears of it from the run and the study."""
    own, out, file = EXAMPLES / "own_decomposition.py", tmp_path / "run", tmp_path / "net.safetensors"
    imports = ["--import", EXAMPLES / "own_estimators.py"]
    parts = ["--latent", "gated", "--scale", "rms_scale", "--vary", "weight-estimator", "staircase"]
    study = ["--seeds", "1", "--jobs", "1", "--out", tmp_path / "study"]
    all_of(
        ["--import", own, "train", "digits", "--latent", "gated", "--out", out, *SMALL],
        ["--import", own, *imports, "ablate", "digits", *parts, *study, *SMALL],
    )
    table = tmp_path / "table.tex"
    printed = all_of(
        ["export", out, "-o", file],
        ["evaluate", out],
        ["report", tmp_path / "study", "--format", "latex", "-o", table],
        ["--import", own, "evaluate", file],
    )
    of_run, of_file = (re.findall(rf"^{path}:(.* right.*)$", printed, re.MULTILINE) for path in (out, file))
    assert of_run == of_file != []
    assert {"gated", "staircase"} <= set(re.findall(r"\w+", table.read_text()))


def labels(text):
    """Return the first column of the demo's table, without the machine's names and versions."""
    table = re.split(r"test set *\n", text)[1].split("\n\n")[0]
    first = [line.strip().split("  ")[0] for line in table.splitlines()[1:]]
    return [re.sub(r" \(\w+\)| [\d.]+\+\w+", "", one) for one in first]


def test_digits(tmp_path, capsys, monkeypatch):
    """`make demo`, with a smaller network and fewer runs of it."""
    monkeypatch.setattr("bitfactor.bench", partial(bench, runs=2))
    monkeypatch.setattr("bitfactor.api.report.bench", partial(bench, runs=2))
    demo = runpy.run_path(str(EXAMPLES / "digits.py"))
    demo["run"](tmp_path, epochs=1, widths=(8, 16), blocks=(1, 1))
    printed = capsys.readouterr().out
    assert "360 of 360" in printed
    assert (tmp_path / "report.html").exists()
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert labels(readme) == labels(printed)


@pytest.mark.parametrize(
    ("loop", "options"),
    [
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


def test_a_recipe_of_ones_own_is_trained_and_exported(call, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfactor.recipes.RECIPES", dict(RECIPES))
    monkeypatch.setattr("bitfactor.common.files._LOADED", {})
    own, out, net = ["--import", EXAMPLES / "own_data.py"], tmp_path / "run", tmp_path / "net.safetensors"
    call(*own, "train", "spectra", "--out", out, "--epochs", "1")
    call("export", out, "-o", net)
    of_run, of_file = (json.loads(call("evaluate", path, "--json"))["accuracy"] for path in (out, net))
    assert of_run == of_file
    call("report", out)
    call("export", out, "-o", tmp_path / "net.c")
    image = np.full((40, 20, 5), 128, np.uint8)
    assert predict(net, image).images[0].classes
    with pytest.raises(InputError, match=r"uint8 values of 0 to 255 shaped \(H, W, 5\)"):
        predict(net, image[..., :3])


NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.py"))
assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = re.split(r"^# %%( \[markdown\])?\n", notebook.read_text(), flags=re.MULTILINE)[1:]
    assert len(cells) >= 12
    for kind, text in zip(cells[::2], cells[1::2], strict=True):
        assert not kind or all(line.startswith("#") for line in text.splitlines() if line)
    names = runpy.run_path(str(notebook))
    assert names["accuracy"] > 0.8
