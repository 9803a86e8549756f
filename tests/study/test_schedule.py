"""Processes are started, counted, waited for and stopped; those here train nothing."""

import io
import json
from functools import partial

import pytest
from rich.console import Console

from bitfactor.study import Cell, CellDirectory, Job, run_jobs
from bitfactor.study.jobs import Progress, shortened

SUCCEEDS = "open('outcome.json', 'w')"
FAILS = "print('what went wrong'); raise SystemExit(2)"
WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(open("stopped", "w").close()))
open("started", "w")
time.sleep(600)
"""


def told(code, device):
    """Run code that may ask where it runs."""
    exec(code, {"device": device})


@pytest.fixture
def job(tmp_path):
    def job(script, name):
        directory = tmp_path / name
        code = f"import os; os.chdir({str(directory)!r})\n{script}"
        cell = Cell({"latent": name, "scale": "none"}, 0)
        return Job(cell, CellDirectory(directory), ["bitfactor"], partial(told, code), 1)

    return job


def test_all_are_run_so_many_at_a_time_in_their_order(job):
    jobs = [job(FAILS if i == 1 else SUCCEEDS, f"job{i}") for i in range(4)]
    jobs[3].state = "finished"
    events = []
    run_jobs(jobs, ["cpu"] * 2, lambda job: events.append((jobs.index(job), job.state)), lambda: True)
    assert [job.state for job in jobs] == ["finished", "failed", "finished", "finished"]
    assert [i for i, state in events if state == "running"] == [0, 1, 2]
    running = 0
    for _, state in events:
        running += 1 if state == "running" else -1
        assert 0 <= running <= 2
    assert jobs[1].directory.tail() == "what went wrong"
    assert not jobs[3].directory.path.exists()


def test_epochs_of_so_many_steps_are_those_of_a_first_epoch(job):
    jobs = [job(SUCCEEDS, f"job{i}") for i in range(2)]
    for one in jobs:
        one.epochs, one.steps = 60, 1000
    jobs[0].state = "running"
    jobs[0].directory.path.mkdir()
    rows = [{"epoch": i, "step": 390 * i, "accuracy": 0.5, "seconds": 10.0} for i in (1, 2)]
    (jobs[0].directory.path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    console = Console(file=io.StringIO(), width=200)
    console.print(Progress(jobs, "accuracy", 1, console)._table())
    said = console.file.getvalue()
    assert "2/3" in said
    assert "0 of 2 finished, 0:00:40 left" in said
    assert "0:00:10" in said


def test_what_runs_and_what_has_failed_is_shown_where_not_all_fit(job):
    jobs = [job(SUCCEEDS, f"job{i}") for i in range(40)]
    states = {**dict.fromkeys(range(30), "finished"), 30: "failed", 31: "running"}
    for i, state in states.items():
        jobs[i].state = state
    console = Console(file=io.StringIO(), width=80, height=10)
    progress = Progress(jobs, "accuracy", 1, console)
    console.print(progress._table())
    said = console.file.getvalue()
    assert all(name in said for name in ("job0", "job30", "job31", "30 of 40 finished"))
    assert "job39" not in said
    assert len(said.splitlines()) < 10
    with progress:
        pass
    console.print(progress._table())
    assert "job39" in console.file.getvalue()


def test_a_name_is_cut_in_its_middle():
    assert shortened("none-learned-seed10", 30) == "none-learned-seed10"
    long = [f"{latent}-learned-seed{seed}" for latent in ("none", "svd") for seed in range(12)]
    short = {shortened(name, 12) for name in long}
    assert len(short) == 24
    assert {len(name) for name in short} == {12}


def test_a_damaged_log_of_a_training_that_will_write_it_again_is_shown_as_none(job):
    (one,) = (job(SUCCEEDS, "job"),)
    one.state = "running"
    one.directory.path.mkdir()
    (one.directory.path / "log.jsonl").write_text('{"epoch": 1, "st')
    console = Console(file=io.StringIO(), width=80)
    console.print(Progress([one], "accuracy", 1, console)._table())
    assert "0 of 1 finished" in console.file.getvalue()


@pytest.mark.parametrize("stop", [None, KeyboardInterrupt])
def test_those_that_run_are_asked_to_stop_and_waited_for(job, stop):
    jobs = [job(WAITS, f"job{i}") for i in range(3)]

    def look():
        if not all((job.directory.path / "started").exists() for job in jobs[:2]):
            return True
        if stop:
            raise stop
        return False

    try:
        run_jobs(jobs, ["cpu"] * 2, lambda job: None, look)
    except KeyboardInterrupt:
        assert stop
    assert [(job.directory.path / "stopped").exists() for job in jobs] == [True, True, False]
    assert [job.state for job in jobs] == ["waiting"] * 3
    assert all(job.process is None or job.process.exitcode == 0 for job in jobs)


def test_each_device_has_one_at_a_time(job):
    jobs = [job("open('where', 'w').write(device); " + SUCCEEDS, f"job{i}") for i in range(5)]
    busy, most = set(), 0

    def notice(job):
        nonlocal most
        if job.state == "running":
            assert job.device not in busy
            busy.add(job.device)
            most = max(most, len(busy))
        else:
            busy.remove(job.device)

    run_jobs(jobs, ["one", "other"], notice, lambda: True)
    found = [(job.directory.path / "where").read_text() for job in jobs]
    assert found == [job.device for job in jobs]
    assert set(found) == {"one", "other"}
    assert most == 2
