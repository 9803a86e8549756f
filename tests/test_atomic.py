"""A file is whole or the old one, whatever stops its writing."""

import os
import signal
import subprocess
import sys

import pytest

from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.files import made_directory, replacing


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
        "import os, signal, sys\nfrom bitfactor.common.files import replacing\n"
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


def refusal(path):
    """What the error says of a path that cannot be written."""
    with pytest.raises(InputError) as caught, replacing(path):
        pass
    return str(caught.value)


def test_a_file_in_place_of_a_directory_is_named_once(tmp_path):
    (tmp_path / "file").write_text("kept")
    words = "expected a directory, found a file; name a directory, or move the file away"
    for path in (tmp_path / "file" / "x", tmp_path / "file" / "a" / "b" / "x"):
        assert refusal(path) == f"{tmp_path / 'file'}: {words}"
    with pytest.raises(InputError, match="expected a directory, found a file"):
        made_directory(tmp_path / "file")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["kept"]


def test_a_directory_in_place_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for path in (".", "..", "out", tmp_path / "out", "", "/"):
        assert ": expected the name of a file, found a directory; " in refusal(path)
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_what_the_system_says_does_not_repeat_the_path(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", str(tmp_path / ".notes.txt.partial"))

    monkeypatch.setattr(os, "replace", fail)
    line = refusal(tmp_path / "notes.txt")
    assert "found No space left on device; free space or choose another" in line
    assert line.count("notes.txt") == 1


def test_a_directory_is_made_with_those_above_it(tmp_path):
    assert made_directory(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert made_directory(str(tmp_path / "a" / "b")).is_dir()


def test_near_matches():
    assert near_matches("digit", ["digits", "cifar10"]) == "did you mean digits?"
    assert near_matches("x", ["digits", "cifar10"]) == "known are: digits, cifar10"
