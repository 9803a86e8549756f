"""`bitfactor.predict`: what the command prints, from Python."""

import json

import cv2
import numpy as np
import pytest

from bitfactor.api.predict import predict
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)


@pytest.fixture
def folder(tmp_path):
    for name in ("cat/a.png", "dog/b.png", ".cache/c.png", "dog/.d.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "photos" / name), IMAGE)
    (tmp_path / "photos" / "e.png").mkdir()
    return tmp_path / "photos"


@pytest.mark.parametrize("model", ["digits", "lsp-hourglass"])
def test_it_is_what_the_command_prints(model, folder, capsys):
    found = predict(model, folder)
    capsys.readouterr()
    assert main(["predict", model, str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    rates = {"frames_per_second", "network_frames_per_second"}
    assert {k: v for k, v in json.loads(found.to_json()).items() if k not in rates} == {
        k: v for k, v in printed.items() if k not in rates
    }
    assert "a.png" in str(found)
    assert "a.png" in found._repr_html_()


def test_a_folder_is_the_images_below_it_but_for_hidden_ones(folder):
    named = [one.image for one in predict("digits", folder).images]
    assert named == [str(folder / "cat" / "a.png"), str(folder / "dog" / "b.png")]


def test_models_and_images_come_in_several_forms(folder):
    session = Session(file_of("digits"))
    file = folder / "cat" / "a.png"
    for images, count in ((str(file), 1), ([file, str(file)], 2), ((one for one in [file]), 1)):
        assert predict(session, images).images == predict("digits", file).images * count
    for images, count in (((IMAGE,), 1), ([IMAGE, IMAGE], 2), ((one for one in [IMAGE]), 1)):
        assert predict(session, images).images == predict("digits", IMAGE).images * count


@pytest.mark.parametrize("top", [1, 5])
def test_as_many_classes_as_asked_for(top, folder, capsys):
    assert len(predict("digits", IMAGE, top=top).images[0].classes) == top
    assert main(["predict", "digits", str(folder / "cat/a.png"), "--top", str(top), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"][0]["classes"]) == top


@pytest.mark.parametrize(
    ("model", "images", "options", "words"),
    [
        (None, IMAGE, {}, r"predict\(model\)"),
        ("digit", IMAGE, {}, "did you mean digits"),
        ("digits", 3, {}, r"predict\(images\)"),
        ("digits", [3], {}, r"predict\(images\)|image"),
        ("digits", [], {}, "expected an image, found none"),
        ("digits", IMAGE, {"top": "3"}, "without quotes"),
        ("digits", IMAGE, {"top": 0}, "1 or more"),
        ("digits", IMAGE, {"output": "x"}, "one that classifies"),
        ("digits", IMAGE, {"box": (0.0, 0.0, 5.0, 5.0)}, "one that classifies"),
        ("digits", IMAGE, {"tops": 3}, "did you mean top"),
        ("lsp-hourglass", IMAGE, {"box": ("a", 1, 2, 3)}, "box"),
        ("lsp-hourglass", IMAGE, {"box": (1, 1, 0, 3)}, "above 0"),
        ("lsp-hourglass", IMAGE, {"box": (1, 1, float("nan"), 3)}, "finite"),
        ("lsp-hourglass", IMAGE, {"box": (90, 1, 2, 3)}, "30 x 40"),
        ("lsp-hourglass", IMAGE[:0], {}, "with pixels"),
    ],
)
def test_what_is_wrong_is_one_sentence(model, images, options, words):
    with pytest.raises(InputError, match=words) as error:
        predict(model, images, **options)
    assert "\n" not in str(error.value)
