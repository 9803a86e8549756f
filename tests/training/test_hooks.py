"""A training by steps, its log within epochs, and those who are told of it."""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.training.toy import Disturbed, Stopping

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.training import OPTIMIZERS, Run, TerminatedError, train

QUIET = Console(quiet=True)


def test_steps_in_place_of_epochs(recipe_of_toy, tmp_path):
    """Three steps are an epoch here."""
    row = train(recipe_of_toy(steps=7), tmp_path, QUIET)
    rows = Run(tmp_path).history()
    assert [one["step"] for one in rows] == [3, 6, 7]
    assert row["epoch"] == 3
    assert "accuracy" in row
    assert Run(tmp_path).settings()["optimization"]["epochs"] == 3
    assert rows[-1]["learning_rate"] < rows[0]["learning_rate"]


@pytest.mark.parametrize("stopped", [False, True])
def test_the_loss_of_an_epoch_is_the_mean_of_its_steps_also_of_a_short_or_resumed_one(
    stopped, recipe_of_toy, toy, tmp_path
):
    losses = []
    recorder = SimpleNamespace(on_train_batch_end=lambda _, loss: losses.append(loss))
    recipe = recipe_of_toy(steps=7)
    if stopped:
        halved = replace(recipe, data=lambda _: Stopping(toy, 4))
        with pytest.raises(TerminatedError):
            train(halved, tmp_path, QUIET, callbacks=[recorder])
    train(recipe, tmp_path, QUIET, callbacks=[recorder])
    epochs = [losses[:3], losses[3:6], losses[6:]]
    expected = [sum(epoch) / len(epoch) for epoch in epochs]
    assert [row["loss"] for row in Run(tmp_path).history()] == pytest.approx(expected)


def test_the_log_within_epochs(recipe_of_toy, tmp_path):
    train(recipe_of_toy(epochs=2, log_every=2), tmp_path, QUIET)
    rows = Run(tmp_path).step_history()
    assert [(one["epoch"], one["step"]) for one in rows] == [(1, 2), (2, 4), (2, 6)]
    assert rows[-1]["flipped"] == Run(tmp_path).history()[-1]["flipped"]


def test_flips_count_from_the_epochs_start_also_where_it_was_interrupted(recipe_of_toy, tmp_path):
    recipe = recipe_of_toy(epochs=2, log_every=1)
    train(recipe, tmp_path / "whole", QUIET)
    broken = recipe_of_toy(epochs=2, log_every=1, data=Stopping(recipe.data(None), 4))
    with pytest.raises(TerminatedError):
        train(broken, tmp_path / "two", QUIET)
    train(recipe, tmp_path / "two", QUIET)
    whole, two = Run(tmp_path / "whole"), Run(tmp_path / "two")
    assert whole.step_history() == two.step_history()
    assert whole.history()[-1]["flipped"] == two.history()[-1]["flipped"]


def test_an_epoch_that_was_interrupted_counts_all_of_its_seconds(recipe_of_toy, toy, tmp_path):
    slow = recipe_of_toy(Disturbed(toy, 1, lambda: time.sleep(2)))
    with pytest.raises(TerminatedError):
        train(replace(slow, data=lambda _: Stopping(slow.data(None), 2)), tmp_path, QUIET)
    train(recipe_of_toy(), tmp_path, QUIET)
    first, second = (row["seconds"] for row in Run(tmp_path).history())
    assert first > 2 > second


def test_tensorboard_keeps_the_row_at_which_a_run_is_resumed(recipe_of_toy, tmp_path):
    for _ in range(2):  # the second time it is done
        train(recipe_of_toy(), tmp_path, QUIET)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("accuracy")] == [3, 6]


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_each_optimizer_trains(optimizer, recipe_of_toy, tmp_path):
    assert train(recipe_of_toy(steps=1, optimizer=optimizer, weight_decay=0.1), tmp_path, QUIET)["step"] == 1


class Told:
    def __init__(self):
        self.events = []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *what: self.events.append((name, what[0]))


def test_callbacks_are_told(tmp_path):
    told, rows = Told(), []
    run = bitfactor.train(
        "digits", out=tmp_path / "a", steps=3, log_every=2, blocks=(1,), widths=(8,), progress=False,
        callbacks=[told], on_log=rows.append,
    )  # fmt: skip
    assert [one["step"] for one in rows] == [2, 3]
    assert [one["step"] for one in run.steps] == [2]
    assert [name for name, _ in told.events] == [
        "on_train_start", "on_train_batch_end", "on_train_batch_end", "on_log",
        "on_train_batch_end", "on_log", "on_train_epoch_end", "on_train_end",
    ]  # fmt: skip


def test_trackers_resume_their_own_run(recipe_of_toy, tmp_path, monkeypatch):
    began, rows = [], []
    tracked = SimpleNamespace(
        log=lambda row, step: rows.append(step), finish=lambda exit_code: rows.append(exit_code)
    )
    wandb = SimpleNamespace(init=lambda **given: began.append(given) or tracked)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    train(recipe_of_toy(epochs=1), tmp_path, QUIET, track=["wandb"])
    train(recipe_of_toy(epochs=1), tmp_path, QUIET, track=["wandb"])
    assert rows == [3, 0, 0]
    assert began[0]["id"] == began[1]["id"]
    assert began[0]["project"] == "bitfactor"


class StandIn:
    """What of mlflow is called."""

    def __init__(self):
        self.runs, self.rows, self.params = [], [], []

    def search_runs(self, **_):
        return self.runs

    def start_run(self, run_id, run_name, tags):
        self.runs = [SimpleNamespace(info=SimpleNamespace(run_id="7"))]
        self.started = run_id

    def log_params(self, params):
        self.params.append(params)

    def log_metrics(self, row, step):
        self.rows.append(row)

    def end_run(self, status):
        self.ended = status


def test_mlflow_is_told(recipe_of_toy, tmp_path, monkeypatch):
    mlflow = StandIn()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    train(recipe_of_toy(epochs=1), tmp_path, QUIET, track=["mlflow"])
    train(recipe_of_toy(epochs=1), tmp_path, QUIET, track=["mlflow"])
    assert mlflow.started == "7"
    assert mlflow.ended == "FINISHED"
    assert mlflow.params[0]["optimization.epochs"] == 1
    assert len(mlflow.params) == len(mlflow.rows) == 1


def test_a_tracker_is_ended_where_a_training_is(recipe_of_toy, toy, tmp_path, monkeypatch):
    mlflow = StandIn()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    with pytest.raises(TerminatedError):
        train(recipe_of_toy(Stopping(toy, 1)), tmp_path, QUIET, track=["mlflow"])
    assert mlflow.ended == "KILLED"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "lion"}, "optimizer"),
        ({"momentum": 0.5}, "the optimizer sgd"),
        ({"steps": 0}, "--steps"),
        ({"steps": 2, "epochs": 1}, "steps or epochs"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said, tmp_path):
    with pytest.raises(InputError, match=said):
        bitfactor.train("digits", out=tmp_path / "a", progress=False, **options)
    assert not (tmp_path / "a").exists()


def test_a_tracker_that_is_not_installed(recipe_of_toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"pip install 'bitfactor\[wandb\]'"):
        train(recipe_of_toy(epochs=1), tmp_path / "a", QUIET, track=["wandb"])
