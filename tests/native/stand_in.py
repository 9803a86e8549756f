"""A pytest plugin: the core of build/amx, with tile_stand_in.h for tiles, in the place of the installed one.

python -m pytest -p tests.native.stand_in -k amx tests/runtime
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

NAME = "bitfactor.runtime._native"


def pytest_configure() -> None:
    (path,) = (Path(__file__).parents[2] / "build" / "amx").glob("_native.*.so")
    spec = spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
    from bitfactor.runtime import instruction_sets

    if "amx" not in instruction_sets():
        pytest.exit("besides tiles, amx needs AVX-512 with BF16, which this machine lacks", returncode=0)
