"""A pytest plugin: the core of build/amx, with tile_stand_in.h for tiles, in the place of the installed one.

python -m pytest -p tests.native.stand_in -k amx tests/runtime
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

NAME = "bitfactor.common._native"
BESIDES_TILES = {"avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_vpopcntdq", "avx512_bf16"}


def pytest_configure() -> None:
    (path,) = (Path(__file__).parents[2] / "build" / "amx").glob("_native.*.so")
    spec = spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
    from bitfactor.runtime import instruction_sets

    if "amx" not in instruction_sets():
        flags = Path("/proc/cpuinfo").read_text().split()
        lacking = sorted(BESIDES_TILES - set(flags))
        expected = "expected the set amx" + ("" if lacking else ", for this machine has all that it needs")
        pytest.exit(f"{expected}; besides tiles it needs {lacking}", returncode=0 if lacking else 1)
