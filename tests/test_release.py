"""Speed is compared with the last release that was measured on the same kind of CPU, if there is one."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "release.py"


@pytest.fixture
def release(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    monkeypatch.setattr(release, "STORED", tmp_path / "releases.json")
    monkeypatch.setattr(release, "cpu_name", lambda: "Xeon")
    monkeypatch.setattr(release, "instruction_sets", lambda: ("amx", "scalar"))
    monkeypatch.setattr(release, "ratio", lambda network: 2.0)
    monkeypatch.setattr(release.zoo, "names", lambda: ("digits",))
    return release


@pytest.mark.parametrize(
    "stored", [{}, {"0.1.0": {"Xeon, avx512": {"digits": 9.0}}}, {"0.2.0": {"Xeon, amx": {"digits": 9.0}}}]
)
def test_without_an_earlier_release_it_says_so_and_is_no_failure(release, capsys, monkeypatch, stored):
    monkeypatch.setattr(release, "__version__", "0.2.0")
    if stored:
        release.STORED.write_text(json.dumps(stored))
    assert release.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "digits: 2.00x torch float32",
        "no earlier release was measured on Xeon, amx: nothing to compare with",
    ]
    assert release.STORED.exists() == bool(stored)


@pytest.mark.parametrize(("was", "status"), [(2.4, 0), (2.6, 1)])
def test_a_loss_of_more_than_a_fifth_is_a_failure(release, capsys, was, status):
    before = {"0.0.1": {"Xeon, amx": {"digits": 9.0}}, "0.0.2": {"Xeon, amx": {"digits": was, "gone": 9.0}}}
    release.STORED.write_text(json.dumps(before))
    assert release.main() == status
    assert capsys.readouterr().out == f"digits: 2.00x torch float32, {was:.2f}x in 0.0.2\n"


def test_figures_are_stored_beside_those_of_other_releases_and_cpus(release):
    before = {"0.0.1": {"Xeon, amx": {"digits": 2.0}}, release.__version__: {"Xeon, avx512": {"digits": 3.0}}}
    release.STORED.write_text(json.dumps(before))
    assert release.main(store=True) == 0
    assert json.loads(release.STORED.read_text()) == {
        "0.0.1": {"Xeon, amx": {"digits": 2.0}},
        release.__version__: {"Xeon, avx512": {"digits": 3.0}, "Xeon, amx": {"digits": 2.0}},
    }
