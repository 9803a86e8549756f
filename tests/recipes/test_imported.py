"""A file of the user's own that a training needs: its content is remembered, its new place can be given."""

import json
import shutil

import pytest

from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.common.files import run_file
from bitfactor.recipes import RECIPES, recipe_of
from bitfactor.training import Run

FILE = """
import bitfactor
from dataclasses import replace
from bitfactor.recipes.resnet import digits

def mine():
    return replace(digits(), description="mine")

bitfactor.recipes.register("my-digits", mine)
"""
SMALL = ["--blocks", "1", "--widths", "8", "--limit", "64", "--epochs", "1", "--latent", "none"]


@pytest.fixture
def fresh(monkeypatch):
    """Forget the files that were run, as a new process does."""
    known = dict(RECIPES)

    def fresh():
        monkeypatch.setattr("bitfactor.recipes.RECIPES", dict(known))
        monkeypatch.setattr("bitfactor.common.files._LOADED", {})

    fresh()
    return fresh


@pytest.fixture
def run(tmp_path, fresh):
    """A run of a recipe that a file registers, seen from a new process."""
    (tmp_path / "mine.py").write_text(FILE)
    command = ["--import", str(tmp_path / "mine.py"), "train", "my-digits", "--out", str(tmp_path / "run")]
    assert main([*command, *SMALL]) == 0
    fresh()
    return Run(tmp_path / "run")


def test_a_changed_file_is_said(run, fresh, recwarn):
    assert recipe_of(run).description == "mine"
    assert [one for one in recwarn if "has changed" in str(one.message)] == []
    fresh()
    (run.path.parent / "mine.py").write_text(FILE.replace('"mine"', '"other"'))
    with pytest.warns(UserWarning, match=r"mine\.py has changed since the run began"):
        assert recipe_of(run).description == "other"


def test_a_changed_file_is_said_where_a_run_is_resumed(run, fresh):
    file = run.path.parent / "mine.py"
    file.write_text(f"{FILE}# more\n")
    with pytest.warns(UserWarning, match=r"mine\.py has changed since the run began"):
        assert main(["--import", str(file), "train", "my-digits", "--out", str(run.path), *SMALL]) == 0


@pytest.mark.parametrize("name", ["mine.py", "renamed.py"])
def test_the_new_place_of_a_file_can_be_given(run, name, capsys, recwarn):
    new = run.path.parent / "elsewhere" / name
    new.parent.mkdir()
    shutil.move(run.path.parent / "mine.py", new)
    with pytest.raises(
        InputError, match=r"found no such file; say where it is now: bitfactor --import PATH/mine"
    ):
        recipe_of(run)
    capsys.readouterr()
    assert main(["--import", str(new), "evaluate", str(run.path), "--json"]) == 0
    assert "accuracy" in json.loads(capsys.readouterr().out)
    assert [one for one in recwarn if "has changed" in str(one.message)] == []


def test_a_run_of_an_earlier_version_has_no_hashes(run):
    record = json.loads(run.recipe.read_text())
    run.recipe.write_text(json.dumps(record | {"imports": list(record["imports"])}))
    assert recipe_of(run).description == "mine"


def test_a_network_whose_file_has_moved(tmp_path, fresh, monkeypatch, capsys):
    """As an imported file: `--model` is run as one."""
    text = "from torch import nn\n\nnet = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 10))\n"
    (tmp_path / "net.py").write_text(text)
    flags = ["--out", str(tmp_path / "run"), "--limit", "64", "--epochs", "1", "--real"]
    assert main(["train", "digits", "--model", str(tmp_path / "net.py:net"), *flags]) == 0
    fresh()
    (tmp_path / "net.py").rename(tmp_path / "moved.py")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "say where it is now" in capsys.readouterr().err
    assert main(["--import", str(tmp_path / "moved.py"), "evaluate", str(tmp_path / "run")]) == 0


def test_a_study_is_of_one_version_of_an_imported_file(tmp_path, fresh, capsys):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    command = ["--import", str(file), "ablate", "my-digits", "--out", str(tmp_path / "study"), "--jobs", "1"]
    command += [*SMALL, "--scale", "learned"]
    assert main([*command, "--seeds", "1"]) == 0
    fresh()
    file.write_text(f"{FILE}# more\n")
    assert main([*command, "--seeds", "2"]) == 2
    assert "found none-learned-seed0, of another version of mine.py" in capsys.readouterr().err


def test_a_file_that_is_run_twice_has_one_hash(tmp_path, fresh):
    (tmp_path / "mine.py").write_text(FILE)
    assert run_file(tmp_path / "mine.py") is run_file(tmp_path / "mine.py")


def test_a_taught_network_is_used_without_the_file_of_its_teacher(tmp_path, fresh):
    file = tmp_path / "teacher.py"
    file.write_text("from torch import nn\n\nnet = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n")
    command = ["train", "digits", "--out", str(tmp_path / "run"), "--teacher", f"{file}:net", *SMALL]
    assert main(command) == 0
    file.unlink()
    fresh()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert main(command) == 2  # a training that goes on needs it
