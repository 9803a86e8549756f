import os
import signal
import subprocess
import sys

import pytest

from bitfactor.atomic import replacing
from bitfactor.errors import InputError, near_matches


def test_the_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "notes.txt"
    with replacing(path) as temporary:
        temporary.write_text("all of it")
        assert not path.exists()
    assert path.read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_process_keeps_the_old_file_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("old")
    code = (
        "import os, signal, sys\nfrom bitfactor.atomic import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_usual_mode(tmp_path):
    with replacing(tmp_path / "notes.txt") as temporary:
        temporary.unlink()
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
    (tmp_path / "other").write_text("")
    assert (tmp_path / "notes.txt").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_place_that_cannot_be_written():
    with (
        pytest.raises(InputError, match=r"expected a place that can be written, found .*directory"),
        replacing("/proc/nowhere/notes.txt"),
    ):
        pass


def test_near_matches():
    assert near_matches("digit", ["digits", "cifar10"]) == "did you mean digits?"
    assert near_matches("x", ["digits", "cifar10"]) == "known are: digits, cifar10"
