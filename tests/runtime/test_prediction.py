"""From an image to the answer, with numpy and OpenCV alone."""

import json
import subprocess
import sys
import warnings

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.convert import binarize_
from bitfactor.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import InputSpec
from bitfactor.pictures import prepare
from bitfactor.runtime import Session

SPEC = InputSpec((8, 8), (10, 10), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LABELS = ("cat", "dog", "owl", "eel")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(1024, 4)
    ).eval()
    binarize_(model, latent="none")
    path = tmp_path_factory.mktemp("file") / "net.safetensors"
    export(model, path, torch.randn(2, 3, 8, 8), input_spec=SPEC, labels=LABELS)
    return path


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def test_a_path_and_an_array_give_the_same(path, image, tmp_path):
    file = tmp_path / "photo.png"
    cv2.imwrite(str(file), image[..., ::-1])
    session = Session(path)
    of_path, of_array = session.predict([file, image])
    assert of_path.classes == of_array.classes
    scores = session(prepare(image, SPEC)[None])[0]
    assert [one.index for one in of_path.classes] == np.argsort(scores)[::-1].tolist()
    assert sum(one.probability for one in of_path.classes) == pytest.approx(1)
    assert str(of_path).startswith(f"{file}: {LABELS[int(scores.argmax())]} ")
    assert json.loads(of_array.to_json())["image"] == "array (20, 30, 3)"


def test_a_grey_image_has_three_equal_channels(path, image):
    session, grey = Session(path), image[..., 0]
    assert session.predict(grey).classes == session.predict(np.stack([grey] * 3, 2)).classes


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((20, 30, 3)), "uint8"),
        (np.zeros((3, 20, 30), np.uint8), "channels last"),
        (np.zeros((20, 30, 4), np.uint8), r"\(H, W, 3\)"),
        (np.zeros(20, np.uint8), r"\(H, W, 3\)"),
        ("no/such.jpg", "such.jpg"),
        (3, r"predict\(images\)"),
        ([None], "expected a path"),
    ],
    ids=str,
)
def test_what_is_no_image(path, image, words):
    with pytest.raises(InputError, match=words) as error:
        Session(path).predict(image)
    assert "\n" not in str(error.value)


def test_a_file_that_says_nothing_of_images(tmp_path, image):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)).eval()
    binarize_(model, latent="none")
    export(model, tmp_path / "net.safetensors", torch.randn(1, 3, 8, 8))
    with pytest.raises(InputError, match="input_spec"):
        Session(tmp_path / "net.safetensors").predict(image)


@pytest.mark.parametrize("scale", [1, 255])
def test_raw_pixels_are_warned_of_once(path, image, scale):
    session = Session(path)
    x = (image[:8, :8].transpose(2, 0, 1)[None] / 255 * scale).astype(np.float32)
    with pytest.warns(UserWarning, match=f"0 to {scale}"):
        session(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(x)


@pytest.mark.parametrize("kind", ["prepared", "noise", "zeros", "golden"])
def test_what_may_have_been_prepared_is_not_warned_of(path, image, kind):
    session = Session(path)
    x = {
        "prepared": prepare(image, SPEC)[None],
        "noise": np.random.default_rng(0).standard_normal((64, 3, 8, 8), np.float32),
        "zeros": np.zeros((1, 3, 8, 8), np.float32),
        "golden": session.model.golden_input,
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(x)


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1, 8, 8, 3), "channels first"), ((3, 8, 8), r"x\[None\]"), ((1, 3, 9, 9), "resize")],
)
def test_a_shape_that_is_wrong_says_how_to_mend_it(path, shape, words):
    with pytest.raises(InputError, match=words):
        Session(path)(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": "2"}, "write 2 without quotes"),
        ({"threads": True}, "threads"),
        ({"precision": "hi"}, "highest, high, medium"),
        ({"isa": 3}, "isa"),
        ({"thread": 2}, "did you mean threads"),
    ],
    ids=str,
)
def test_an_option_that_is_wrong(path, options, words):
    with pytest.raises(InputError, match=words):
        Session(path, **options)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"std": (0.2, 0.0, 0.2)}, "above 0"),
        ({"std": (0.2, float("nan"), 0.2)}, "finite"),
        ({"std": (0.2, 0.2)}, "one entry per channel"),
        ({"resize": (6, 10)}, "at least the size"),
        ({"size": (0, 8)}, "size"),
        ({"mean": "imagenet"}, "mean"),
    ],
    ids=str,
)
def test_a_specification_that_is_wrong(changes, words):
    values = {"size": (8, 8), "resize": (10, 10), "mean": (0.5,) * 3, "std": (0.2,) * 3}
    with pytest.raises(InputError, match=words):
        InputSpec(**values | changes)


def test_the_session_needs_numpy_alone():
    """Whoever runs a network on arrays imports neither torch nor OpenCV nor the command line's packages."""
    script = "import sys, bitfactor.runtime; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert not {"torch", "cv2", "tyro", "rich", "scipy"} & set(modules.split())
