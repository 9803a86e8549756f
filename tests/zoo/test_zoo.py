"""The networks that come with the package are what their cards say."""

import hashlib
import json

import pytest

from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.format import load
from bitfactor.recipes import recipe_of_file
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import Card, file_of, locate, names

LARGEST = 3_000_000  # bytes of a file that a package should bring along
DATA = {
    "digits": None,
    "cifar10-resnet18": "cifar-10-batches-py",
    "cifar10-resnet18-full": "cifar-10-batches-py",
    "cifar10-resnet20": "cifar-10-batches-py",
    "cifar10-resnet16-wide": "cifar-10-batches-py",
    "cifar10-resnet20-wide": "cifar-10-batches-py",
    "cifar10-resnet16-widest": "cifar-10-batches-py",
    "lsp-hourglass": "lspet",
}


@pytest.mark.parametrize("name", names())
def test_a_file_is_the_one_of_its_card_and_runs_as_it_did(name):
    path, card = file_of(name), Card.of(name)
    content = path.read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (card.bytes, card.sha256)
    assert len(content) < LARGEST
    Session(path).verify()


@pytest.mark.parametrize("name", names())
def test_its_recipe_is_known_though_an_earlier_version_wrote_the_file(name):
    path = file_of(name)
    recipe = recipe_of_file(load(path), path)
    assert recipe.input_shape == Session(path).input_shape


@pytest.mark.parametrize("name", names())
def test_accuracy_is_that_of_the_card(name, call, request):
    card, folder = Card.of(name), DATA[name]
    data = []
    if folder is not None:
        place = request.getfixturevalue("real_data") / folder
        if not place.is_dir():
            pytest.skip(f"{folder} is not unpacked")
        data = ["--data", place]
    found = json.loads(call("evaluate", name, *data, "--json"))
    for key in card.metric.split("/"):
        found = found[key]
    assert found == pytest.approx(card.accuracy, abs=1e-3)


def test_a_name_stands_for_its_file(call):
    assert json.loads(call("inspect", "digits", "--json"))["file"] == str(file_of("digits"))
    assert json.loads(call("bench", "digits", "--runs", "1", "--json"))["engines"]


def test_a_file_that_is_there_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate("digits") == file_of("digits")
    (tmp_path / "digits").touch()
    assert locate("digits").resolve() == tmp_path / "digits"


@pytest.mark.parametrize("command", ["inspect", "bench", "evaluate", "predict"])
def test_an_unknown_name_lists_near_ones(command, capsys):
    assert main([command, "digit", *["image.png"] * (command == "predict")]) == 2
    assert "expected a file, a run's directory, or the name of a network" in (line := capsys.readouterr().err)
    assert "did you mean digits?" in line
    with pytest.raises(InputError):
        locate("digit")


def test_list_and_card(call):
    listed = json.loads(call("zoo", "--json"))
    assert [entry["name"] for entry in listed] == names()
    text, card = call("zoo", "digits"), Card.of("digits")
    for known in (card.command, card.licence, "12 in 0.1 minutes", card.sha256, f"{card.accuracy:.2%}"):
        assert known in text
    assert json.loads(call("zoo", "digits", "--json"))["log"] == card.log
    assert "digits" in call("zoo")
    for name in names():
        assert f"compared  {Card.of(name).comparison}" in call("zoo", name)
