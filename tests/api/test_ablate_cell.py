"""The training of a cell in its process: finished, stopped and resumed, diverged, on joined devices."""

import json

import pytest

from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.runtime import Session
from bitfactor.study import Cell, CellDirectory, run
from bitfactor.study.run import train_cell
from bitfactor.training import TerminatedError

TINY = {"blocks": [1], "widths": [8], "batch_size": 8, "limit": 16, "epochs": 2}


@pytest.fixture
def cell(tmp_path):
    cell = CellDirectory(tmp_path / "cells" / "one")
    cell.path.mkdir(parents=True)
    cell.describe(Cell({"latent": "tucker", "scale": "learned"}, 0), ["bitfactor"])
    return cell


def train(cell, device="cpu", **options):
    settings = with_options(recipe_named("digits"), {"latent": "tucker", **TINY, **options}).settings()
    return train_cell(cell.path, settings, (), None, 1, device)


def stop(*_):
    raise TerminatedError("stopped after step 2, which is saved")


def test_one_that_is_stopped_ends_with_143_and_is_resumed(cell, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr("bitfactor.training.loop._Loop._keep_records", stop)
        assert train(cell) == 143
    assert not cell.finished
    assert train(cell) == 0
    assert "resuming from step 2 of 4" in capfd.readouterr().err
    outcome = cell.outcome()
    assert (outcome.resumed, outcome.epochs, outcome.cpu_seconds) == (True, 2, None)
    assert outcome.metrics["accuracy"] == cell.history()[-1]["accuracy"]
    assert outcome.bytes == cell.network.stat().st_size
    layers = json.loads((cell.path / "layers.json").read_text())
    assert layers.keys() == {"layer1.0.conv1", "layer1.0.conv2"}
    Session(cell.network).verify()
    before = cell.network.stat().st_mtime_ns
    assert train(cell) == 0
    assert cell.network.stat().st_mtime_ns == before


def test_one_that_diverges_is_given_up(cell, capfd):
    assert train(cell, learning_rate=1e30) == 2
    assert (cell.given_up, cell.diverged, cell.finished) == (True, True, False)
    assert capfd.readouterr().err.strip().startswith("bitfactor: ")


@pytest.mark.parametrize(("joined", "status"), [(0, 0), (2, 2), (None, 143)])
def test_joined_devices_train_it_together(cell, monkeypatch, joined, status):
    """What the processes return is returned, and 143 where they were told to stop."""
    asked, finished = [], []
    monkeypatch.setattr(run, "run_joined", lambda *words: asked.append(words) or joined)
    monkeypatch.setattr(run, "finish", lambda *_, **how: finished.append(how))
    assert train(cell, "cpu+cpu") == status
    ((devices, part, imports, threads, path, _, data, kind),) = asked
    assert (devices, part, kind) == (["cpu", "cpu"], run._part, "cpu")
    assert (imports, threads, path, data) == ((), 1, cell.path, None)
    assert finished == ([{"resumed": False}] if joined == 0 else [])
