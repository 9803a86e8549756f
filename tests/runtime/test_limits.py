"""What the runtime may cost at most: to import, to load a ResNet-18, on disk, in memory.

Times are of the processor, the least of several: a busy machine must not fail the test.
"""

import io
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.cases import bytes_taken
from tests.runtime.sets import every_set, full_sets

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common import _native
from bitfactor.exporter import export
from bitfactor.format import load, save
from bitfactor.runtime import Session, zoo


def least(measure: Callable[[], float], limit: float) -> float:
    """Return the least of up to 20 measurements; one below the limit will do."""
    found = measure()
    for _ in range(19):
        if found < limit:
            break
        found = min(found, measure())
    return found


def output_of(code: str) -> float:
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory) -> Path:
    """A file for 224 x 224. It is exported for less, as the weights are the same and the check is faster."""
    torch.manual_seed(0)
    model = bitfactor.models.resnet18(num_classes=1000).eval()
    binarize_(model, Binarization("none"), keep_real=["conv1", "fc"])
    path = tmp_path_factory.mktemp("models") / "resnet18.safetensors"
    export(model, path, torch.randn(2, 3, 32, 32))
    file = load(path)
    save(path, replace(file, graph=file.graph_for((3, 224, 224))))
    return path


def import_time(module: str) -> float:
    code = f"""
import time
start = time.process_time()
import {module}
print(time.process_time() - start)
"""
    return least(lambda: output_of(code), 0.15)


def test_import_takes_less_than_150_ms():
    """Most of that is numpy: where it takes longer than usual, all may in proportion."""
    found = import_time("bitfactor.runtime")
    assert found < 0.15 or found < 2.5 * import_time("numpy")


@full_sets
def test_resnet18_loads_in_less_than_100_ms(isa, resnet18):
    def measure() -> float:
        start = time.process_time()
        Session(resnet18, isa=isa, threads=1)
        return time.process_time() - start

    assert least(measure, 0.1) < 0.1


@every_set
def test_resnet18_runs_in_less_than_27_mb_over_the_interpreter(isa, resnet18):
    """The interpreter is Python with numpy. The most that was ever in use counts, that of loading too."""
    code = f"""
from bitfactor.runtime import Session, zoo
session = Session({str(resnet18)!r}, isa={isa!r}, threads=1)
for _ in range(3):
    session(x)
"""
    after = "import numpy as np\nx = np.zeros((1, 3, 224, 224), np.float32)"
    assert bytes_taken(code, after=after) < 27e6


def test_a_wheel_without_its_networks_is_smaller_than_1750_kb():
    """A wheel is a zip of the package, two modules for browsers among it, and the compiled core."""
    package = Path(bitfactor.__file__).parent
    left_out = (".so", ".pyc", ".safetensors")
    files = [path for path in package.rglob("*") if path.suffix not in left_out and path.is_file()]
    with zipfile.ZipFile(archive := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in [*files, Path(_native.__file__)]:
            wheel.write(path)
    assert len(archive.getvalue()) < 1.75e6


def test_networks_of_a_wheel_are_smaller_than_3_mb_each():
    """A larger one is built by its command; together they may take 5 MB."""
    sizes = [path.stat().st_size for path in Path(zoo.__file__).parent.glob("*.safetensors")]
    assert max(sizes) < 3e6
    assert sum(sizes) < 5e6
