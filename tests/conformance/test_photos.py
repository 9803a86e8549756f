"""The same photos give the same class and probabilities in Python, the page, the C library and C99.

Prepared pixels are the same bytes. Probabilities may differ by 1e-3, but where the order of a real-valued sum
turned a sign: those photos are counted. Chromium decodes the files itself in tests/targets/page/browser.py.
"""

import ctypes
from ctypes import c_void_p
from dataclasses import replace

import cv2
import numpy as np
import pytest
from tests.conformance.photos import photos
from tests.native.test_c_api import LIBRARY
from tests.native.test_c_api import run as run_c
from tests.targets.c99.conftest import compiled as compiled
from tests.targets.page.conftest import node as node

import bitfactor
from bitfactor.format import InputSpec, load, save
from bitfactor.pose.images import prepare, read_image, resized, with_channels
from bitfactor.runtime import Session
from bitfactor.runtime.finder import PoseFinder
from bitfactor.runtime.zoo import file_of

PHOTOS = dict(photos())
CLOSE = 1e-3
TURNED = 1  # of eight photos
WHOLE = InputSpec((32, 32), (37, 37), (0.5,) * 3, (0.25,) * 3, keep_aspect=True)
SPECS = {"digits": None, "cifar10-resnet18": None, "kept": WHOLE}


@pytest.fixture(params=SPECS)
def path(request, tmp_path):
    """A network of grey, one of colours, and one whose images keep their proportions and lose their edges."""
    spec, name = SPECS[request.param], "cifar10-resnet18" if request.param == "kept" else request.param
    model = load(file_of(name))
    save(tmp_path / "net.safetensors", replace(model, input_spec=spec) if spec else model)
    return tmp_path / "net.safetensors"


@pytest.fixture
def files(tmp_path):
    for name, content in PHOTOS.items():
        (tmp_path / name).write_bytes(content)
    return [tmp_path / name for name in PHOTOS]


@pytest.fixture
def expected(path, files):
    """The input of each photo, and the probabilities of all classes, as Python has them."""
    session = Session(path, threads=1)
    spec = session.model.input_spec
    inputs = [prepare(read_image(file, len(spec.mean)), spec) for file in files]
    found = session.predict(files, top=10)
    return inputs, [np.array([one.probability for one in sorted_by_index(p.classes)]) for p in found]


def sorted_by_index(classes):
    return sorted(classes, key=lambda one: one.index)


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def expect_the_same(found, expected):
    inputs, probabilities = expected
    for (x, _), wanted in zip(found, inputs, strict=True):
        np.testing.assert_array_equal(np.array(x, np.float32).ravel(), wanted.ravel())
    pairs = [(np.array(p), wanted) for (_, p), wanted in zip(found, probabilities, strict=True)]
    alike = [p.argmax() == w.argmax() and np.abs(p - w).max() <= CLOSE for p, w in pairs]
    assert alike.count(False) <= TURNED


def test_the_module_of_the_page(node, path, files, expected, tmp_path):
    bitfactor.freeze(path, tmp_path / "net.bfp")
    found = node("photos", file=str(tmp_path / "net.bfp"), photos=raw(files))
    expect_the_same([(one["x"], one["probabilities"]) for one in found], expected)


def test_the_module_of_the_page_finds_the_same_keypoints(node, files, tmp_path):
    """A canvas counts from a pixel's corner, Python from its centre."""
    bitfactor.freeze("lsp-hourglass", tmp_path / "net.bfp")
    model = load(file_of("lsp-hourglass"))
    network, inputs = Session(file_of("lsp-hourglass"), threads=1), []

    def noted(x):
        inputs.append(x)
        return network(x)

    finder = PoseFinder.of(model, noted)
    expected = [finder(read_image(file, 3))[0] for file in files]
    asked = {"photos": raw(files), "heatmaps": finder.scale}
    for found, x, wanted in zip(
        node("poses", file=str(tmp_path / "net.bfp"), **asked), inputs, expected, strict=True
    ):
        np.testing.assert_array_equal(np.array(found["x"], np.float32), x.ravel())
        np.testing.assert_allclose(np.array(found["points"]) - 0.5, wanted, atol=1e-3)


def raw(files):
    """Write the pixels of each file as the page has them; returns what `run.mjs` is told of them."""
    asked = []
    for file in files:
        pixels = cv2.cvtColor(read_image(file, 3), cv2.COLOR_RGB2RGBA)
        pixels.tofile(f"{file}.raw")
        asked.append({"pixels": f"{file}.raw", "width": pixels.shape[1], "height": pixels.shape[0]})
    return asked


def test_the_c_library(path, files, expected, tmp_path):
    bitfactor.freeze(path, tmp_path / "net.bfp")
    network = LIBRARY.bf_open(str(tmp_path / "net.bfp").encode(), None)
    found = []
    for file, wanted in zip(files, expected[0], strict=True):
        pixels, x = read_image(file, 3), np.empty_like(wanted)
        given = (network, pixels.ctypes.data, *pixels.shape[:2], 3, x.ctypes.data, None)
        assert LIBRARY.bf_prepare_image(*given) == 0
        found.append((x, softmax(run_c(network, x[None])[1][0][0])))
    LIBRARY.bf_free(network)
    expect_the_same(found, expected)


class C99:
    """The functions of a network's C file for images."""

    def __init__(self, library, spec):
        self.library, self.spec = library, spec

    def prepare(self, image, height, width, kind):
        pixels = np.empty((*self.spec.size, len(self.spec.mean)), np.uint8)
        image = np.ascontiguousarray(image)
        done = self.library.net_prepare(
            c_void_p(image.ctypes.data), height, width, kind, c_void_p(pixels.ctypes.data)
        )
        return pixels if done else None

    def probabilities(self, pixels):
        scores, found = np.empty(10, np.float32), np.empty(10, np.float32)
        self.library.net_run_image(c_void_p(pixels.ctypes.data), c_void_p(scores.ctypes.data))
        self.library.net_softmax(c_void_p(scores.ctypes.data), c_void_p(found.ctypes.data))
        return found

    def top(self, scores, k):
        classes = np.full(k, -1, np.int32)
        self.library.net_top(c_void_p(scores.ctypes.data), k, c_void_p(classes.ctypes.data))
        return classes


COMPILED = {}


@pytest.fixture
def c99(request, path, compiled, tmp_path):
    """The network as C; each is compiled once."""
    name = request.node.callspec.params["path"]
    if name not in COMPILED:
        model = load(path)
        compiled(model)
        COMPILED[name] = C99(ctypes.CDLL(str(tmp_path / "net.so")), model.input_spec)
    return COMPILED[name]


RGB, BGR, GREY, RGB565 = range(4)


def test_c99(c99, files, expected):
    found = []
    for file, wanted in zip(files, expected[0], strict=True):
        image = read_image(file, 3)
        pixels = c99.prepare(image, *image.shape[:2], RGB)
        channels = len(c99.spec.mean)
        mine = resized(read_image(file, channels), c99.spec)
        np.testing.assert_array_equal(pixels, mine.reshape(pixels.shape))
        np.testing.assert_array_equal(pixels, c99.prepare(image[..., ::-1], *image.shape[:2], BGR))
        found.append((wanted, c99.probabilities(pixels)))
    expect_the_same(found, expected)


@pytest.mark.parametrize("shape", [(50, 61), (9, 300), (300, 9), (1, 1)])
def test_c99_takes_what_cameras_give(c99, shape):
    rng, channels = np.random.default_rng(0), len(c99.spec.mean)
    grey = rng.integers(0, 256, shape, np.uint8)
    alike = grey if channels == 1 else np.repeat(grey[..., None], 3, 2)
    expected = resized(alike, c99.spec)
    found = c99.prepare(grey, *shape, GREY)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    words = rng.integers(0, 1 << 16, shape, np.uint16)
    red, green, blue = words >> 11, words >> 5 & 63, words & 31
    colours = np.dstack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2])
    found, image = c99.prepare(words.astype("<u2"), *shape, RGB565), colours.astype(np.uint8)
    expected = resized(with_channels(image, channels), c99.spec)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def test_c99_refuses_what_is_no_image(c99):
    image = np.zeros((8, 8, 3), np.uint8)
    for height, width, kind in ((0, 8, RGB), (8, 1 << 16, RGB), (8, 8, 4)):
        assert c99.prepare(image, height, width, kind) is None


def test_c99_ranks_classes(c99):
    scores = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], np.float32)
    assert c99.top(scores, 4).tolist() == [5, 7, 4, 8]
    assert sorted(c99.top(scores, 12)[:10].tolist()) == [*range(10)]
