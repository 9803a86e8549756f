"""The pure parts of the front: what no other network reaches, the page's tables, steps for TensorFlow.js."""

import base64
import importlib.util
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import bitfactor
from bitfactor.runtime.program import LayerTime

ROOT = Path(__file__).parents[1]


def script(path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    spec = importlib.util.spec_from_file_location(f"{Path(path).stem}_script", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page(monkeypatch):
    return script("docs/results/front.py", monkeypatch)


@pytest.fixture
def measuring(monkeypatch):
    return script("benchmarks/front.py", monkeypatch)


def row(network, weights, ms, engine="OpenVINO int8", median=None):
    return {
        "network": network,
        "weights": weights,
        "engine": engine,
        "minimum_ms": ms,
        "median_ms": ms if median is None else median,
        "bytes": 4_000_000,
    }


def results(binary_ms):
    rows = [
        row("ReActNet-18", "1 bit", binary_ms, "bitfactor avx2"),
        row("ReActNet-18", "1 bit", binary_ms + 1, "bitfactor avx2, low", 9 * binary_ms),
        row("ResNet-18", "int8", 6.0),
        row("RegNetX-200MF", "int8", 2.0),
    ]
    about = {
        "machine": "a CPU",
        "isa": "avx2",
        "threads": 1,
        "batch": 1,
        "runs": 3,
        "versions": {"numpy": "2"},
    }
    return {"native": {**about, "rows": rows}}


def test_the_page_says_which_is_better_either_way(page):
    slow, slower, fast = (page.points(results(ms)) for ms in (4.0, 7.0, 1.0))
    said = {ms: " ".join(page.sentences(one).split()) for ms, one in ((4, slow), (7, slower), (1, fast))}
    assert "2.00x slower" in page.choices(slow)
    assert "2.00x faster" in page.choices(fast)
    assert "Take a compact network" in said[4]
    assert "Take a compact network" not in said[1]
    assert "lies on the front: best instructions" in said[1]
    assert "1.5x faster than int8" in said[4]
    assert "not faster than int8" in said[7]


def test_a_table_marks_the_front_and_slowed_medians(page):
    table = page.latencies(page.points(results(1.0)))
    assert "| ReActNet-18 | 1 bit | 65.9 | 4.0 | **1.00** |" in table
    assert "| ReActNet-18 | 1 bit, `low` | 65.9 | 4.0 | 2.00~ |" in table
    assert "| RegNetX-200MF | int8 | 68.9* | 4.0 | **2.00** |" in table


def test_the_front_has_what_no_other_reaches(page):
    first = page.points(results(1.0))["native"][0]
    found = [replace(first, ms=ms, top1=top1) for ms, top1 in ((1, 60), (2, 70), (2, 65), (3, 70), (4, 71))]
    assert [(one.ms, one.top1) for one in page.front(found)] == [(1, 60), (2, 70), (4, 71)]


def test_names_that_would_overlap_are_left_out(page):
    places = [(7.6, 73.8), (16, 74.0), (17, 74.4), (26, 75.1), (29, 75.9), (224, 76.1)]
    assert page.apart(places) == [(7.6, 73.8), (26, 75.1), (29, 75.9), (224, 76.1)]


def test_parts_of_the_page_are_filled_in(page):
    text = "a\n<!-- one -->old<!-- end -->\n<!-- two --><!-- end -->\n"
    filled = page.filled(text, {"one": r"new \1"})
    assert filled == "a\n<!-- one -->\n\nnew \\1\n\n<!-- end -->\n<!-- two --><!-- end -->\n"
    assert page.filled(filled, {"one": r"new \1"}) == filled


def test_a_chart_is_drawn_in_both_themes(page):
    found = page.fastest(page.points(results(1.0))["native"])
    light, dark = (page.chart({"one": [(one, one.ms) for one in found]}, "ms", theme) for theme in page.INK)
    assert light.startswith("<svg")
    assert light != dark


def test_every_published_network_can_be_built_and_has_its_source(page, measuring):
    known = {*measuring.RESNET18, *measuring.BINARY, *measuring.TIMM}
    for one in page.published():
        assert one["network"] in known
        assert bool(one["top1"]) == bool(one["source"])
        assert one["top1"] or one["weights"] == "int8"


def test_the_faster_engine_of_others_is_kept_and_both_precisions_of_ours(measuring):
    slower = row("ResNet-18", "int8", 9.0, "ONNX Runtime int8")
    rows = [*results(1.0)["native"]["rows"], slower]
    assert measuring.fastest(rows) == rows[:-1]


def test_engines_far_from_the_fastest_are_not_measured(measuring):
    def slow():
        sum(range(300_000))

    engines = {
        ("a", "int8", "one"): lambda: None,
        ("a", "int8", "two"): slow,
        ("b", "1 bit", "low"): slow,
        ("b", "1 bit", "highest"): lambda: None,
    }
    assert [key[2] for key in measuring.near(engines)] == ["one", "low", "highest"]


def test_a_batch_has_as_few_runs_as_its_row_says(measuring):
    assert {name: measuring.rounds(one, 20) for name, one in measuring.TARGETS.items()} == {
        **dict.fromkeys(measuring.TARGETS, 20),
        "batch": 3,
    }


def test_products_are_counted_by_what_multiplies_them(monkeypatch, measuring):
    monkeypatch.setitem(sys.modules, "front", measuring)
    whole = script("benchmarks/whole.py", monkeypatch)

    def layer(kernel, *operations, signs=0, real=0):
        return LayerTime(("x",), operations, kernel, (), signs, real, 1e-3, 1e-3, 0.5)

    both = layer("avx2/quantised_conv, binary_conv", "quantised_conv2d", "binary_conv2d", signs=9, real=4)
    assert whole.products(both) == {"signs": 9, "levels": 4}
    assert +whole.products(layer("avx2/depthwise", "quantised_conv2d", real=5)) == {"floats": 5}
    assert +whole.products(layer("avx2/conv", "conv2d", "relu", real=6)) == {"floats": 6}
    figure = whole.Figure("QuickNet", "avx2", "low", 4.0, {"signs": 1.0, "levels": 0.5, "floats": 0.5})
    assert figure.share == 0.5


def convolution(groups, shape):
    weight = onnx.numpy_helper.from_array(np.ones(shape, np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8, 8]) for name in ("x", "z")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups),
        helper.make_node("Clip", ["y"], ["z"]),
    ]
    return helper.make_model(helper.make_graph(nodes, "net", values[:1], values[1:], [weight]))


def test_steps_for_tensorflow_have_its_layout_and_fused_activations(monkeypatch):
    web = script("benchmarks/web.py", monkeypatch)
    found = web.steps_of(convolution(4, (4, 1, 3, 3)))
    (step,) = found["steps"]
    assert found["input"]["shape"] == [1, 8, 8, 4]
    assert (step["shape"], step["depthwise"], step["activation"]) == ([3, 3, 4, 1], True, "relu6")
    assert (step["output"], step["pads"]) == ("z", [[0, 0], [1, 1], [1, 1], [0, 0]])
    assert web.steps_of(convolution(1, (4, 4, 3, 3)))["steps"][0]["shape"] == [3, 3, 4, 4]
    assert web.steps_of(convolution(2, (4, 2, 3, 3))) is None


@pytest.fixture
def trained(monkeypatch, page):
    monkeypatch.setitem(sys.modules, "front", page)
    return script("docs/results/front_trained.py", monkeypatch)


def cell(width, weights, ms, accuracy, seed=0, kept=(), engine="OpenVINO"):
    times = {"minimum_ms": ms, "median_ms": ms} if seed == 0 else {}
    about = {"widths": [width, 2 * width], "keep_real": [*kept], "seed": seed, "engine": engine}
    return {**about, "weights": weights, "bytes": 5000, "accuracy": accuracy, **times}


def test_a_trained_network_is_compared_with_the_line_at_its_latency_seed_by_seed(trained):
    rows = [
        cell(w, "int8", ms, top1 + s / 100, s)
        for w, ms, top1 in ((16, 1.0, 0.80), (32, 3.0, 0.84))
        for s in (0, 1)
    ]
    rows += [cell(32, "1 bit", 2.0, 0.85 + s / 100, s, engine="low") for s in (0, 1)]
    rows += [cell(32, "1 bit", 9.0, 0.86, s, engine="highest") for s in (0, 1)]
    found = trained.networks({"rows": rows})
    ours = next(one for one in found if one.weights == "1 bit")
    assert ours.engine == "low"  # the faster of both
    line = [one for one in found if one.weights == "int8"]
    difference = trained.above([ours], line)["32 channels"]
    assert difference.mean == pytest.approx(0.03)
    assert difference.sign == 1
    text, _ = trained.trained({"rows": rows})
    assert "32 channels: **above** the line between the int8 networks." in text


def test_of_one_seed_the_images_decide(trained):
    """Four of a hundred images apart from both ends, by hand: 0.04, with the deviation of such images."""
    images = np.arange(100)
    rows = [cell(32, "int8", 3.0, 0), cell(32, "1 bit", 1.0, 0), cell(32, "mixed", 2.0, 0, kept=("a",))]
    for row, count in zip(rows, (80, 80, 84), strict=True):
        bits = np.packbits(images < count).tobytes()
        row |= {"images": 100, "right": base64.b64encode(bits).decode(), "accuracy": count / 100}
    found = trained.networks({"rows": rows})
    mixed, *line = sorted(found, key=lambda one: one.weights != "mixed")
    apart = trained.above([mixed], line)["1 layers real"]
    deviation = np.std(np.where((images >= 80) & (images < 84), 1, 0), ddof=1)
    assert apart.mean == pytest.approx(0.04)
    assert apart.mean - apart.low == pytest.approx(1.9842 * deviation / 10, rel=1e-4)
    assert "| 1 layers real | mixed | OpenVINO | 84.00 | 1 |" in trained.mixed({"rows": rows})


def test_only_the_ends_that_a_network_lies_between_need_its_seeds(trained):
    rows = [cell(w, "int8", ms, 0.8, s) for w, ms in ((16, 1.0), (32, 3.0)) for s in (0, 1, 2)]
    rows += [cell(64, "int8", 9.0, 0.8)] + [cell(32, "1 bit", 2.0, 0.8, s) for s in (0, 1, 2)]
    found = trained.networks({"rows": rows})
    ours, line = ([one for one in found if one.weights == kind] for kind in ("1 bit", "int8"))
    assert trained.above(ours, line)["32 channels"].pairs == 3


def test_deviations_between_seeds_are_pooled_over_networks(trained):
    """Both means' intervals come of sqrt((2 * 2e-4 + 0) / 3) and three degrees of freedom, by hand."""
    seeds = {"a": {0: 0.01, 1: 0.03}, "b": {0: 0.0, 1: 0.01, 2: 0.02}}
    a, b = (trained.pooled(one, [*seeds.values()]) for one in seeds.values())
    deviation = math.sqrt((2e-4 + 2e-4) / 3)
    assert a.high - a.mean == pytest.approx(3.182446 * deviation / math.sqrt(2))
    assert b.mean - b.low == pytest.approx(3.182446 * deviation / math.sqrt(3))


def test_beyond_the_line_the_nearest_network_counts_and_one_seed_decides_nothing(trained):
    rows = [cell(16, "int8", 1.0, 0.8), cell(32, "int8", 2.0, 0.9), cell(8, "1 bit", 0.5, 0.7)]
    text, _ = trained.trained({"rows": rows})
    assert "| −10.00 |" in text
    assert "8 channels: **not decided beside** the line between" in text


def test_mixed_networks_are_compared_with_both_ends(trained):
    rows = [cell(32, "int8", 3.0, 0.9 + s / 1000, s) for s in (0, 1)] + [
        cell(32, "1 bit", 1.0, 0.8 + s / 1000, s) for s in (0, 1)
    ]
    rows += [cell(32, "mixed", 2.0, 0.84 + s / 1000, s, kept=("a", "b")) for s in (0, 1)]
    text = trained.mixed({"rows": rows})
    assert "2 layers real: **below** the line between int8 and 1 bit." in text


def test_networks_trained_from_one_in_full_precision_are_measured_beside_it(cifar, tmp_path, monkeypatch):
    """Tiny: all of `benchmarks/mixed.py` and `benchmarks/trained.py`, from the images to the page's table."""
    data, _, _ = cifar(each=60)
    run, mixed, out = tmp_path / "real", tmp_path / "mixed", tmp_path / "measured.json"
    sizes = {"blocks": (1, 1), "widths": (8, 16), "stem": "halving"}
    options = {"epochs": 1, "warmup_epochs": 0, "progress": False}
    bitfactor.train("cifar10-resnet18", out=run, data=data, real=True, **sizes, **options)
    making = script("benchmarks/mixed.py", monkeypatch)
    making.main(making.Arguments(run, mixed, data, epochs=1, networks=3))
    runs = tuple(sorted(mixed.glob("*-binary")))
    assert [one.name for one in runs] == ["0-binary", "2-binary", "4-binary"]
    timing = script("benchmarks/trained.py", monkeypatch)
    timing.main(timing.Arguments(runs, data, out, runs=3))
    results = json.loads(out.read_text())
    found = {(row["weights"], row["engine"]) for row in results["rows"]}
    assert {("float32", "OpenVINO"), ("int8", "bitfactor, low"), ("mixed", "bitfactor, low")} <= found
    assert {("1 bit", "bitfactor"), ("int8", "OpenVINO")} <= found
    assert all(row["minimum_ms"] > 0 and 0 <= row["accuracy"] <= 1 for row in results["rows"])
    monkeypatch.setitem(sys.modules, "front", script("docs/results/front.py", monkeypatch))
    text = script("docs/results/front_trained.py", monkeypatch).mixed(results)
    assert "- 2 layers real: **" in text
    again = []
    monkeypatch.setattr(bitfactor, "train", lambda *_, **settings: again.append(settings))
    making.main(making.Arguments(run, tmp_path / "seed1", data, like=mixed))
    kept = {len(one["keep_real"]) for one in results["rows"] if one["weights"] == "mixed"}
    assert {one["out"].name: len(one.get("keep_real", ())) for one in again if not one["real"]} == {
        "2-binary": kept.pop(),
        "4-binary": 0,
    }


@pytest.fixture
def emulator(tmp_path, monkeypatch):
    """A stand-in for the emulator, which writes two marks for each file that ends in .onnx."""
    path = tmp_path / "qemu-aarch64"
    path.write_text(
        "#!/bin/sh\nout=${6##*out=}\n"
        'for one; do case $one in *.onnx) printf "10 1 2 0\\n31 5 9 1\\n" >>"$out";; esac; done\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return script("benchmarks/arm.py", monkeypatch)


def test_instructions_are_those_between_the_marks_of_a_file(emulator, tmp_path):
    files = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for file in files:
        file.write_bytes(b"1234")
    engine = emulator.Engine(["python"], [("ResNet-18", "int8", "OpenVINO", file) for file in files])
    first, second = emulator.counts("cortex-a76", engine, tmp_path)
    assert first == second
    assert (first["instructions"], first["vector"], first["memory"], first["dot"]) == (21, 4, 7, 1)
    assert (first["network"], first["engine"], first["bytes"]) == ("ResNet-18", "OpenVINO", 4)
    assert engine.without([first]) is None
    lost = emulator.Engine(["python"], [("ResNet-18", "int8", "OpenVINO", Path(__file__))])
    with pytest.raises(emulator.MissingError, match="expected 2 marks, found 0"):
        list(emulator.counts("cortex-a76", lost, tmp_path))


def test_counting_names_the_packages_that_are_missing(emulator, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(emulator.MissingError, match=r"qemu-user.*apt-get install"):
        emulator.expect_programs()


def test_an_emulated_cpu_describes_itself_as_on_a_board(emulator, tmp_path):
    emulator.describe(emulator.CPUS["cortex-a72"], tmp_path)
    assert "asimddp" not in (tmp_path / "proc/cpuinfo").read_text()
    emulator.describe(emulator.CPUS["cortex-a76"], tmp_path)
    assert "asimddp" in (tmp_path / "proc/cpuinfo").read_text()
    midr = tmp_path / "sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
    assert int(midr.read_text(), 16) == 0x410FD0B0  # Arm's manual of the Cortex-A76


def test_instructions_make_the_same_tables_as_milliseconds(page):
    rows = [
        {**one, "instructions": one["minimum_ms"] * 1e6, "vector": 5e5}
        for one in results(1.0)["native"]["rows"]
    ]
    table = page.choices(page.in_millions({"cortex-a76": {"rows": rows}}), page.ARM, "M", ("fewer", "more"))
    assert "| M |" in table
    assert "| Cortex-A76 | ReActNet-18 | 65.9 | 1.00 |" in table
    assert "2.00x fewer" in table
    assert "| Cortex-A76, vectors alone | ReActNet-18 | 65.9 | 0.50 |" in table
