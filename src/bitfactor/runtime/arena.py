"""Where each buffer lies in one block of memory, so that buffers never alive together share it."""

from collections.abc import Mapping
from dataclasses import dataclass

ALIGNMENT = 64  # a cache line, and the widest register


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `size` bytes, in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def overlaps(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


def place(buffers: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """Return the byte offset of each buffer, and the bytes needed in all.

    Large buffers first, each at the lowest place that no buffer alive at the same time holds.

    Example
    -------
    >>> place({"a": Lifetime(100, 0, 1), "b": Lifetime(64, 1, 2), "c": Lifetime(64, 2, 3)})
    ({'a': 0, 'b': 128, 'c': 0}, 192)
    """
    offsets: dict[str, int] = {}
    for name in sorted(buffers, key=lambda name: -buffers[name].size):
        taken = sorted(
            (offsets[other], _aligned(buffers[other].size))
            for other in offsets
            if buffers[other].overlaps(buffers[name])
        )
        offsets[name] = _lowest_gap(taken, _aligned(buffers[name].size))
    return offsets, max((offsets[name] + _aligned(b.size) for name, b in buffers.items()), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _lowest_gap(taken: list[tuple[int, int]], size: int) -> int:
    end = 0
    for offset, length in taken:
        if offset - end >= size:
            break
        end = max(end, offset + length)
    return end
