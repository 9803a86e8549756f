"""A study is run, killed, gone on with; what it is given is checked before anything is written."""

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from bitfactor.cli import main
from bitfactor.runtime import Session
from bitfactor.study import CellDirectory
from bitfactor.training import Run

TINY = ["--blocks", "1", "--widths", "8", "--batch-size", "8", "--limit", "64", "--checkpoint-steps", "1"]
ONE_SCALE = ["--scale", "learned", "--seeds", "1"]


def wait_for(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def nobody_trains_in(directory):
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def stamps(directory):
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


def test_a_killed_study_goes_on_and_repeats_nothing(tmp_path, capsys):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE]
    command += ["--latent", "none", "tucker", "--epochs", "2", "--jobs", "1"]
    first, second = (out / "cells" / f"{latent}-learned-seed0" for latent in ("none", "tucker"))
    process = subprocess.Popen([sys.executable, "-m", "bitfactor", *command])
    try:
        wait_for((second / "checkpoint.ckpt").exists)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: nobody_trains_in(second))
    before = stamps(first)
    steps = Run(second).load()["step"]
    assert "outcome.json" in before
    assert not (second / "outcome.json").exists()

    assert main([*command, "--json"]) == 0
    assert stamps(first) == before
    assert f"resuming from step {steps} of 16" in (second / "output.txt").read_text()
    outcomes = json.loads(capsys.readouterr().out)["trainings"]
    assert [(o["name"], o["resumed"]) for o in outcomes] == [(first.name, False), (second.name, True)]
    for outcome, cell in zip(outcomes, (first, second), strict=True):
        assert outcome["metrics"]["accuracy"] == Run(cell).history()[-1]["accuracy"]
        assert outcome["bytes"] == (cell / outcome["file"]).stat().st_size
        assert json.loads((cell / "layers.json").read_text()).keys() == {"layer1.0.conv1", "layer1.0.conv2"}
        assert not list(cell.glob("*.ckpt"))
        Session(cell / outcome["file"]).verify()


def test_calls_on_one_folder_share_the_trainings_and_take_over_those_of_a_dead_one(tmp_path):
    """Four of them, the first one killed while it trains."""
    out = tmp_path / "study"
    flags = ["--out", str(out), *TINY, "--scale", "learned", "--seeds", "2"]
    flags += ["--latent", "none", "svd", "tucker"]
    command = [sys.executable, "-m", "bitfactor", "ablate", "digits", *flags, "--epochs", "2", "--jobs", "1"]
    held = out / "cells" / "none-learned-seed0"
    first = subprocess.Popen(command)
    wait_for((held / "checkpoint.ckpt").exists)
    assert CellDirectory(held).claim() is None
    first.kill()
    others = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=300)[1] for process in others]
    assert [process.returncode for process in others] == [0, 0, 0], said
    started = [line.split(":")[0] for text in said for line in text.splitlines() if ": running" in line]
    cells = sorted(path.name for path in (out / "cells").iterdir())
    assert len(cells) == 6
    assert sorted(started) == cells  # each trained once
    assert "resuming from step" in (held / "output.txt").read_text()
    for cell in cells:
        assert len(Run(out / "cells" / cell).history()) == 2


def test_a_dry_run_times_each_row_once_and_writes_nothing(tmp_path, capfd, refused):
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


def test_halving_gives_up_what_learns_nothing_and_the_call_without_it_goes_on(tmp_path, capfd):
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


def test_jobs_of_a_launcher_share_the_trainings(tmp_path, capfd):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--epochs", "1", "--jobs", "1"]
    command += ["--latent", "none", "tucker", "--launcher", "local", "--tasks", "2", "--json"]
    assert main(command) == 0
    launched = json.loads(capfd.readouterr().out)
    assert len(launched["jobs"]) == 2
    cells = [out / "cells" / f"{latent}-learned-seed0" for latent in ("none", "tucker")]
    wait_for(lambda: all((cell / "outcome.json").exists() for cell in cells))
    logs = [out / "local" / f"{job}_0_log.out" for job in launched["jobs"]]
    wait_for(lambda: all("completed successfully" in log.read_text() for log in logs if log.exists()))


def test_jobs_of_slurm_are_one_array_that_runs_the_command(tmp_path, monkeypatch, capfd):
    """What sbatch is given, by one that keeps it."""
    from submitit.core.utils import DelayedSubmission

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


def test_what_a_launcher_does_not_take_is_refused_before_it_is_asked(refused, tmp_path):
    command = ["ablate", "digits", "--out", tmp_path / "study", "--launcher", "local"]
    line = refused(*command, "--launcher-option", "partitoin", "gpu")
    assert "--launcher local: expected a job that it takes, found Unknown argument 'partitoin'" in line
    assert "--tasks: expected 1 or more, found 0" in refused(*command, "--tasks", "0")


def test_one_that_fails_is_reported_and_the_others_go_on(tmp_path, capfd):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), *TINY, *ONE_SCALE, "--epochs", "1", "--rank", "1000"]
    assert main([*command, "--latent", "tucker", "--real", "--keep-checkpoints", "--json"]) == 1
    printed = capfd.readouterr()
    assert "tucker-learned-seed0: failed" in printed.err
    assert "expected at most the full ranks" in printed.err
    (baseline,) = json.loads(printed.out)["trainings"]
    assert (baseline["name"], baseline["file"]) == ("real-seed0", None)
    assert (out / "cells" / "real-seed0" / "checkpoint.ckpt").exists()
    cell = json.loads((out / "cells" / "real-seed0" / "cell.json").read_text())
    assert cell["command"][:3] == ["bitfactor", "train", "digits"]
    assert cell["command"][-5:] == ["--real", "--seed", "0", "--out", "real-seed0"]


def test_flags_without_a_value_are_on_and_off(tmp_path):
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
    assert main(command) == 0
    plans = [job.call.args[1]["optimization"] for job in jobs]
    assert [(plan["merge_epoch"], plan["diagnose"]) for plan in plans] == [(0, 4), (1, 4), (1, 4), (0, 0)]
    given = [("--merge-epoch" in job.command, "--diagnose" in job.command) for job in jobs]
    assert given == [(False, True), (True, True), (True, True), (False, False)]
    assert ["--factor-rate" in job.command for job in jobs] == [False, True, True, False]
    assert [job.call.args[1]["binarization"]["rank"] for job in jobs[:3]] == [None, 2, 3]
    assert all(job.command[job.command.index("--epochs") + 1] == "3" for job in jobs)
    assert all(job.command.count("2") < 2 for job in jobs)


def test_each_row_is_trained_at_its_best_rate_of_another_study(tmp_path, refused, capfd):
    search, out = tmp_path / "search", tmp_path / "study"
    command = ["ablate", "digits", *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none", "--json"]
    assert main([*command, "--learning-rate", "1e-9", "0.01", "--out", str(search)]) == 0
    best = max(
        json.loads(capfd.readouterr().out)["trainings"], key=lambda outcome: outcome["metrics"]["accuracy"]
    )
    assert main([*command, "--rates-from", str(search), "--out", str(out)]) == 0
    (cell,) = (json.loads(file.read_text()) for file in out.glob("cells/none-learned-seed0/cell.json"))
    rate = best["axes"]["learning_rate"]
    assert cell["rate"] == rate
    assert cell["command"][cell["command"].index("--learning-rate") + 1] == f"{rate:g}"
    assert Run(out / "cells" / "none-learned-seed0").settings()["optimization"]["learning_rate"] == rate

    found = refused(*command, "--rates-from", search, "--out", out, "--real")
    assert "--rates-from: expected a study with the row real, found one of none-learned" in found
    found = refused(*command, "--rates-from", search, "--out", out, "--learning-rate", "1e-3")
    assert "--rates-from: expected no learning rates beside those of the other study, found 0.001" in found
    found = refused(*command, "--rates-from", search, "--out", tmp_path / "b", "--halving")
    assert "--halving: expected a search" in found
    assert "found rates of a search that is over" in found
    assert "a study with learning rates of other origin" in refused(*command, "--out", out)


def test_a_rate_that_diverges_is_no_rate(tmp_path, capfd):
    search, out = tmp_path / "search", tmp_path / "study"
    command = ["ablate", "digits", *TINY, *ONE_SCALE, "--epochs", "1", "--latent", "none", "--json"]
    assert main([*command, "--learning-rate", "0.01", "1e30", "--out", str(search)]) == 1
    assert json.loads(capfd.readouterr().out)["failed"] == ["none-learned-seed0-lr1e+30"]
    assert main(["report", str(search), "--format", "markdown"]) == 0
    assert "1e+30, seed 0 | diverged, no epoch" in (search / "report.md").read_text()
    capfd.readouterr()
    assert main([*command, "--rates-from", str(search), "--out", str(out)]) == 0
    assert json.loads((out / "cells" / "none-learned-seed0" / "cell.json").read_text())["rate"] == 0.01


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
    assert all(job.command[job.command.index("--epochs") + 1 :][1].startswith("--") for job in jobs)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--seed", "3"], "--seed: expected a flag that is the same in all trainings"),
        (["--from", "runs/a"], "--from: expected a flag that is the same in all trainings"),
        (["--device", "cpu"], "--device: expected a flag that is the same in all trainings"),
        (["--vary", "model", "my.py:Net"], "--model: expected a flag that is the same in all trainings"),
        (["--vary", "move", "on", "--no-move"], "--move: expected a flag that is the same in all trainings"),
        (["--vary", "latent", "svd"], "--vary: expected no latent, found latent, beside --latent"),
        (["--vary", "rank", "2", "--vary", "rank", "4"], "--vary: expected each flag once, found rank twice"),
        (["--latent", "none", "--rank", "4"], "--rank: expected a row that it changes something for"),
        (["--latent", "none", "--vary", "rank", "4"], "--rank: expected a row that it changes something for"),
        (["--no-weights", "--weight-estimator", "rms"], "--weight-estimator: expected a row that it changes"),
        (
            ["--no-weights", "--vary", "weight_estimator", "rms", "clipped"],
            "--weight-estimator: expected a row",
        ),
        (["--tasks", "3"], "--tasks: expected a --launcher"),
        (["--launcher", "local", "--dry-run"], "--dry-run: expected no --launcher, as it times steps here"),
        (["--devices", "cpu", "cpu+cpu", "--dry-run"], "--devices: expected one for each training, to time"),
        (["--launcher-option", "time", "3"], "--launcher-option: expected a --launcher"),
        (["--vary", "epochs", "1", "2", "--epochs", "3"], "--epochs: expected a flag that is the same"),
        (["--latent", "none", "none"], "values of latent: expected one or more, each once, found none none"),
        (["--vary", "epochs"], "values of epochs: expected one or more, each once, found none"),
        (["--seeds", "0"], "seeds: expected 1 or more, found 0"),
        (["--jobs", "0"], "jobs: expected 1 or more, found 0"),
        (["--factor-rate", "-0.1"], "--factor-rate: expected "),
        (["--learning-rate", "-1"], "--learning-rate: expected a number above 0"),
        (
            ["--halving", "--eval-interval", "2", "--epochs", "3"],
            "--halving: expected a search on validation images, evaluated three times or more",
        ),
        (["--widths", "8", "16"], "--widths: expected 4 numbers above 0"),
    ],
)
def test_flags_that_cannot_be_are_refused_before_anything_is_written(refused, tmp_path, flags, line):
    if flags[0] == "--widths":
        flags = [*flags, "--blocks", "1", "1", "1", "1"]
    assert line in refused("ablate", "digits", "--out", tmp_path / "study", *flags)
    assert not (tmp_path / "study").exists()


def test_halving_is_not_for_what_is_evaluated_on_test_images(refused, tmp_path):
    line = refused("ablate", "cifar10-resnet18", "--out", tmp_path / "study", "--halving")
    assert "evaluated three times or more in each training, found --holdout test" in line
    assert not (tmp_path / "study").exists()


def test_a_flag_that_train_does_not_have_is_refused(refused, tmp_path):
    line = refused("ablate", "digits", "--out", tmp_path / "study", "--epoch", "3")
    assert "--epoch: expected a flag of `bitfactor ablate digits`" in line
    assert "did you mean --epochs" in line
    assert not (tmp_path / "study").exists()
