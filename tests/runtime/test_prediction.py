"""From an image to the answer, with numpy and OpenCV alone."""

import json
import re
import warnings

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.binarization import binarize_
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import InputSpec, Skeleton
from bitfactor.pose.images import prepare
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
        ([None], "a path"),
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: torch.from_numpy(x).requires_grad_(), "requires grad"),
        (lambda x: torch.from_numpy(x).bfloat16(), "BFloat16"),
        (lambda x: [x[0], x[0][:, :5]], "inhomogeneous"),
        (lambda x: x.astype(np.float64), "float64; use numpy.asarray"),
        (lambda x: x.astype(np.complex64), "complex64; use numpy.asarray"),
        (lambda x: None, "found None; pass"),
        (lambda x: "photo.jpg", r"'photo.jpg'; session.predict\(image\) takes a path"),
        (lambda x: {}, "dict"),
        (lambda x: np.array([object()]), "object"),
        (lambda x: x.transpose(0, 2, 3, 1), "channels first"),
    ],
)
def test_what_is_no_batch_is_one_sentence(path, make, words):
    x = np.zeros((2, 3, 8, 8), np.float32)
    with pytest.raises(InputError, match=words) as error:
        Session(path)(make(x))
    assert re.fullmatch(r"[^\n]+: expected [^\n]+, found [^\n]+; [^\n]+", str(error.value))


@pytest.mark.filterwarnings("ignore:the input looks like")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[:, :, ::-1, ::-1],
        np.asfortranarray,
        torch.from_numpy,
        list,
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.uint8),
        lambda x: x > 0,
        lambda x: x[:0],
        lambda x: np.concatenate([x] * 200),
    ],
)
def test_whatever_float32_holds_is_run(path, make):
    x = np.random.default_rng(0).integers(-2, 3, (3, 3, 8, 8)).astype(np.float32)
    given = make(np.abs(x))
    plain = np.array([np.asarray(one) for one in given], np.float32).reshape(-1, 3, 8, 8)
    session = Session(path)
    assert np.array_equal(session(given), session(plain))


def test_raw_pixels_are_warned_of_after_an_input_that_says_nothing(path):
    """As after a first call that only warms up."""
    session = Session(path)
    session(np.zeros((1, 3, 8, 8), np.float32))
    with pytest.warns(UserWarning, match=r"session.predict\(image\)"):
        session(np.full((1, 3, 8, 8), 200, np.float32))


@pytest.mark.parametrize(
    ("low", "high", "found"), [(0, 16, "0 to 16"), (-128, 127, "-128 to 127"), (0, 255, "pixels of 0 to 255")]
)
def test_other_ranges_that_preparing_never_gives(path, low, high, found):
    x = np.linspace(low, high, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    with pytest.warns(UserWarning, match=found):
        Session(path)(x)


def test_a_pale_image_that_is_prepared_is_not_warned_of(path):
    pale = np.random.default_rng(0).integers(130, 180, (8, 8, 3), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Session(path)(prepare(pale, InputSpec((8, 8), (8, 8), SPEC.mean, SPEC.std))[None])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"top": 0}, "1 or more"),
        ({"top": "3"}, "without quotes"),
        ({"box": (0.0, 0.0, 5.0, 5.0)}, "one that classifies"),
        ({"box": [0, 0, 5, 5]}, "box"),
    ],
    ids=str,
)
def test_an_option_of_predict_that_is_wrong(path, image, options, words):
    with pytest.raises(InputError, match=words):
        Session(path).predict(image, **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x[:0], "with pixels"),
        (lambda x: x[None], r"list\(x\)"),
        (lambda x: x[..., :1], r"x\[\.\.\., 0\]"),
        (lambda x: np.dstack([x, x[..., 0]]), r"x\[\.\.\., :3\]"),
        (lambda x: b"abc", "bytes"),
    ],
)
def test_arrays_that_are_no_image_say_what_to_do(path, image, make, words):
    with pytest.raises(InputError, match=words):
        Session(path).predict(make(image))


def three_layers(path, head, size, **options):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(a, b, 3) for a, b in ((3, 8), (8, 8), (8, 4))), *head).eval()
    binarize_(model, latent="none")
    spec = InputSpec(size, size, (0.5,) * 3, (0.25,) * 3)
    export(model, path, torch.randn(1, 3, *size), input_spec=spec, **options)
    return Session(path)


def test_a_network_that_ends_in_softmax_is_not_given_another(tmp_path, image):
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1))
    session = three_layers(tmp_path / "net.safetensors", head, (20, 30), labels=LABELS)
    x = prepare(image, session.model.input_spec)[None]
    found = {one.index: one.probability for one in session.predict(image).classes}
    assert found == pytest.approx(dict(enumerate(session(x)[0].tolist())))


class Mean(nn.Module):
    """The mean of two distributions, which no operation at the end tells."""

    def forward(self, x):
        return (x.softmax(1) + (2 * x).softmax(1)) / 2


class Turned(nn.Module):
    def forward(self, x):
        return x.sigmoid()[:, [2, 0, 3, 1]]


@pytest.mark.parametrize("end", [Mean, Turned])
def test_probabilities_in_another_way_are_not_given_a_softmax(tmp_path, image, end):
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), end())
    session = three_layers(tmp_path / "net.safetensors", head, (20, 30))
    x = prepare(image, session.model.input_spec)[None]
    found = {one.index: one.probability for one in session.predict(image).classes}
    assert found == pytest.approx(dict(enumerate(session(x)[0].tolist())))


def test_one_score_is_no_class(tmp_path, image):
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))
    session = three_layers(tmp_path / "net.safetensors", head, (20, 30))
    with pytest.raises(InputError, match=r"a score for each class, or probabilities, found one score"):
        session.predict(image)
    session = three_layers(tmp_path / "ended.safetensors", (*head, nn.Sigmoid()), (20, 30), labels=("cat",))
    x = prepare(image, session.model.input_spec)[None]
    assert session.predict(image).classes[0].probability == pytest.approx(session(x)[0].item())


@pytest.mark.parametrize("keep_aspect", [False, True])
@pytest.mark.parametrize("resize", [64, 96])
def test_a_keypoint_of_a_whole_image_lies_where_it_is(tmp_path, resize, keep_aspect):
    """Also where the images of the training had a margin."""
    network = nn.Sequential(nn.Conv2d(3, 1, 4, 4, bias=False)).eval()
    nn.init.constant_(network[0].weight, 1 / 48)
    spec = InputSpec((64, 64), (resize, resize), (0.0,) * 3, (1.0,) * 3, keep_aspect)
    more = {"input_spec": spec, "skeleton": Skeleton(("spot",)), "binary": False}
    export(network, tmp_path / "net.safetensors", torch.randn(2, 3, 64, 64), **more)
    image = np.zeros((200, 200, 3), np.uint8)
    image[60:72, 120:132] = 255
    (found,) = Session(tmp_path / "net.safetensors").predict(image).keypoints
    assert (found.x, found.y) == pytest.approx((125.5, 65.5), abs=8)


def test_what_would_need_a_canvas_without_end_is_refused(tmp_path):
    network, spec = nn.Sequential(nn.Conv2d(3, 1, 4, 4)), InputSpec((8, 8), (8, 8), (0.0,) * 3, (1.0,) * 3)
    more = {"input_spec": spec, "skeleton": Skeleton(("spot",)), "binary": False}
    export(network.eval(), tmp_path / "net.safetensors", torch.randn(2, 3, 8, 8), **more)
    session = Session(tmp_path / "net.safetensors")
    with pytest.raises(InputError, match="image: expected an image at most 64 times as long"):
        session.predict(np.zeros((1, 60_000, 3), np.uint8))
    with pytest.raises(InputError, match="box: expected a box at most 64 times as long as the image"):
        session.predict(np.zeros((20, 30, 3), np.uint8), box=(1, 1, 1e9, 5))


def test_a_network_that_gives_maps_and_no_classes(tmp_path, image):
    session = three_layers(tmp_path / "net.safetensors", (), (20, 30))
    with pytest.raises(
        InputError, match=r"expected a network that gives a score for each class.*\(4, 14, 24\)"
    ):
        session.predict(image)


def test_a_profile_of_what_is_none(path):
    for options, words in (({"runs": "3"}, "without quotes"), ({"runs": 0}, "1 or more"), ({"x": "x"}, "x")):
        with pytest.raises(InputError, match=words):
            Session(path).profile(**options)


def test_too_many_threads(path):
    with pytest.raises(InputError, match="1 to 1024"):
        Session(path, threads=10**9)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_pixels_that_are_not_scaled_are_refused_at_every_call(path, image, dtype):
    session, ready = Session(path), np.zeros((1, 3, 8, 8), np.float32)
    for _ in range(20):
        session(ready)
    pixels = np.ascontiguousarray(image[:8, :8].transpose(2, 0, 1)[None]).astype(dtype)
    words = rf"from -2.12 to 2.64, found {pixels.dtype} values of .*; session.predict\(image\)"
    for call in (lambda: session(pixels), lambda: session(**{session.input_names[0]: pixels})):
        with pytest.raises(InputError, match=words):
            call()
    assert session(np.zeros((1, 3, 8, 8), np.uint8)).shape == (1, 4)  # as to warm up


def test_pixels_given_by_name_are_warned_of_too(path, image):
    pixels = image[:8, :8].transpose(2, 0, 1)[None].astype(np.float32)
    session = Session(path)
    with pytest.warns(UserWarning, match="pixels of 0 to 255"):
        session(**{session.input_names[0]: pixels})


def test_what_to_do_with_the_arrays_of_opencv_is_said():
    for text in (Session.__doc__, Session.predict.__doc__):
        assert "cv2.cvtColor(image, cv2.COLOR_BGR2RGB)" in text
