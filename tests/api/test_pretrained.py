"""Networks are written for others, and read again: from a directory, and from a stand-in for the Hub."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer

import numpy as np
import pytest
import torch
from tests.api.hub import Hub
from torch import nn

import bitfactor
from bitfactor import InputError
from bitfactor.runtime.hub import is_repository

FILES = {"config.json", "model.safetensors", "net.safetensors", "README.md"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("pretrained") / "run"
    return bitfactor.train("digits", out=out, epochs=1, limit=256, widths=(8, 16), blocks=(1, 1))


@pytest.fixture
def shared(run, tmp_path):
    return bitfactor.save_pretrained(run, tmp_path / "shared", license="apache-2.0").path


def same(one, other, shape=(2, 1, 8, 8)):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return torch.equal(one.eval()(x), other.eval()(x))


def test_a_run_comes_back_to_train_on_and_to_run(run, shared):
    model = bitfactor.from_pretrained(shared)
    assert same(model, run.model())
    assert {one.name for one in shared.iterdir()} == FILES
    card = (shared / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: bitfactor\nlicense: apache-2.0\n")
    assert "pipeline_tag: image-classification" in card
    assert "| measured | accuracy" in card
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    assert np.allclose(bitfactor.Session(shared)(x), model(torch.from_numpy(x)).detach(), atol=1e-3)
    model.train()(torch.from_numpy(x)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("options", [{"latent": "holistic"}, {"latent": "tucker", "scale": "learned_map"}])
def test_a_model_of_ones_own_comes_back_into_its_float_model(options, run, tmp_path):
    float_model, example = run.recipe.model, torch.randn(2, 1, 8, 8)
    model = float_model()
    bitfactor.binarize_(model, keep_real=["layer1.*.conv1"], input_shape=(1, 1, 8, 8), **options)
    out = bitfactor.save_pretrained(model.eval(), tmp_path / "net", example=example)
    assert out.files == ("config.json", "model.safetensors", "net.safetensors", "README.md")
    assert same(bitfactor.from_pretrained(out.path, float_model()), model)
    with pytest.raises(InputError, match="expected the float model ResNet, found none"):
        bitfactor.from_pretrained(out.path)
    with pytest.raises(InputError, match="pass the float model"):
        bitfactor.from_pretrained(out.path, replace(float_model, num_classes=5)())


@pytest.mark.parametrize("setting", ["binary_weights", "binary_activations", "input_scale", "padding_value"])
def test_what_was_set_after_binarize_comes_back(setting, tmp_path):
    def float_model():
        return nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1) for _ in range(4)])

    torch.manual_seed(0)
    model = float_model()
    bitfactor.binarize_(model, latent="tucker")
    setattr(model[1], setting, {"input_scale": True, "padding_value": 1}.get(setting, False))
    out = bitfactor.save_pretrained(model.eval(), tmp_path / "shared")
    back, x = bitfactor.from_pretrained(out.path, float_model()), torch.randn(2, 3, 6, 6)
    assert torch.equal(back(x), model(x))


def test_a_card_of_ones_own_is_kept(run, shared):
    (shared / "README.md").write_text("mine")
    bitfactor.save_pretrained(run, shared)
    assert (shared / "README.md").read_text() == "mine"


def test_a_model_of_another_library_is_kept(run, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="found another library"):
        bitfactor.save_pretrained(run, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["config.json"]


def test_what_was_altered_or_is_none_is_refused(shared, tmp_path):
    weights = shared / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match="expected SHA-256"):
        bitfactor.from_pretrained(shared)
    (shared / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="save_pretrained writes"):
        bitfactor.from_pretrained(shared)
    with pytest.raises(InputError, match="save_pretrained writes"):
        bitfactor.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(InputError, match="found no binary layer"):
        bitfactor.save_pretrained(torch.nn.Linear(2, 2), tmp_path / "float")
    with pytest.raises(InputError, match="nowhere"):
        bitfactor.save_pretrained(tmp_path / "nowhere", tmp_path / "float")
    assert not (tmp_path / "float").exists()


def test_a_config_cannot_run_a_file_of_this_machine(shared, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit")
    config = json.loads((shared / "config.json").read_text())
    config["settings"]["model"] = {"spec": f"{file}:Net"}
    (shared / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="expected the float model"):
        bitfactor.from_pretrained(shared)


def test_only_what_can_be_no_path_is_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    places = (
        "owner/name",
        "owner/name@4f2a",
        "runs/a",
        "runs/b",
        "nets/net.safetensors",
        "digits",
        "/a/b",
        "a/b/c",
    )
    assert [is_repository(place) for place in places] == [True, True] + [False] * 6


@pytest.fixture
def online(tmp_path):
    """Run Python in a process whose Hub is a stand-in, or which has none; return what it printed."""
    hub = type("Mine", (Hub,), {"commits": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    usual = {"HF_HOME": str(tmp_path / "cache"), "HF_TOKEN": "hf_x", "HF_HUB_DISABLE_TELEMETRY": "1"}
    usual["HF_HUB_OFFLINE"] = "0"  # whatever other tests set
    usual["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"

    def online(script, **more):
        environment = {**os.environ, **usual, **more}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    online.hub, online.close = hub, server.shutdown
    yield online
    server.shutdown()
    server.server_close()


PUSH = "import bitfactor; print(bitfactor.push_to_hub({run!r}, 'owner/digits'))\n"
USE = """
import numpy as np
from bitfactor.runtime import Session
print(Session({place!r})(np.ones((1, 1, 8, 8), np.float32)).shape)
"""
LOAD = "import bitfactor; print(type(bitfactor.from_pretrained({place!r})).__name__)"


def test_a_network_goes_to_the_hub_and_comes_back_and_offline_is_kept(run, online):
    back = LOAD.format(place="owner/digits") + USE.format(place="owner/digits")
    status, printed, said = online(PUSH.format(run=str(run.path)) + back)
    assert status == 0, said
    ((sha, files),) = online.hub.commits
    pushed, *came_back = printed.splitlines()
    assert pushed.endswith(sha)
    assert came_back == ["ResNet", "(1, 10)"]
    assert b"library_name: bitfactor" in files["README.md"]
    online.close()
    offline = USE.format(place=f"owner/digits@{sha}") + USE.format(place="owner/other")
    status, printed, said = online(offline, HF_HUB_OFFLINE="1")
    assert (status, printed) == (1, "(1, 10)\n")
    assert "no copy in the cache, and the Hub cannot be reached" in said
    assert "InputError: owner/other: expected a file or directory" in said.splitlines()[-1]


def test_a_repository_that_is_none_is_one_clear_error(online):
    words = ["predict", "owner/none", "x.png"]
    status, _, said = online(f"from bitfactor.cli import main; raise SystemExit(main({words}))")
    assert status == 2
    (line,) = said.splitlines()
    assert "owner/none: expected a file or directory here, or a repository of the Hub" in line


def test_without_huggingface_hub_a_path_that_is_wrong_is_still_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="neither, without huggingface_hub; check the path"):
        bitfactor.Session("owner/typo")


def test_a_run_of_a_network_of_ones_own_comes_back_into_it(run, shared, tmp_path):
    (tmp_path / "my.py").write_text(OWN)
    out = {"out": tmp_path / "own", "epochs": 1, "limit": 128, "batch_size": 64}
    trained = bitfactor.train("digits", model=f"{tmp_path / 'my.py'}:Net", **out)
    place = bitfactor.save_pretrained(trained, tmp_path / "shared_own").path
    with pytest.raises(InputError, match="expected the float model") as refused:
        bitfactor.from_pretrained(place)
    assert "config.json" not in str(refused.value)
    spec = importlib.util.spec_from_file_location("my", tmp_path / "my.py")
    my = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(my)
    assert same(bitfactor.from_pretrained(place, my.Net()), trained.model())
    with pytest.raises(InputError, match="expected no model, as its recipe makes it, found Net"):
        bitfactor.from_pretrained(shared, my.Net())


OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)]
        super().__init__(*layers, nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 10))
"""
