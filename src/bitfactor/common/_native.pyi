"""Types of the compiled core, native/api/bindings.cpp."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float32]

def instruction_sets() -> list[str]: ...
def resize_image(image: NDArray[np.uint8], height: int, width: int, out: NDArray[np.uint8]) -> None: ...

class Program:
    def __init__(self, isa: str, threads: int, arena_bytes: int, most_bytes: int = ...) -> None: ...
    def allow_bfloat16(self, parts: int) -> None: ...
    def add(self, kind: str, arguments: Mapping[str, NDArray[Any]]) -> None: ...
    def run(self, x: _Floats, outs: list[_Floats]) -> bool: ...
    def profile(self, x: _Floats, outs: list[_Floats], ns: NDArray[np.float64]) -> None: ...
    def phases(self) -> list[str]: ...
    def reasons(self) -> list[str]: ...
    def step_count(self) -> int: ...

class Maps:
    def __init__(
        self,
        samples: int,
        pixels: int,
        groups: int,
        channels: int,
        channels_last: bool,
        bfloat16: bool,
        closed: bool = False,
    ) -> None: ...

class Trainer:
    def __init__(self, isa: str, threads: int) -> None: ...
    def pack(self, maps: Maps, x: int, signs: int, inside: int) -> bool: ...
    def unpack(self, maps: Maps, signs: int, out: int) -> None: ...
    def mask(self, maps: Maps, inside: int, gradient: int) -> None: ...
    def prelu(self, maps: Maps, x: int, gradient: int, slope: int, of_x: int, of_slope: int) -> None: ...
    def normalise(
        self,
        maps: Maps,
        repeats: int,
        eps: float,
        clip: bool,
        weight: int,
        bias: int,
        x: int,
        added: int,
        statistics: int,
        y: int,
    ) -> None: ...
    def normalise_backward(
        self,
        maps: Maps,
        repeats: int,
        weight: int,
        x: int,
        y: int,
        gradient: int,
        statistics: int,
        kept: int,
        of_x: int,
        of_weight: int,
        of_bias: int,
    ) -> None: ...
    def tanh_gradient(
        self, maps: Maps, x: int, gradient: int, height: float, steepness: float, of_x: int
    ) -> None: ...
    def couples(self) -> bool: ...
    def weights(
        self,
        grid: int,
        sizes: list[int],
        coupled: bool,
        operands: list[int],
        x: int,
        y: int,
        weights: list[int],
    ) -> None: ...
    def of_weights(
        self,
        grid: int,
        sizes: list[int],
        coupled: bool,
        operands: list[int],
        x: int,
        y: int,
        of_weights: list[int],
        of_operands: list[int],
    ) -> None: ...
    def conv(
        self, out: Maps, window: list[int], channels: int, signs: int, weight: int, scale: int, y: int
    ) -> None: ...
