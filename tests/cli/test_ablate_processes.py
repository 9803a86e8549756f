"""A study of real trainings in processes of their own: run, killed, resumed, shared, given up.

Beside each slow one, test_ablate.py has the same commands with trainings that take milliseconds.
"""

import fcntl
import json
import os
import subprocess
import sys

import pytest
from tests.cases import wait_for

from bitfactor.cli import main
from bitfactor.runtime import Session
from bitfactor.study import CellDirectory
from bitfactor.training import Run

TINY = ["--blocks", "1", "--widths", "8", "--batch-size", "8", "--limit", "64", "--checkpoint-steps", "1"]
ONE_SCALE = ["--scale", "learned", "--seeds", "1"]


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_script_without_a_guard_is_told(tmp_path):
    """Its processes run it again, and would wait for one another."""
    script = "import bitfactor\nbitfactor.ablate('digits', out='study', latent=['none'], scale=['learned'], "
    (tmp_path / "plain.py").write_text(script + "seeds=1, epochs=1, limit=64, blocks=(1,), widths=(8,))\n")
    done = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert "expected its call under `if __name__ == '__main__':`" in done.stderr
