"""A study is run, stopped, resumed, shared and searched: with real trainings, or stand-ins."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from threading import Thread
from types import SimpleNamespace

import pytest
import submitit
from tests.cases import wait_for

import bitfactor
from bitfactor.cli import main
from bitfactor.study import CellDirectory, Grid, StudyDirectory
from bitfactor.training import Run

TINY = ["--blocks", "1", "--widths", "8", "--batch-size", "8", "--limit", "64", "--checkpoint-steps", "1"]
ONE_SCALE = ["--scale", "learned", "--seeds", "1"]


class Executor:
    """Runs what is submitted, at once."""

    def update_parameters(self, **_):
        pass

    def batch(self):
        return nullcontext()

    def submit(self, function):
        function()
        return SimpleNamespace(job_id="1")


def stamps(directory):
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


def test_a_study_that_was_told_to_stop_goes_on_and_repeats_nothing(toy_cells, tmp_path, capfd):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--latent", "none", "--jobs", "1"]
    command += ["--learning-rate", "0.01", "1e-9", "--json"]
    first, second = (out / "cells" / f"none-learned-seed0-lr{rate}" for rate in ("0.01", "1e-09"))

    def stop():
        wait_for((second / "checkpoint.ckpt").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=stop, daemon=True).start()
    assert main(command) == 143
    before = stamps(first)
    assert "outcome.json" in before
    assert not (second / "outcome.json").exists()
    capfd.readouterr()
    assert main(command) == 0
    assert stamps(first) == before
    found = json.loads(capfd.readouterr().out)["trainings"]
    assert [(one["name"], one["resumed"]) for one in found] == [(first.name, False), (second.name, True)]
    assert not list(out.glob("cells/*/*.ckpt"))


def test_calls_on_one_folder_share_the_trainings_and_take_over_one_that_was_left(toy_cells, tmp_path):
    """Three of them; a fourth had one cell, and trains no more once its claim is gone."""
    out, rows = tmp_path / "study", {"latent": ["none", "svd", "tucker"], "scale": ["learned"]}
    held = CellDirectory(out / "cells" / "none-learned-seed0")
    study = partial(bitfactor.ablate, "digits", out=out, jobs=1, progress=False, epochs=2, seeds=2, **rows)
    StudyDirectory(out).start("digits", {"epochs": "2"}, Grid({**rows, "latent": ["none"]}, [0]))
    claim = held.claim()
    held.checkpoint.touch()
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(study) for _ in range(3)]
        wait_for(lambda: any(one.done() for one in calls) or len([*out.glob("cells/*/outcome.json")]) >= 5)
        claim.close()
        assert [len(call.result().trainings) for call in calls] == [6] * 3
    starts = {file.parent.name: file.read_text() for file in out.glob("cells/*/starts")}
    assert starts.pop(held.path.name) == "resuming from step 1\n"
    assert list(starts.values()) == ["starting\n"] * 5


def test_jobs_of_slurm_are_one_array_that_runs_the_command(tmp_path, monkeypatch, capfd):
    """What sbatch is given, by one that keeps it."""
    from submitit.core.utils import DelayedSubmission

    monkeypatch.setattr("bitfactor.common.files._LOADED", {})  # files that other tests have imported
    programs, out = tmp_path / "bin", tmp_path / "study"
    programs.mkdir()
    for name, script in (("srun", ""), ("sbatch", f"cp $1 {tmp_path}/asked; echo Submitted batch job 17")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--epochs", "1", "--json"]
    launcher = ["--launcher", "slurm", "--tasks", "2", "--launcher-option", "partition", "gpu"]
    assert main([*command, *launcher, "--launcher-option", "time", "600"]) == 0
    assert json.loads(capfd.readouterr().out)["jobs"] == ["17_0", "17_1"]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {"#SBATCH --array=0-1%2", "#SBATCH --partition=gpu", "#SBATCH --time=600"} <= set(asked)
    for task in ("17_0", "17_1"):
        words = DelayedSubmission.load(out / "slurm" / f"{task}_submitted.pkl").function.words
        assert words == [*command, *launcher, "--launcher-option", "time", "600", "--launcher", "None"]
    assert (out / "study.json").exists()


def test_jobs_of_a_launcher_train_what_the_others_have_not(toy_cells, tmp_path, monkeypatch):
    """One job after the other, in this process."""
    monkeypatch.setattr(submitit, "AutoExecutor", lambda *_, **__: Executor())
    here = SimpleNamespace(Popen=lambda words: SimpleNamespace(wait=lambda: main(words[3:])))
    monkeypatch.setattr("bitfactor.study.jobs.subprocess", here)
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--latent", "none", "tucker"]
    assert main([*command, "--launcher", "local", "--tasks", "2"]) == 0
    assert [file.read_text() for file in out.glob("cells/*/starts")] == ["starting\n"] * 2


def test_a_dry_run_times_each_row_once_and_writes_nothing(trainings, tmp_path, capfd, refused):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, "--scale", "learned", "--epochs", "2"]
    command += ["--latent", "none", "tucker", "--learning-rate", "0.01", "0.02", "--jobs", "2"]
    assert main([*command, "--seeds", "3", "--vary", "merge_epoch", "0", "1", "--dry-run", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    rows = ["none, learned", "Tucker, learned, merge epoch 0", "Tucker, learned, merge epoch 1"]
    assert list(found["rows"]) == rows
    cost = [(row["trainings"], row["steps"], row["epochs"]) for row in found["rows"].values()]
    assert cost == [(6, 8, 2)] * 3
    assert not out.exists()

    assert main([*command, "--seeds", "1"]) == 0
    before = stamps(out)
    capfd.readouterr()
    assert main([*command, "--seeds", "2", "--dry-run"]) == 0
    assert "4 trainings on cpu, 2 at a time" in capfd.readouterr().out
    assert main([*command, "--seeds", "1", "--dry-run"]) == 0
    assert capfd.readouterr().out == "no training is left\n"
    assert "a study with batch-size = 8" in refused(*command, "--batch-size", "16", "--dry-run")
    assert stamps(out) == before


def test_halving_gives_up_what_learns_nothing_and_the_call_without_it_goes_on(trainings, tmp_path, capfd):
    """At the second rate it cannot learn; the epochs after the first are never finished in time."""
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), "--blocks", "1", "--widths", "8", *ONE_SCALE]
    command += ["--latent", "none", "--jobs", "1", "--epochs", "9", "--json"]
    rates = ["--learning-rate", "0.01", "1e-9"]
    given_up = out / "cells" / "none-learned-seed0-lr1e-09"
    assert main([*command, *rates, "--halving"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["given_up"], found["failed"]) == ([given_up.name], [])
    assert [one["axes"]["learning_rate"] for one in found["trainings"]] == [0.01]
    assert not (given_up / "outcome.json").exists()

    for flags, left in (["--halving"], 0), ([], 1):
        assert main([*command, *rates, *flags, "--dry-run"]) == 0
        assert sum(row["trainings"] for row in json.loads(capfd.readouterr().out)["rows"].values()) == left
    before = stamps(given_up)
    assert main([*command, *rates, "--halving"]) == 0
    assert stamps(given_up) == before
    assert json.loads(capfd.readouterr().out)["given_up"] == [given_up.name]
    assert main([*command, *rates]) == 0
    assert "resuming from step" in (given_up / "output.txt").read_text()
    assert len(json.loads(capfd.readouterr().out)["trainings"]) == 2


def test_flags_without_a_value_are_on_and_off(toy_cells, tmp_path):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none"]
    assert main([*command, "--vary", "weights", "on", "off", "--vary", "input_scale", "on", "off"]) == 0
    for weights in ("on", "off"):
        for scale in ("on", "off"):
            name = f"none-learned-seed0-weights={weights}-input_scale={scale}"
            chosen = Run(out / "cells" / name).settings()["binarization"]
            assert (chosen["weights"], chosen["input_scale"]) == (weights == "on", scale == "on")


def test_flags_are_left_out_where_they_mean_nothing(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr("bitfactor.study.run.run_jobs", lambda found, *_: jobs.extend(found))
    command = ["ablate", "digits", "--out", str(tmp_path / "study"), *TINY, *ONE_SCALE, "--epochs", "2"]
    command += ["--latent", "none", "tucker", "--real", "--merge-epoch", "1", "--diagnose", "4"]
    command += ["--factor-rate", "0.5", "--vary", "rank", "2", "3", "--epochs", "3"]
    command += ["--vary", "latent-rate", "0.5", "--weight-rate", "0"]
    assert main(command) == 0
    plans = [job.call.args[1]["optimization"] for job in jobs]
    assert [(plan["merge_epoch"], plan["diagnose"]) for plan in plans] == [(0, 4), (1, 4), (1, 4), (0, 0)]
    given = [("--merge-epoch" in job.command, "--diagnose" in job.command) for job in jobs]
    assert given == [(False, True), (True, True), (True, True), (False, False)]
    assert ["--factor-rate" in job.command for job in jobs] == [False, True, True, False]
    rates = [(plan["latent_rate"], plan["weight_rate"]) for plan in plans]
    assert rates == [(0.5, 0.0), (0.5, 0.0), (0.5, 0.0), (1.0, 0.0)]
    assert [job.call.args[1]["binarization"]["rank"] for job in jobs[:3]] == [None, 2, 3]
    assert all(job.command[job.command.index("--epochs") + 1] == "3" for job in jobs)
    assert all(job.command.count("2") < 2 for job in jobs)


def test_each_row_is_trained_at_its_best_rate_of_another_study(trainings, tmp_path, refused, capfd):
    search, out = tmp_path / "search", tmp_path / "study"
    command = ["ablate", "digits", *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none", "--json"]
    assert main([*command, "--learning-rate", "1e-9", "0.01", "--out", str(search)]) == 0
    best = max(
        json.loads(capfd.readouterr().out)["trainings"], key=lambda outcome: outcome["metrics"]["accuracy"]
    )
    assert main([*command, "--rates-from", str(search), "--out", str(out)]) == 0
    (cell,) = (json.loads(file.read_text()) for file in out.glob("cells/none-learned-seed0/cell.json"))
    rate = best["axes"]["learning_rate"]
    assert cell["chosen"] == {"learning_rate": rate}
    assert cell["command"][cell["command"].index("--learning-rate") + 1] == f"{rate:g}"
    assert Run(out / "cells" / "none-learned-seed0").settings()["optimization"]["learning_rate"] == rate

    found = refused(*command, "--rates-from", search, "--out", out, "--real")
    assert "--rates-from: expected a study with the row real, found one of none-learned" in found
    found = refused(*command, "--rates-from", search, "--out", out, "--learning-rate", "1e-3")
    assert "--rates-from: expected no learning rate beside that of the other study, found 0.001" in found
    found = refused(*command, "--rates-from", search, "--out", tmp_path / "b", "--halving")
    assert "--halving: expected a search" in found
    assert "found settings of a search that is over" in found
    assert "a study with settings of another search" in refused(*command, "--out", out)


@pytest.mark.usefixtures("undrawn")
def test_each_row_is_trained_at_its_best_setting_of_all_that_was_searched(toy_cells, tmp_path, refused):
    search, out = tmp_path / "search", tmp_path / "study"
    command = ["ablate", "digits", *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none"]
    vary = ["--learning-rate", "0.01", "0.02", "--vary", "weight-decay", "0.1", "0.2"]
    assert main([*command, *vary, "--out", str(search)]) == 0
    assert main([*command, "--rates-from", str(search), "--out", str(out)]) == 0
    plan = Run(out / "cells" / "none-learned-seed0").settings()["optimization"]
    assert (plan["learning_rate"], plan["weight_decay"]) == (0.02, 0.1)
    assert main(["report", str(out), "--format", "markdown"]) == 0
    page = (out / "report.md").read_text()
    assert "at its best learning rate and weight decay of 4 in an earlier study" in page
    assert "measured here: learning rate | measured here: weight decay" in page
    for more in (["--vary", "weight-decay", "0.1"], ["--weight-decay", "0.1"]):
        found = refused(*command, *more, "--rates-from", search, "--out", tmp_path / "b")
        assert "--rates-from: expected no weight decay beside that of the other study" in found


@pytest.mark.usefixtures("undrawn")
def test_a_rate_that_diverges_is_no_rate(trainings, tmp_path, capfd):
    search, out = tmp_path / "search", tmp_path / "study"
    command = ["ablate", "digits", *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none", "--json"]
    assert main([*command, "--learning-rate", "0.01", "1e30", "--out", str(search)]) == 1
    assert json.loads(capfd.readouterr().out)["failed"] == ["none-learned-seed0-lr1e+30"]
    assert main(["report", str(search), "--format", "markdown"]) == 0
    assert "1e+30, seed 0 | diverged, no epoch" in (search / "report.md").read_text()
    capfd.readouterr()
    assert main([*command, "--rates-from", str(search), "--out", str(out)]) == 0
    assert json.loads((out / "cells" / "none-learned-seed0" / "cell.json").read_text())["chosen"] == {
        "learning_rate": 0.01
    }


def test_of_two_flags_the_last_one_holds(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr("bitfactor.study.run.run_jobs", lambda found, *_: jobs.extend(found))
    command = [
        "ablate",
        "digits",
        "--out",
        str(tmp_path),
        *TINY,
        *ONE_SCALE,
        "--epochs",
        "1",
        "--epochs",
        "2",
    ]
    assert main(command) == 0
    assert {job.command[job.command.index("--epochs") + 1] for job in jobs} == {"2"}
