"""What a run writes, and how it ends."""

import io
import json
import shutil
import signal
import sys
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console
from tests.training.toy import Stopping

from bitfactor.binarization import Binarization
from bitfactor.common.errors import InputError
from bitfactor.data import Digits
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.training import (
    Classification,
    Run,
    Source,
    TerminatedError,
    build,
    dry_run,
    restore,
    train,
)
from bitfactor.training.processes import noting_signals
from bitfactor.training.recipe import Limited, prepare
from bitfactor.training.step import Stepper

QUIET = Console(file=io.StringIO())


def same_state(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [2, 3])
def test_a_signal_saves_and_the_rest_gives_the_same_bits(recipe_of_toy, toy, tmp_path, step, number):
    """Stopped after the second of six steps, in mid-epoch although checkpoints are rare, or at its end."""
    before = signal.getsignal(number)
    train(recipe_of_toy(checkpoint_steps=100), tmp_path / "whole", QUIET)
    with pytest.raises(TerminatedError, match=f"stopped after step {step}, which is saved"):
        train(recipe_of_toy(Stopping(toy, step - 1, number), checkpoint_steps=100), tmp_path / "run", QUIET)
    assert signal.getsignal(number) is before
    assert Run(tmp_path / "run").load()["step"] == step
    train(recipe_of_toy(checkpoint_steps=100), tmp_path / "run", QUIET)
    whole, resumed = (Run(tmp_path / name).load() for name in ("whole", "run"))
    assert resumed["step"] == 6
    assert same_state(whole["model"], resumed["model"])


def test_a_second_ctrl_c_ends_at_once():
    with noting_signals() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_command_ends_with_status_143(monkeypatch, tmp_path):
    from bitfactor.cli import main

    def stop(*arguments, **options):
        raise TerminatedError("stopped")

    monkeypatch.setattr("bitfactor.api.train.train_in", stop)
    assert main(["train", "digits", "--out", str(tmp_path)]) == 143


def test_a_loss_that_is_no_number_names_step_place_and_last_checkpoint(recipe_of_toy, toy, tmp_path):
    recipe = recipe_of_toy(type(toy)(spoiled=2))
    with pytest.raises(InputError) as error:
        train(recipe, tmp_path, QUIET)
    message = str(error.value)
    assert "step 2" in message
    assert "first in the inputs" in message
    assert f"the last good state is {tmp_path / 'checkpoint.ckpt'}" in message
    assert Run(tmp_path).load()["step"] == 2


def test_parameters_that_are_no_numbers_are_not_saved(recipe_of_toy, tmp_path):
    with pytest.raises(InputError, match=r"no number in the parameter .*; no checkpoint was written yet"):
        train(recipe_of_toy(optimizer="rmsprop", learning_rate=1e38), tmp_path, QUIET)
    assert not Run(tmp_path).checkpoint.exists()


@pytest.mark.parametrize("spoiled", ["settings", "batch", "parameters"])
def test_what_is_refused_takes_nothing_of_the_users_with_it(recipe_of_toy, toy, tmp_path, spoiled):
    """Before the first step, in it, and at the end of the epoch, when TensorBoard's file is there."""
    recipe = {
        "settings": recipe_of_toy(binarization=Binarization(latent="none"), merge_epoch=1),
        "batch": recipe_of_toy(type(toy)(spoiled=0)),
        "parameters": recipe_of_toy(optimizer="rmsprop", learning_rate=1e38, checkpoint_steps=100),
    }[spoiled]
    mine = {tmp_path / "tensorboard" / "other": "mine", tmp_path / "recipe.json": "{}"}
    (tmp_path / "tensorboard").mkdir()
    for path, text in mine.items():
        path.write_text(text)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path, tmp_path / "empty", tmp_path / "new"):
        with pytest.raises(InputError):
            train(recipe, out, QUIET)
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == mine
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"tensorboard", "empty"}


def test_the_last_checkpoints_and_the_best_are_kept(recipe_of_toy, tmp_path):
    train(recipe_of_toy(epochs=4, keep_last=3), tmp_path, QUIET)
    run = Run(tmp_path)
    steps = [torch.load(path)["step"] for path in (run.checkpoint, run.older(1), run.older(2))]
    assert steps == [12, 11, 10]
    assert not run.older(3).exists()
    rows = run.history()
    first_best = max(rows, key=lambda row: row["accuracy"])
    assert run.load(best=True)["step"] == first_best["step"]


def test_of_epochs_as_good_as_each_other_the_first_is_the_best(recipe_of_toy, tmp_path, monkeypatch):
    accuracies = iter([0.5, 0.7, 0.7, 0.6])
    monkeypatch.setattr("bitfactor.training.loop.evaluate", lambda *_: {"accuracy": next(accuracies)})
    train(recipe_of_toy(epochs=4), tmp_path, QUIET)
    assert Run(tmp_path).load(best=True)["step"] == 6


def test_the_best_is_of_the_binary_epochs(recipe_of_toy, tmp_path, monkeypatch):
    """Here each epoch is worse than the one before; of real weights were the first two."""
    accuracies = iter([0.9, 0.8, 0.7, 0.6])
    monkeypatch.setattr("bitfactor.training.loop.evaluate", lambda *_: {"accuracy": next(accuracies)})
    train(recipe_of_toy(epochs=4, real_weight_epochs=2), tmp_path, QUIET)
    assert Run(tmp_path).load(best=True)["step"] == 9


def test_the_log(recipe_of_toy, tmp_path):
    train(recipe_of_toy(epochs=3, eval_interval=2), tmp_path, QUIET)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert ["accuracy" in row for row in rows] == [False, True, True]
    assert all(0 < row["flipped"] < 0.5 for row in rows)
    assert [path for path in (tmp_path / "tensorboard").iterdir() if "tfevents" in path.name]


def test_the_moving_average_is_what_is_measured_and_restored(recipe_of_toy, tmp_path):
    recipe = recipe_of_toy(ema=0.9)
    train(recipe, tmp_path, QUIET)
    saved = Run(tmp_path).load()
    assert not same_state(saved["model"], saved["average"])
    assert same_state(restore(recipe, Run(tmp_path)).state_dict(), saved["average"])


def test_limit_shortens_epochs_and_measurement(recipe_of_toy, tmp_path):
    row = train(recipe_of_toy(limit=40), tmp_path, QUIET)
    assert row["step"] == 2 * (40 // 16)
    taken = [
        len(x) for rank in (0, 1) for x, _ in Limited(Digits.load(move=False), 11).test_batches(4, rank, 2)
    ]
    assert taken == [4, 2, 4, 1]
    with pytest.raises(InputError, match="expected at most the 48 training images and"):
        train(recipe_of_toy(limit=15), tmp_path / "other", QUIET)


def test_what_is_left_of_a_run_without_its_checkpoint_is_no_part_of_the_next(recipe_of_toy, tmp_path):
    run = Run(tmp_path)
    train(recipe_of_toy(log_every=1, diagnose=1, keep_last=2), tmp_path, QUIET)
    before = run.layer_records()
    run.checkpoint.unlink()
    train(recipe_of_toy(learning_rate=0.1, epochs=1), tmp_path, QUIET)
    assert run.layer_records() != before
    assert (run.step_history(), run.movement()) == ([], [])


def test_a_refused_command_leaves_what_is_left_of_a_run(recipe_of_toy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    train(recipe_of_toy(), tmp_path, QUIET)
    Run(tmp_path).checkpoint.unlink()
    with pytest.raises(InputError, match="mlflow"):
        train(recipe_of_toy(epochs=1), tmp_path, QUIET, track=["mlflow"])
    assert Run(tmp_path).best.exists()
    assert Run(tmp_path).layers.exists()


def test_a_limit_takes_digits_of_all_classes():
    """Whatever order the test images lie in."""
    whole = Digits.load()
    order = whole.test[1].argsort()
    data = replace(whole, test=(whole.test[0][order], whole.test[1][order])).limited(20)
    ((images, labels),) = data.test_batches(256)
    assert labels.tolist() == sorted([*range(10)] * 2)
    assert torch.equal(images[:2], whole.test[0][order][:2])
    recipe = with_options(recipe_named("digits"), {"limit": 70})
    ((_, labels),) = prepare(recipe, None, "cpu").data.test_batches(256)
    assert torch.bincount(labels).tolist() == [7] * 10


def test_a_limit_takes_test_images_of_all_classes(tmp_path):
    for name in ["a/0.png", "a/1.png", "a/2.png", "b/0.png", "b/1.png", "b/2.png"]:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.full((8, 8, 3), 9, np.uint8))
    for part in ("train", "val"):
        shutil.copytree(tmp_path / "images", tmp_path / "photos" / part)
    chosen = {"size": 8, "limit": 2, "batch_size": 2, "stem": "cifar", "blocks": (1,), "widths": (8,)}
    recipe = with_options(recipe_named("folder-resnet18"), chosen)
    data = prepare(recipe, tmp_path / "photos", "cpu").data
    assert [labels.tolist() for _, labels in data.test_batches(4)] == [[0, 1]]


def test_the_time_of_a_dry_run_is_that_of_its_steps(recipe_of_toy):
    trial = dry_run(recipe_of_toy(steps=4), seconds=0.01)  # three are an epoch
    assert (trial.total, trial.epochs) == (4, 2)
    assert trial.hours == pytest.approx((4 * trial.seconds + 2 * trial.evaluation) / 3600)


def test_a_long_warm_up_leaves_a_dry_run_its_time(recipe_of_toy, monkeypatch):
    steps, real = [], Stepper.loss_of

    def loss_of(self, *batch):
        steps.append(1)
        if len(steps) == 1:  # as where a network is compiled
            time.sleep(1)
        return real(self, *batch)

    monkeypatch.setattr(Stepper, "loss_of", loss_of)
    dry_run(recipe_of_toy(epochs=5), seconds=1.0)
    assert len(steps) > 4  # the least


def test_dry_run_says_what_would_be_and_writes_nothing(recipe_of_toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trial = dry_run(recipe_of_toy(epochs=5))
    assert (trial.steps, trial.epochs, trial.device) == (3, 5, "cpu")
    assert len(trial.plan.binary) == 4
    assert trial.memory > 1e6
    assert trial.hours == pytest.approx((trial.seconds * 15 + trial.evaluation * 5) / 3600)
    assert "nothing was written" in str(trial)
    assert dry_run(recipe_of_toy(real=True)).plan is None
    assert list(tmp_path.iterdir()) == []


def test_a_real_network_has_one_stage(recipe_of_toy, tmp_path):
    rates = []
    for stages in (0, 1):
        train(recipe_of_toy(real=True, real_weight_epochs=stages), tmp_path / str(stages), QUIET)
        rates.append([row["learning_rate"] for row in Run(tmp_path / str(stages)).history()])
    assert rates[0] == rates[1]


def test_a_limit_does_not_make_validation_images_those_of_a_test(recipe_of_toy, toy, tmp_path):
    data, printed = type(toy)(test_name="validation images"), io.StringIO()
    train(recipe_of_toy(data, limit=16, epochs=1), tmp_path, Console(file=printed))
    assert "validation accuracy" in printed.getvalue()


def test_a_run_is_not_resumed_with_epochs_of_another_length(recipe_of_toy, toy, tmp_path):
    recipe = recipe_of_toy(epochs=4, eval_interval=1)
    with pytest.raises(TerminatedError):
        train(replace(recipe, data=lambda _: Stopping(toy, 4)), tmp_path, QUIET)
    before = Run(tmp_path).history()

    class Longer(type(toy)):
        def identity(self):
            return {**super().identity(), "fingerprint": "longer"}

        def steps(self, batch_size):
            return super().steps(batch_size) - 1

    with pytest.raises(InputError, match="expected 3 steps in an epoch, as it began with, found 2"):
        train(replace(recipe, data=lambda _: Longer()), tmp_path, QUIET, other_data=True)
    assert Run(tmp_path).history() == before


@pytest.mark.parametrize("given", [2, 4])
def test_an_epoch_of_another_number_of_batches_than_said_is_refused(recipe_of_toy, toy, tmp_path, given):
    """`steps` says three."""

    def batches(*arguments):
        whole = [*toy.train_batches(*arguments)]
        return iter((whole + whole)[:given])

    data = SimpleNamespace(**{name: getattr(toy, name) for name in ("labels", "input_spec", "identity")})
    data.steps, data.train_batches, data.test_batches = toy.steps, batches, toy.test_batches
    with pytest.raises(InputError, match=f"data: expected 3 batches in this epoch, found {given}; let train"):
        train(replace(recipe_of_toy(), data=lambda _: data), tmp_path / "run", QUIET)


def test_what_a_training_keeps_may_change_where_it_is_resumed(recipe_of_toy, toy, tmp_path):
    with pytest.raises(TerminatedError):
        train(replace(recipe_of_toy(), data=lambda _: Stopping(toy, 2)), tmp_path, QUIET)
    row = train(recipe_of_toy(keep_last=3, log_every=1, checkpoint_steps=2), tmp_path, QUIET)
    assert row["step"] == 6
    with pytest.raises(InputError, match=r"learning_rate = 0\.005 instead of 0\.1; name the same, or"):
        train(recipe_of_toy(learning_rate=0.1), tmp_path, QUIET)


def test_a_teacher_that_has_changed_is_told(recipe_of_toy, toy, tmp_path):
    recipe = recipe_of_toy(teacher="runs/float")
    teachers = [build(recipe_of_toy(real=True, seed=seed)).eval() for seed in (3, 4)]
    with pytest.raises(TerminatedError):
        train(replace(recipe, data=lambda _: Stopping(toy, 2)), tmp_path / "a", QUIET, teacher=teachers[0])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.warns(UserWarning, match="the teacher has other weights than when the run began"):
        train(recipe, tmp_path / "a", QUIET, teacher=teachers[1])
    moved = recipe_of_toy(teacher="../runs/float")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(moved, tmp_path / "b", QUIET, teacher=teachers[0])["step"] == 6


def test_other_versions_are_told_where_a_run_is_resumed(recipe_of_toy, toy, tmp_path):
    with pytest.raises(TerminatedError):
        train(replace(recipe_of_toy(), data=lambda _: Stopping(toy, 2)), tmp_path, QUIET)
    record = json.loads((tmp_path / "recipe.json").read_text())
    record["versions"]["torch"] = "1.0"
    (tmp_path / "recipe.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="other versions than .*: torch 1.0 then, "):
        train(recipe_of_toy(), tmp_path, QUIET)


def test_a_headline_that_is_no_metric_is_refused(recipe_of_toy, tmp_path):
    with pytest.raises(InputError, match=r"headline: expected one of its metrics, .*, found precision"):
        train(replace(recipe_of_toy(), task=Classification(headline="precision")), tmp_path / "run", QUIET)


def test_a_run_is_not_resumed_from_other_weights(recipe_of_toy, tmp_path):
    """Of a run from before the source was recorded, nothing is known."""
    weights = recipe_of_toy().model()
    train(recipe_of_toy(), tmp_path / "run", QUIET)
    with pytest.raises(InputError, match="a run with from = None instead of 'a'"):
        train(recipe_of_toy(), tmp_path / "run", QUIET, start_from=Source(weights, place="a"))
    train(recipe_of_toy(), tmp_path / "from", QUIET, start_from=Source(weights, place="a"))
    record = json.loads((tmp_path / "from" / "recipe.json").read_text())
    assert record.pop("from") == "a"
    with pytest.raises(InputError, match="a run with from = 'a' instead of 'b'"):
        train(recipe_of_toy(), tmp_path / "from", QUIET, start_from=Source(weights, place="b"))
    train(recipe_of_toy(), tmp_path / "from", QUIET)
    (tmp_path / "from" / "recipe.json").write_text(json.dumps(record))
    train(recipe_of_toy(), tmp_path / "from", QUIET)


def test_the_trainings_of_a_study_are_of_the_same_images(recipe_of_toy, toy, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    train(recipe_of_toy(), first, QUIET)
    with pytest.raises(InputError, match=f"expected the images of {first}, 48 to .*, found others, 48 to"):
        train(recipe_of_toy(type(toy)(fingerprint="other")), second, QUIET, beside=[Run(first)])
    assert not second.exists()
    train(recipe_of_toy(), second, QUIET, beside=[Run(first)])


def test_no_run_is_written_into_a_study(recipe_of_toy, tmp_path):
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="expected the directory of a run, or a new one, found that of a"):
        train(recipe_of_toy(), tmp_path, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_data_of_other_classes_do_not_resume(recipe_of_toy, toy, tmp_path):
    train(recipe_of_toy(), tmp_path, QUIET)
    with pytest.raises(InputError, match="labels = "):
        train(recipe_of_toy(type(toy)(labels=("a", "b", "d"))), tmp_path, QUIET)
