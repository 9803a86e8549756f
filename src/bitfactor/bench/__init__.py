"""Timing of exported files, layer by layer and beside other engines.

Call it: `bitfactor.bench("net.safetensors", against=["torch"])`, see `bitfactor.api.bench.bench`.
"""

from bitfactor.api.bench import BenchReport, bench
from bitfactor.room import callable_as

__all__ = ["BenchReport", "bench"]

callable_as(__name__, "bitfactor.api.bench")
