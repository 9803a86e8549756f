"""The page in headless Chromium, and the modules built anew: what `make test-web` runs."""

import importlib.util
import json
import re
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from tests.conformance.photos import photos
from tests.targets.page.conftest import NODE

import bitfactor
from bitfactor.pose.images import prepare, read_image
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.page import PACKAGE

BUILD = Path(__file__).parents[3] / "native" / "web" / "build.py"
PROGRAM = Path(__file__).with_suffix(".mjs")
_LOOK = r"""
const element = (id) => document.getElementById(id);
const until = async (happened) => {
  while (!happened()) await new Promise((next) => setTimeout(next, 50));
};
await until(() => element("about") && !element("about").textContent.startsWith("Loading"));
%s
await until(() => /%s/.test(element("time").textContent));
const texts = (query) => [...document.querySelectorAll(query)].map((one) => one.textContent);
return {
  about: element("about").textContent, button: element("camera").textContent,
  names: texts("li span:first-child"), values: texts("li .value"),
  width: document.documentElement.scrollWidth,
  canvas: [element("view").width, element("view").height],
};
"""


_PHOTOS = """
const { Network } = await import("./bitfactor.js");
const { softmax } = await import("./answers.js");
const { decode, pixelsOf } = await import("./images.js");
const network = await Network.load("net.bfp");
const found = [];
for (const name of %s) {
  const x = network.prepare(pixelsOf(await decode(await (await fetch(name)).blob())));
  found.push({ x: [...x], probabilities: softmax(network.run(x)) });
}
return found;
"""


class Isolating(SimpleHTTPRequestHandler):
    def end_headers(self):
        if "isolated" in self.path or "isolated" in self.headers.get("Referer", ""):
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def evaluated(tmp_path):
    """Open a page of the folder in Chromium; return what a script, a function's body, returns there."""
    server = ThreadingHTTPServer(("localhost", 0), partial(Isolating, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def evaluated(page, script, width=900):
        address = f"http://localhost:{server.server_port}/{page}"
        command = [NODE, PROGRAM, tmp_path / "profile", address, width, script]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield evaluated
    server.shutdown()


@pytest.fixture
def seen(evaluated):
    """Open a page of the folder in Chromium until its line of time says `until`; return what is there."""

    def seen(page, until, width=900, first=""):
        return SimpleNamespace(**evaluated(page, _LOOK % (first, until), width))

    return seen


def photo(path, size):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    pixels = cv2.resize(pixels, (size, size), interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(path), pixels[..., ::-1])
    return pixels


def test_a_photo_is_classified_as_in_python(seen, tmp_path):
    pixels = photo(tmp_path / "photo.png", 32)
    bitfactor.page("cifar10-resnet18", tmp_path)
    page = seen("index.html?photo=photo.png", r"^[\d.]+ ms$")
    expected = Session(file_of("cifar10-resnet18"), threads=1).predict(pixels).classes[:5]
    assert page.names == [one.label for one in expected]
    probabilities = [float(value.removesuffix(" %")) for value in page.values]
    np.testing.assert_allclose(probabilities, [100 * one.probability for one in expected], atol=0.06)
    assert "10 classes" in page.about


@pytest.mark.parametrize("network", ["digits", "cifar10-resnet18"])
def test_photos_of_every_kind_are_prepared_and_classified_as_in_python(evaluated, tmp_path, network):
    """Chromium decodes them: their inputs are the same bytes."""
    bitfactor.page(network, tmp_path)
    for name, content in photos():
        (tmp_path / name).write_bytes(content)
    names = [name for name, _ in photos()]
    session = Session(file_of(network), threads=1)
    spec, alike = session.model.input_spec, []
    for name, found in zip(names, evaluated("index.html", _PHOTOS % json.dumps(names)), strict=True):
        expected = prepare(read_image(tmp_path / name, len(spec.mean)), spec).ravel()
        np.testing.assert_array_equal(np.array(found["x"], np.float32), expected, err_msg=name)
        classes = sorted(session.predict(tmp_path / name, top=10).classes, key=lambda one: one.index)
        probabilities = [one.probability for one in classes]
        alike.append(np.abs(np.array(found["probabilities"]) - probabilities).max() <= 1e-3)
    assert alike.count(False) <= 1  # a sign that the order of a sum turned


@pytest.mark.parametrize("name", ["large.jpg", "alpha.png", "rotated.jpg"])
def test_the_page_itself_says_what_python_says(seen, tmp_path, name):
    (tmp_path / name).write_bytes(dict(photos())[name])
    bitfactor.page("cifar10-resnet18", tmp_path)
    page = seen(f"index.html?photo={name}", r"^[\d.]+ ms$")
    expected = Session(file_of("cifar10-resnet18"), threads=1).predict(tmp_path / name).classes[:5]
    assert page.names == [one.label for one in expected]


def test_an_isolated_page_has_threads(seen, tmp_path):
    photo(tmp_path / "photo.png", 200)
    bitfactor.page("lsp-hourglass", tmp_path)
    cores = "Object.defineProperty(navigator, 'hardwareConcurrency', { value: 4 });"
    index = tmp_path / "index.html"
    index.write_text(index.read_text().replace("<head>", f"<head><script>{cores}</script>"))
    page = seen("index.html?photo=photo.png&isolated", r"^[\d.]+ ms$")
    assert re.search("wasm.*, 2 threads", page.about)


@pytest.mark.parametrize("width", [360, 900])
def test_a_pose_is_drawn(seen, tmp_path, width):
    photo(tmp_path / "photo.png", 200)
    bitfactor.page("lsp-hourglass", tmp_path)
    page = seen("index.html?photo=photo.png", r"^[\d.]+ ms$", width)
    assert "14 keypoints; wasm" in page.about
    assert page.canvas == [640, 640]
    assert page.width <= width  # nothing to scroll to


def test_the_camera(seen, tmp_path):
    bitfactor.page("lsp-hourglass", tmp_path)
    click = 'document.getElementById("camera").click();'
    page = seen("index.html", r"a frame, [1-9]\d* frames a second", first=click)
    assert page.button == "Stop the camera"


def test_what_is_no_image_is_said(seen, tmp_path):
    (tmp_path / "photo.png").write_bytes(b"no image")
    bitfactor.page("digits", tmp_path)
    seen("index.html?photo=photo.png", "photo.png: this image cannot be read")


def test_the_modules_are_those_of_the_sources(tmp_path):
    spec = importlib.util.spec_from_file_location("build", BUILD)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.build(tmp_path)
    for name in build.MODULES:
        assert (tmp_path / name).read_bytes() == (PACKAGE / name).read_bytes(), "run `make web`"
