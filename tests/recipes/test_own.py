"""A network of the user's own: trained, measured and exported; what is wrong with it is said."""

import json

import pytest

from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.recipes import RECIPES, recipe_named, recipe_of_settings, register
from bitfactor.recipes.own import OwnModel, with_own_model
from bitfactor.recipes.resnet import digits

FILE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes=10):
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 8, 3, stride=2), nn.BatchNorm2d(8),
            nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))

def small(): return Net(4)
def needy(classes): return Net(classes)
def broken(): raise OSError("no weights")
def coloured(): return nn.Sequential(nn.Conv2d(3, 4, 1))
text, module = "a text", Net()
"""
TRAINING = ["--epochs", "1", "--limit", "32", "--batch-size", "16"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "my.py"


def test_a_network_of_ones_own_goes_all_the_way(file, capsys, monkeypatch):
    assert main(["train", "digits", "--model", "my.py:Net", "--out", "run", *TRAINING]) == 0
    settings = json.loads((file.parent / "run" / "recipe.json").read_text())["settings"]["model"]
    assert settings["spec"] == f"{file}:Net"
    assert len(settings["sha256"]) == 64
    (file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(file.parent / "elsewhere")
    assert main(["export", "../run", "-o", "../net.safetensors"]) == 0
    capsys.readouterr()
    found = []
    for path in ("../run", "../net.safetensors"):
        assert main(["evaluate", path, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["predictions"])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("none.py:Net", "none.py: expected a Python file, found no such file; there are my.py"),
        ("my.py:Nett", "did you mean Net?"),
        ("my.py:needy", "found one that needs classes"),
        ("my.py:text", "expected a torch module, or a class or function that gives one, found a str"),
        ("my.py:broken", "found OSError: no weights"),
        ("my.py:small", "for two images, one for each class, found (2, 4); give the last layer 10 outputs"),
        ("my.py:coloured", "expected a network that takes (2, 1, 8, 8), found RuntimeError"),
        ("my.py", "expected FILE.py:NAME, found 'my.py'"),
        ("my:Net", "expected FILE.py:NAME, found 'my:Net'"),
    ],
)
def test_what_is_wrong_with_a_network_is_one_sentence(file, capsys, spec, said):
    assert main(["train", "digits", "--model", spec, "--out", "run", *TRAINING]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (file.parent / "run").exists()


def test_a_file_that_cannot_be_imported(file):
    (file.parent / "bad.py").write_text("import nothing_of_that_name")
    with pytest.raises(InputError, match="found ModuleNotFoundError: No module named 'nothing_of_that_name'"):
        OwnModel.at("bad.py:Net")


def test_a_module_is_copied(file):
    model = OwnModel.at("my.py:module")
    assert model() is not model()


def test_a_changed_file_is_said(file):
    recipe = with_own_model(digits(), vars(OwnModel.at("my.py:Net")))
    again = recipe_of_settings(recipe.settings(), "run")
    again.model()
    file.write_text(f"{FILE}\n# changed")
    with pytest.warns(UserWarning, match=r"my\.py has changed since the run began"):
        again.model()


def test_a_study_of_a_network_of_ones_own_remembers_it(file, capsys):
    flags = ["--seeds", "1", "--latent", "none", "--scale", "learned", "--jobs", "1", *TRAINING]
    command = ["ablate", "digits", "--out", "study", *flags]
    assert main([*command, "--model", "my.py:Net"]) == 0
    assert (
        json.loads((file.parent / "study" / "study.json").read_text())["arguments"]["model"] == f"{file}:Net"
    )
    capsys.readouterr()
    assert main(command) == 2
    assert f"found a study with model = {file}:Net instead of its default" in capsys.readouterr().err


def test_summary_of_a_network_without_a_recipe(file, capsys):
    flags = ["--input", "1", "8", "8", "--latent", "tucker", "--json"]
    assert main(["summary", "my.py:Net", *flags]) == 0
    rows = {row["name"]: row["kind"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["2"] == "binary conv2d"
    assert main(["summary", "my.py:Net"]) == 2
    assert "found RuntimeError: Given groups=1" in capsys.readouterr().err


def test_a_function_that_returns_no_recipe_is_named(monkeypatch):
    monkeypatch.setitem(RECIPES, "mine", lambda: None)
    with pytest.raises(InputError, match=r"mine: expected a bitfactor\.Recipe, found NoneType; let the"):
        recipe_named("mine")


def test_a_recipe_that_a_file_registers_is_on_the_command_line(file, capsys, monkeypatch):
    monkeypatch.setattr("bitfactor.recipes.RECIPES", dict(RECIPES))
    (file.parent / "more.py").write_text(
        "import bitfactor\nfrom bitfactor.recipes.resnet import digits\n"
        "bitfactor.recipes.register('my-digits', digits)\n"
    )
    assert main(["--import", "more.py", "summary", "my-digits"]) == 0
    assert "layer2.1.conv2" in capsys.readouterr().out
    assert recipe_named("my-digits").settings()["recipe"] == "my-digits"


def test_a_registered_name_has_to_be_new_and_one_word():
    with pytest.raises(InputError, match="expected a new name, found 'digits'"):
        register("digits", lambda: digits())
    with pytest.raises(InputError, match="expected a name of one word, found 'my digits'"):
        register("my digits", digits)
    with pytest.raises(InputError, match="expected a function"):
        register("mine", "digits")
