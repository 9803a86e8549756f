"""What other work on the machine does to a time is said, and the minimum is what is compared."""

import json

import pytest

from bitfactor.api.bench import BenchReport, bench


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


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_run_tells_the_minimum(run, exported, tmp_path, monkeypatch):
    import shutil

    import bitfactor
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
