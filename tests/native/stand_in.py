"""A pytest plugin: another build of the core, in the place of the installed one.

It is that of build/amx, with tile_stand_in.h for tiles, or of the directory that BITFACTOR_CORE names:
python -m pytest -p tests.native.stand_in -k amx tests/runtime
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

NAME = "bitfactor.common._native"
BESIDES_TILES = {"avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_vpopcntdq", "avx512_bf16"}


NAMED = os.environ.get("BITFACTOR_CORE")

# At once: the tests' conftest.py imports what imports the core.
(PATH,) = Path(NAMED or Path(__file__).parents[2] / "build" / "amx").glob("_native.*.so")
SPEC = spec_from_file_location(NAME, PATH)
assert SPEC is not None
assert SPEC.loader is not None
sys.modules[NAME] = module_from_spec(SPEC)
SPEC.loader.exec_module(sys.modules[NAME])


def pytest_configure() -> None:
    from bitfactor.common import machine

    assert machine._native is sys.modules[NAME]
    if not NAMED and "amx" not in machine.instruction_sets():
        flags = Path("/proc/cpuinfo").read_text().split()
        lacking = sorted(BESIDES_TILES - set(flags))
        expected = "expected the set amx" + ("" if lacking else ", for this machine has all that it needs")
        pytest.exit(f"{expected}; besides tiles it needs {lacking}", returncode=0 if lacking else 1)
