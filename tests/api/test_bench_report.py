"""What other work on the machine does to a time is said, and the minimum is what is compared."""

import json
import re

import onnx
import pytest
from onnx import TensorProto, helper

import bitfactor
from bitfactor.api.bench import BenchReport, bench
from bitfactor.api.export import write_network
from bitfactor.common.errors import InputError
from bitfactor.engines import peak_memory
from bitfactor.format import load
from bitfactor.targets.onnx import to_onnx


def with_medians(*medians):
    measured = bench("digits", runs=1)
    engines = tuple(
        {"name": f"engine {i}", "minimum_ms": 1.0 + i, "median_ms": median}
        for i, median in enumerate(medians)
    )
    return BenchReport(measured.machine, 1, 1, "0", engines, measured.layers)


@pytest.mark.parametrize(
    ("medians", "slowed"), [((1.1, 2.2), ""), ((1.1, 59.0), "engine 1"), ((2.0,), "engine 0")]
)
def test_a_median_of_twice_the_minimum_is_warned_of(medians, slowed):
    report = with_medians(*medians)
    assert len(report.warnings) == bool(slowed)
    assert slowed in "".join(report.warnings)
    assert ("warning: the median is twice the minimum" in str(report)) == bool(slowed)
    assert ("~" in str(report)) == bool(slowed)


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_run_tells_the_minimum(run, exported, tmp_path, monkeypatch):
    import shutil

    from bitfactor.api import report as pages

    shutil.copytree(run, tmp_path / "run")
    shutil.copy(exported, tmp_path / "run" / "net.safetensors")
    monkeypatch.setattr(pages, "bench", lambda *_, **__: with_medians(50.0, 4.0))
    text = bitfactor.report(tmp_path / "run").output.read_text()
    assert "1.000 ms (minimum)" in text
    assert "50.000" not in text
    assert "warning: the median is twice the minimum" in text


def test_a_study_compares_minima(exported):
    from bitfactor.api.report import _sizes

    engines = (
        {"name": "bitfactor", "minimum_ms": 1.0, "median_ms": 1.0},
        {"name": "torch float32", "minimum_ms": 14.0, "median_ms": 59.0},
    )
    found = _sizes(exported, BenchReport("m", 1, 1, "0", engines, with_medians(1.0).layers))
    assert found["torch_times"] == 14.0
    assert json.dumps(found["warnings"]).count("torch float32") == 1


@pytest.fixture(scope="module")
def converted(of_parted, tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "other.onnx"
    onnx.save(to_onnx(load(of_parted[1])), path)
    return path


def test_files_of_others_stand_beside_ours_with_bytes_memory_and_accuracy(of_parted, parted, converted):
    report = bench(of_parted[1], [converted, of_parted[1]], data=parted, runs=1)
    names = [engine["name"].split(" (")[0] for engine in report.engines]
    assert names == [
        "bitfactor",
        f"{converted}: OpenVINO",
        f"{converted}: ONNX Runtime",
        f"{of_parted[1]}: bitfactor",
    ]
    accuracy = bitfactor.evaluate(of_parted[1], data=parted).accuracy
    sizes = [of_parted[1].stat().st_size, converted.stat().st_size]
    for engine, size in zip(report.engines, [sizes[0], sizes[1], sizes[1], sizes[0]], strict=True):
        assert (engine["accuracy"], engine["bytes"]) == (accuracy, size)
        assert engine["memory"] > 10_000_000
    head = str(report).split("engine")[-1].splitlines()[0]
    assert re.split(r"  +", head.strip())[-3:] == ["accuracy", "bytes", "MB of memory"]


def test_an_engine_without_a_file_has_no_bytes():
    report = bench("digits", against="torch", runs=1)
    assert [engine.get("bytes") is None for engine in report.engines] == [False, True, True]
    assert "accuracy" not in str(report)


def network(shape, kind=TensorProto.FLOAT):
    values = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_an_other_file_that_is_not_there_and_a_process_that_fails(tmp_path):
    with pytest.raises(InputError, match=r"missing\.onnx: expected an ONNX file, found no such file or dir"):
        bench("digits", [tmp_path / "missing.onnx"], runs=1)
    assert peak_memory("bitfactor", tmp_path / "missing.safetensors", (1, 8, 8), 1, "highest") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no network", "expected an ONNX file"),
        (
            network([1, 3, "h", 8]).SerializeToString(),
            r"every side but the batch's known, found x \(3, 0, 8\)",
        ),
        (network([1, 3], TensorProto.INT64).SerializeToString(), "expected one input of float32"),
    ],
)
def test_an_onnx_file_that_cannot_be_timed_is_named(tmp_path, content, message):
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"other.onnx.*{message}"):
        bench("digits", [path], runs=1)


def test_accuracy_needs_files_that_take_the_same_images(of_parted, parted, tmp_path):
    onnx.save(network(["n", 3, 8, 8]), tmp_path / "small.onnx")
    with pytest.raises(InputError, match=r"small.onnx: expected an input of \(3, 32, 32\)"):
        bench(of_parted[1], [tmp_path / "small.onnx"], data=parted, runs=1)
    with pytest.raises(InputError, match="data: expected None, with a session"):
        bench(bitfactor.Session(of_parted[1]), data=parted, runs=1)


def test_a_full_precision_run_is_written_as_onnx_in_int8_too(
    trained, parted, of_parted, tmp_path, monkeypatch
):
    monkeypatch.setattr("bitfactor.api.bench.peak_memory", lambda *_: 11_000_000)
    run, _ = trained(parted, "--real")
    report = write_network(run, tmp_path / "net.onnx", calibration=8)
    assert report.int8 == str(tmp_path / "net-int8.onnx")
    kinds = {node.op_type for node in onnx.load(report.int8).graph.node}
    assert "QuantizeLinear" in kinds
    assert write_network(run, tmp_path / "net.onnx", calibration=8).int8 == report.int8  # replaces its own
    assert "net-int8.onnx: the same in int8" in str(report)
    found = bench(of_parted[1], [report.path, report.int8], data=parted, runs=1)
    assert len(found.engines) == 5
