"""Engines compute the full-precision baseline; what is missing is named; the chart is an image."""

import json
import shutil
import subprocess
import sys

import cv2
import numpy as np
import onnxruntime
import pytest
import torch

import bitfactor
from bitfactor.cli import main
from bitfactor.engines import engines_of, full_precision
from bitfactor.engines.with_onnxruntime import onnx_baseline
from bitfactor.engines.with_torch import Baseline
from bitfactor.format import Graph, ModelFile, Node, Value, pack_signs, save
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input

RNG = np.random.default_rng(0)
WINDOW = {"dilation": (1, 1), "groups": 1}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def graph() -> Graph:
    """An op of every kind that a full-precision baseline may hold, on (16, 8, 8)."""
    nodes = []

    def add(op: str, *inputs: str, tensors: dict | None = None, **attributes: object) -> str:
        nodes.append(Node(f"{op}{len(nodes)}", op, inputs, attributes, tensors or {}))
        return nodes[-1].name

    def signs(*shape: int) -> np.ndarray:
        return pack_signs(RNG.choice(np.array([-1, 1], np.int8), shape))

    def binary(x: str, pad_value: int) -> str:
        limits = {"threshold": floats(16), "direction": RNG.choice(np.array([-1, 1], np.int8), 16)}
        bits = add("threshold", x, tensors=limits)
        weight = {"weight": signs(16, 3, 3, 16)}
        same = {"stride": (1, 1), "padding": (1, 1, 1, 1), **WINDOW}
        sums = add("binary_conv2d", bits, tensors=weight, pad_value=pad_value, **same)
        return add("scale", sums, tensors={"alpha": floats(16)})

    uneven = {"stride": (1, 1), "padding": (0, 1, 2, 1), **WINDOW}
    x = add("conv2d", "x", tensors={"weight": floats(16, 3, 3, 16), "bias": floats(16)}, **uneven)
    x = add("add", add("prelu", binary(x, 0), tensors={"slope": floats(16)}), x)
    x = add(
        "clip", add("affine", x, tensors={"scale": floats(16), "shift": floats(16)}), lower=-3.0, upper=3.0
    )
    x = add("relu", add("slice", add("concat", binary(x, 1), x), range=(0, 0, 32, 2)))
    mean = add("avg_pool2d", x, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), count_include_pad=0)
    most = add("max_pool2d", x, kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
    x = add("upsample_nearest", add("multiply", mean, add("sigmoid", most)), scale=(2, 2))
    x = add("permute", add("reshape", x, shape=(16, 8, 8)), order=(0, 2, 1))
    x = add("flatten", add("global_avg_pool", x))
    x = add("softmax", add("linear", x, tensors={"weight": floats(4, 16), "bias": floats(4)}))
    return Graph(Value("x", (16, 8, 8), "float32"), tuple(nodes), (x,))


@pytest.fixture(scope="module")
def network() -> Graph:
    return graph()


@pytest.fixture(scope="module")
def file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "net.safetensors"
    save(path, ModelFile(network, run(network, golden_input(network.input.shape))))
    return path


def test_the_baseline_is_real_valued_and_has_the_same_layers(network):
    baseline = full_precision(network)
    assert {value.dtype for value in baseline.values.values()} == {"float32"}
    assert [node.op for node in baseline.nodes].count("conv2d") == 3
    assert "scale" not in {node.op for node in baseline.nodes}
    assert baseline.values[baseline.outputs[0]].shape == network.values[network.outputs[0]].shape


def test_torch_and_onnx_compute_the_baseline(network):
    x = floats(1, 16, 8, 8)
    baseline = full_precision(network)
    (expected,) = run(baseline, x)
    (in_torch,) = Baseline(baseline)(torch.from_numpy(x))
    np.testing.assert_allclose(in_torch.numpy(), expected, atol=1e-5)
    session = onnxruntime.InferenceSession(onnx_baseline(network).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)


KINDS = {
    "torch": ["float32", "bfloat16"],
    "onnxruntime": ["float32", "int8"],
    "openvino": ["float32", "bfloat16", "int8", "BinaryConvolution"],
}


@pytest.mark.parametrize("engine", KINDS)
def test_engines_run(network, engine):
    x = floats(1, 16, 8, 8)
    engines = engines_of(engine, network, x, threads=1)
    assert [name.split()[-1] for name in engines] == KINDS[engine]
    (expected,) = run(full_precision(network), x)
    for name, infer in engines.items():
        outputs = infer()
        (found,) = outputs.values() if hasattr(outputs, "values") else outputs
        values = torch.as_tensor(found).float().numpy()
        assert np.isfinite(values).all()
        if not name.endswith("BinaryConvolution"):  # which takes the sums of signs, without scales
            np.testing.assert_allclose(
                values.reshape(1, 4), expected, atol=1e-5 if name.endswith("float32") else 0.05
            )


def test_openvino_runs_its_binary_kernels(network):
    from bitfactor.engines import with_openvino

    model = with_openvino._with_binary_kernels(with_openvino._read(onnx_baseline(network)), network)
    kinds = [operation.get_type_name() for operation in model.get_ordered_ops()]
    assert kinds.count("BinaryConvolution") == [node.op for node in network.nodes].count("binary_conv2d")
    assert kinds.count("Convolution") == 1


ENDS_IN_A_THREAD = """
import faulthandler, gc, os, signal, sys, threading
import numpy as np
from bitfactor.engines.with_openvino import binary_engine
from bitfactor.format import load

faulthandler.enable()
engines = [binary_engine(load(sys.argv[1]).graph, np.zeros((1, 16, 8, 8), np.float32), 1)]
thread = threading.Thread(target=lambda: (engines.clear(), gc.collect()))
thread.start()
thread.join()
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGUSR1)
"""


def test_a_signal_is_handled_after_openvino_ended_in_a_thread(file):
    done = subprocess.run([sys.executable, "-c", ENDS_IN_A_THREAD, str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


def test_an_engine_that_is_not_installed_is_named(file, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "bitfactor.engines.with_openvino", raising=False)
    line = refused("bench", file, "--against", "openvino", "--runs", 1)
    assert "--against openvino: expected the package openvino" in line
    assert "pip install 'bitfactor[bench]'" in line


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_chart(file, tmp_path, capsys, suffix):
    path = tmp_path / f"chart.{suffix}"
    assert main(["bench", str(file), "--against", "torch", "--runs", "2", "--chart", str(path)]) == 0
    assert "times ours" in capsys.readouterr().out
    if suffix == "png":
        assert cv2.imread(str(path)).std() > 0
    else:
        assert "bitfactor" in path.read_text()


def test_a_chart_of_another_kind_is_refused(file, refused, tmp_path):
    assert "expected a name in .png or .svg, found .gif" in refused(
        "bench", file, "--chart", tmp_path / "x.gif"
    )


def test_files_of_one_name_are_told_apart_and_torch_keeps_its_threads(file, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(file, tmp_path / name / "net.safetensors")
    others, before = [tmp_path / name / "net.safetensors" for name in ("a", "b")], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = bitfactor.bench(file, others, against="torch", runs=1).engines
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    names = [one["name"].partition(": ")[0] for one in found if ": " in one["name"]]
    assert sorted(names) == sorted(map(str, others))


def test_a_directory_that_holds_a_network_is_its_file(file, tmp_path):
    shutil.copy(file, tmp_path / "net.safetensors")
    size = file.stat().st_size
    assert [one["bytes"] for one in bitfactor.bench(tmp_path, [tmp_path], runs=1).engines] == [size, size]


def test_layers_and_threads_in_json(file, capsys):
    assert main(["bench", str(file), "--threads", "2", "--runs", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["threads"] == 2
    operations = [layer["operations"] for layer in result["layers"]]
    assert sum(names[:1] == ["binary_conv2d"] for names in operations) == 2
