"""The module gives what the runtime gives: signs and sums exactly, real numbers but for rounding."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.operations import CASES, model_of

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node, Value, load, pack_signs, save
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input
from bitfactor.format.program import Buffer, Instruction
from bitfactor.pose.heatmap import decode
from bitfactor.runtime import Session
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import program_of
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.frozen import frozen
from bitfactor.targets.page import PACKAGE

GOLDEN = "tests/format/golden/version1.safetensors"
every_module = pytest.mark.parametrize("relaxed", [False, True])


def expect_close(node, path, tmp_path, relaxed):
    bitfactor.freeze(path, tmp_path / "net.bfp")
    session = Session(path, threads=1)
    x = np.concatenate([golden_input(session.input_shape) * np.float32(k) for k in (1, -0.5)])
    found = node("run", file=str(tmp_path / "net.bfp"), x=x, relaxed=relaxed)
    assert found["instructionSet"] == ("wasm-relaxed" if relaxed else "wasm")
    expected = session(x)
    for i, one in enumerate(expected if isinstance(expected, tuple) else (expected,)):
        values = np.array([outputs[i] for outputs in found["outputs"]], np.float32).reshape(one.shape)
        np.testing.assert_allclose(values, one, rtol=1e-4, atol=1e-5 * np.abs(one).max())
    return found


@pytest.mark.parametrize("case", CASES)
def test_each_operation(node, tmp_path, case):
    save(tmp_path / "net.safetensors", model_of(*CASES[case]))
    expect_close(node, tmp_path / "net.safetensors", tmp_path, relaxed=False)


@every_module
def test_operations_of_version_1(node, tmp_path, relaxed):
    found = expect_close(node, GOLDEN, tmp_path, relaxed)
    assert found["labels"] == ["circle", "square", "star", "line", "point"]
    assert found["image"]["resizeHeight"] == 8  # without a margin, as it finds keypoints
    graph = load(GOLDEN).graph
    assert [one["shape"] for one in found["shapes"]] == [
        [*graph.values[name].shape] for name in graph.outputs
    ]


@every_module
@pytest.mark.parametrize("name", ["digits", "cifar10-resnet18", "lsp-hourglass"])
def test_networks_of_the_zoo(node, tmp_path, name, relaxed):
    found = expect_close(node, file_of(name), tmp_path, relaxed)
    model = load(file_of(name))
    assert found["labels"] == list(model.skeleton.keypoints if model.skeleton else model.labels)
    assert [tuple(edge) for edge in found["edges"]] == list(model.skeleton.edges if model.skeleton else ())
    assert found["verified"]["difference"] < 1e-4


@every_module
@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "pad"),
    [(33, 17, 1, 0), (64, 64, 1, 1), (96, 6, 3, -1), (200, 40, 1, 0)],
)
def test_binary_layers_are_exact(node, tmp_path, channels, outputs, groups, pad, relaxed):
    rng = np.random.default_rng(channels)
    direction = rng.choice(np.array([-1, 1], np.int8), channels)
    weight = pack_signs(rng.choice(np.array([-1, 1], np.int8), (outputs, 3, 2, channels // groups)))
    window = {
        "stride": (1, 2),
        "padding": (1, 0, 2, 1),
        "dilation": (1, 1),
        "groups": groups,
        "pad_value": pad,
    }
    threshold = {"threshold": np.zeros(channels, np.float32), "direction": direction}
    nodes = (
        Node("bits", "threshold", ("x",), {}, threshold),
        Node("sums", "binary_conv2d", ("bits",), window, {"weight": weight}),
    )
    graph = Graph(Value("x", (channels, 7, 6), "float32"), nodes, ("sums", "bits"))
    x = golden_input((channels, 7, 6))
    model = ModelFile(graph, tuple(y.astype(np.float32) for y in run(graph, x)))
    save(tmp_path / "net.safetensors", model)
    bitfactor.freeze(tmp_path / "net.safetensors", tmp_path / "net.bfp")
    found = node("run", file=str(tmp_path / "net.bfp"), x=x, relaxed=relaxed)
    for values, expected in zip(found["outputs"][0], model.golden_outputs, strict=True):
        np.testing.assert_array_equal(np.array(values), expected.ravel())
    assert found["verified"] == {"same": True, "difference": 0}


@every_module
@pytest.mark.parametrize("name", [GOLDEN, "cifar10-resnet18", "lsp-hourglass"])
def test_threads_change_no_bit(node, tmp_path, name, relaxed):
    path = GOLDEN if name == GOLDEN else file_of(name)
    bitfactor.freeze(path, tmp_path / "net.bfp", threads=2)
    x = np.concatenate([golden_input(load(path).graph.input.shape)] * 20)
    alone, shared = (
        node("run", file=str(tmp_path / "net.bfp"), x=x, relaxed=relaxed, threads=threads)
        for threads in (1, 3)
    )
    assert shared["outputs"] == alone["outputs"]
    assert shared["verified"] == alone["verified"]
    assert "closed" in shared["closed"]


@pytest.mark.parametrize("scale", ["linear", "logits", "softmax"])
def test_keypoints_are_decoded_as_in_python(node, scale):
    maps = np.random.default_rng(0).standard_normal((20, 6, 5)).astype(np.float32) * 3
    points, confidence = decode(maps, 8, scale)
    found = node("keypoints", maps=maps, width=5, height=6, scale=scale)
    places = np.array([[one["x"] * 40 - 0.5, one["y"] * 48 - 0.5] for one in found])
    np.testing.assert_allclose(places, points, atol=1e-4)
    np.testing.assert_allclose([one["confidence"] for one in found], confidence, atol=1e-5)


def test_scores_become_probabilities_once(node):
    once = node("probabilities", scores=np.array([1, 2, 3], np.float32))
    np.testing.assert_allclose(once, np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum(), rtol=1e-6)
    np.testing.assert_allclose(node("probabilities", scores=np.array(once, np.float32)), once, rtol=1e-6)


def test_what_cannot_run_is_refused_in_a_sentence(node, tmp_path):
    good = tmp_path / "net.bfp"
    bitfactor.freeze("digits", good)
    content = good.read_bytes()
    side = 1 << 15  # its square, in floats, is 2^32 bytes: 0 where addresses have 32 bits
    whole = {"buffer": Buffer(0, side, side, False), "name": "x", "shape": (side, side), "dtype": "float32"}
    cases = {
        "empty": b"",
        "truncated": content[:-100],
        "bit": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        "version": content[:8] + b"\x63" + content[9:],
        "order": content[:12] + content[12:16][::-1] + content[16:],
        "image": b"\x89PNG\r\n\x1a\n" * 100,
        "wraps": frozen([Instruction.of(kind, **whole) for kind in ("input", "output")], 0),
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
    altered = {name: str(tmp_path / name) for name in cases}
    found = node("refused", file=str(good), altered=altered)
    messages = found["messages"]
    assert "expected a Float32Array of 64 values, (1, 8, 8), found Float32Array of 3" in messages["short"]
    assert "found Array of 3" in messages["kind"]
    assert "expected finite numbers" in messages["infinite"]
    assert "4 values for each of 2 x 2 pixels, found Uint8Array of 15" in messages["size"]
    assert "an image at most 64 times as long" in messages["long"]
    assert "found null" in messages["none"]
    assert "none.bfp" in messages["missing"]
    assert "a whole number from 1 to 64, found 0" in messages["threads"]
    assert "a whole number from 1 to 64, found 2" in messages["many"]
    assert "cross-origin isolated" in messages["alone"]
    assert "a map within the arena of 0 bytes" in messages["wraps"]
    for name in cases:
        assert re.match(r"Error: \w", messages[name]), (name, messages[name])
    assert len(found["after"]) == 10


def test_a_replay_takes_no_memory(node, tmp_path):
    bitfactor.freeze("digits", tmp_path / "net.bfp")
    before, after = node("memory", file=str(tmp_path / "net.bfp"), calls=20_000)
    assert after == before


def with_golden_samples(model, samples):
    """Return a network's program with golden outputs of so many samples, of which none is right."""
    program = program_of(packed(model.graph))
    instructions = [one for layer in program.layers for one in layer.instructions]
    golden = Instruction.of("golden_output", values=np.zeros((samples, 10), np.float32))
    return frozen([*instructions, golden], program.arena_bytes)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_golden_samples_are_shared_among_threads(node, tmp_path, threads):
    (tmp_path / "many.bfp").write_bytes(with_golden_samples(load(file_of("digits")), 4000))
    x = golden_input((1, 8, 8))
    found = node("run", file=str(tmp_path / "many.bfp"), x=x, relaxed=False, threads=threads)
    assert not found["verified"]["same"]
    assert found["verified"]["difference"] > 0


def test_a_thread_that_is_lost_is_an_error(node, tmp_path):
    bitfactor.freeze("lsp-hourglass", tmp_path / "net.bfp")
    stopped, closed = node("lost", file=str(tmp_path / "net.bfp"), stack=256)
    assert "the network stopped and was closed: load it again" in stopped
    assert "found one that was closed" in closed


def test_a_page_is_written(tmp_path):
    page = bitfactor.page("digits", tmp_path / "site")
    assert {path.name: path.stat().st_size for path in (tmp_path / "site").iterdir()} == page.files
    index = (tmp_path / "site" / "index.html").read_text()
    options = json.loads(re.search(r'type="application/json">(.*?)</script>', index)[1])
    assert options == {
        "title": "digits",
        "network": "net.bfp",
        "finds": "classes",
        "heatmaps": "linear",
        "probabilities": False,
    }


def test_the_title_of_a_page_is_text(tmp_path):
    path = tmp_path / "a<b>&'.safetensors"
    path.write_bytes(file_of("lsp-hourglass").read_bytes())
    bitfactor.page(path, tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert "<title>a&lt;b&gt;&amp;&#x27;</title>" in index
    options = json.loads(re.search(r'type="application/json">(.*?)</script>', index)[1])
    assert options["title"] == "a<b>&'"
    assert (options["finds"], options["heatmaps"]) == ("keypoints", "softmax")


@pytest.mark.parametrize("change", ["no specification", "maps"])
def test_a_network_that_a_page_cannot_show_is_refused(tmp_path, change):
    model = load(file_of("digits"))
    if change == "maps":
        graph = replace(model.graph, outputs=("conv1",))
        model = replace(model, graph=graph, golden_outputs=(run(graph, model.golden_input)[0],), labels=())
    else:
        model = replace(model, input_spec=None)
    save(tmp_path / "net.safetensors", model)
    with pytest.raises(InputError, match="expected a network for images"):
        bitfactor.page(tmp_path / "net.safetensors", tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("change", ["scale", "keypoints"])
def test_poses_that_python_refuses_are_refused(tmp_path, change):
    model = load(file_of("lsp-hourglass"))
    skeleton = model.skeleton
    changes = {
        "scale": {"provenance": {**model.provenance, "heatmaps": "sigmoid"}},
        "keypoints": {"skeleton": replace(skeleton, keypoints=(*skeleton.keypoints, "tail"))},
    }
    save(tmp_path / "net.safetensors", replace(model, **changes[change]))
    with pytest.raises(InputError, match=r"known scale|15"):
        bitfactor.page(tmp_path / "net.safetensors", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_visit(visited, tmp_path):
    bitfactor.page("digits", tmp_path)
    early = visited("early")
    assert (early.classes, early.view, early.closed) == (5, 640, 1)
    drops = visited("drops")  # of two photos the one that was asked for last
    assert (drops.view, drops.closed) == (640, 2)
    assert re.fullmatch(r"\S+, \d+ %", drops.said)
    bad = visited("unreadable")
    assert bad.time == "bad.png: this image cannot be read (no image)"
    assert bad.classes == 0
    missing = visited("missing")
    assert missing.time == "none.png: this image cannot be read (status 404)"
    assert not missing.disabled


def test_a_camera_that_is_waited_for(visited, tmp_path):
    bitfactor.page("digits", tmp_path)
    twice = visited("camera")
    assert sorted(twice.live) == [False, True]
    assert twice.camera == "Stop the camera"
    assert "frames a second" in twice.time
    replaced = visited("replaced")
    assert replaced.live == [False]
    assert replaced.camera == "Use the camera"
    assert re.fullmatch(r"[\d.]+ ms", replaced.time)


def test_without_workers_a_network_has_one_thread(node, tmp_path):
    bitfactor.freeze("digits", tmp_path / "net.bfp")
    threads, said = node("workers", file=str(tmp_path / "net.bfp"))
    assert threads == 1
    assert said == "Error: thread.js: a thread cannot be started: none"


def test_the_package_is_whole():
    """Every file that npm would pack is there, the version is ours, and each export has its type."""
    package = json.loads((PACKAGE / "package.json").read_text())
    assert package["version"] == bitfactor.__version__
    assert all((PACKAGE / name).exists() for name in package["files"])
    for name in ("bitfactor", "answers"):
        exported = re.findall(
            r"^export (?:async )?(?:class|function|const) (\w+)", (PACKAGE / f"{name}.js").read_text(), re.M
        )
        typed = re.findall(
            r"^export declare (?:class|function) (\w+)", (PACKAGE / f"{name}.d.ts").read_text(), re.M
        )
        assert sorted(exported) == sorted(typed)
