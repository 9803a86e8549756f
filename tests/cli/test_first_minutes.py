"""Help that fits a screen, `doctor`, and completion in a shell."""

import json
import re
import shlex
import subprocess
from importlib import metadata

import pytest

from bitfactor.cli import COMMANDS, function_of, main
from bitfactor.cli.doctor import doctor
from bitfactor.cli.flags import MANY, expect_known, flags_of, options_of
from bitfactor.cli.recipe import flags_of_all
from bitfactor.runtime import instruction_sets

FLAG = r"^│ (?:-o [^-]*)?--([\w\[\]-]+)"
OF_RECIPE = ("train", "ablate", "summary")


@pytest.fixture
def help_of(capsys):
    def help_of(words):
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 0
        return capsys.readouterr().out

    return help_of


@pytest.mark.parametrize("command", [f"{name} digits" if name in OF_RECIPE else name for name in COMMANDS])
def test_help_shows_15_flags_an_example_and_where_the_rest_is(command, help_of):
    brief, whole = help_of(f"{command} --help"), help_of(f"{command} --help-all")
    shown, every = (re.findall(FLAG, text, re.MULTILINE) for text in (brief, whole))
    assert len(shown) <= MANY
    assert set(shown) <= set(every)
    assert "{None}" not in whole
    assert not re.search(r"\(default:[\s│]*(None)?\)", whole)
    assert len({len(line) for line in whole.splitlines() if line.startswith("│")}) <= 1
    assert f"usage: bitfactor {command}" in brief
    assert f"example: bitfactor {COMMANDS[command.split()[0]].example}" in brief
    assert (f"{len(every) - len(shown)} more flags: bitfactor {command} --help-all" in brief) == (
        shown != every
    )
    if command == "train digits":
        assert "minutes" in shown
        groups = {f"{name} options" for name in ("model", "binarization", "optimization", "network")}
        assert groups <= set(re.findall(r"\w+ options", whole))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_each_command_has_its_flags(name):
    command, *words = shlex.split(COMMANDS[name].example)
    assert command == name
    flags = list(flags_of_all(name) if name in OF_RECIPE else flags_of(options_of(function_of(name))))
    expect_known(name, words, flags)


def test_doctor_names_what_is_here_and_what_is_missing(call, monkeypatch):
    found = json.loads(call("doctor", "--json"))
    assert list(found["instruction_sets"]) == list(instruction_sets())
    assert all(found["instruction_sets"].values())
    assert found["versions"]["numpy"] == metadata.version("numpy")
    assert not any(found["commands"].values())
    known = metadata.version

    def without_torch(name):
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", without_torch)
    found = doctor()
    assert found.commands["train"] == ["torch"]
    assert found.commands["predict"] == []
    assert found.extras["train"] == found.extras["search"] == ["torch"]
    assert "bitfactor train needs torch: pip install 'bitfactor[train]'" in str(found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tra", {"train"}),
        ("train dig", {"digits"}),
        ("train digits --lat", {"--latent", "--latent-rate"}),
        ("train digits --schedule st", {"step"}),
        ("ablate digits --hal", {"--halving"}),
        ("predict --ov", {"--overwrite"}),
        ("completion z", {"zsh"}),
    ],
)
def test_a_shell_completes(line, found, script):
    words = shlex.join(["bitfactor", *line.split()])
    asked = (
        f'COMP_WORDS=({words}); COMP_CWORD={len(line.split())}; _shtab_bitfactor; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", f"source {script}; {asked}"], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == found


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "bitfactor"
    path.write_text(str(function_of("completion")("bash")))
    return path


def test_the_zoo_names_metrics_as_the_field_does(call):
    listed = call("zoo")
    assert "PCK@0.2" in listed
    assert "accuracy" in listed
    assert "means plain" not in listed
