"""Whether a Matlab file of version 5 to 7 is built as the format says, before scipy reads it.

scipy ends the process where a type of values is none, and allocates what an array says of its size.
"""

import math
import struct
import zlib
from collections.abc import Iterator

from bitfactor.common.errors import InputError

_SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_INT32, _UINT32, _MATRIX, _COMPRESSED = 5, 6, 14, 15
_CELL, _STRUCT, _CHAR, _NUMBERS = 1, 2, 4, range(6, 16)
_COMPLEX = 0x800
_HEADER = 128
_MOST_BYTES = 1 << 30  # of a variable that is compressed
_DEEPEST = 50

_Part = tuple[int, int, int]  # type, begin and end


class _DamagedError(Exception):
    pass


def expect_sound(content: bytes, where: object) -> None:
    """Raise InputError where a part of the file reaches beyond it, or is of no type that annotations need."""
    version = content[124 + (content[126:127] == b"I") :][:1]
    if version != b"\1" or 0 in content[:4]:  # another version, of which scipy takes care
        return
    order = "<" if content[126:_HEADER] == b"IM" else ">"
    try:
        for kind, begin, end in _parts(content, order, _HEADER, len(content)):
            variable = content[begin:end]
            if kind == _COMPRESSED:
                variable = zlib.decompressobj().decompress(variable, _MOST_BYTES)
                _expect_arrays(variable, order, _parts(variable, order, 0, len(variable)), 1)
            else:
                _expect_arrays(content, order, iter([(kind, begin, end)]), 1)
    except (_DamagedError, struct.error, zlib.error) as error:
        raise InputError(
            where,
            expected="a Matlab file of arrays, structs and cells",
            found=f"another, or a damaged one ({error})",
            fix="restore the file or give another",
        ) from error


def _parts(data: bytes, order: str, at: int, end: int) -> Iterator[_Part]:
    """Yield what stands one behind the other; up to four bytes may stand in the place of a length."""
    unpack = struct.Struct(f"{order}II").unpack_from
    while at + 8 <= end:
        kind, size = unpack(data, at)
        if kind >> 16:
            kind, size, begin, at = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            begin = at + 8
            at = begin + size + (0 if kind == _COMPRESSED else -size % 8)
        if begin + size > min(at, end):
            raise _DamagedError(f"{size} bytes where {end - begin} are left")
        yield kind, begin, begin + size


def _expect_arrays(data: bytes, order: str, parts: Iterator[_Part], count: int, depth: int = 0) -> None:
    """Look at so many arrays, structs and cells, which are all that stands there."""
    found = 0
    for kind, begin, end in parts:
        if kind != _MATRIX or depth > _DEEPEST:
            raise _DamagedError(f"type {kind} in depth {depth}")
        if begin < end:  # else it is empty
            _expect_matrix(data, order, begin, end, depth)
        found += 1
    if found != count:
        raise _DamagedError(f"{found} arrays in place of {count}")


def _expect_matrix(data: bytes, order: str, at: int, end: int, depth: int) -> None:
    parts = _parts(data, order, at, end)
    flags, shape, _ = (next(parts, (0, end, end)) for _ in range(3))
    if flags[0] != _UINT32 or shape[0] not in (_INT32, _UINT32) or shape[2] - shape[1] < 8:
        raise _DamagedError("no array")
    (word,) = struct.unpack_from(f"{order}I", data, flags[1])
    sizes = struct.unpack_from(f"{order}{(shape[2] - shape[1]) // 4}i", data, shape[1])
    count, kind = math.prod(sizes), word & 0xFF
    if min(sizes) < 0 or count > end - at:
        raise _DamagedError(f"an array shaped {sizes}")
    if kind == _CHAR or kind in _NUMBERS:
        values = [one[0] for one in parts]
        if len(values) != 1 + bool(word & _COMPLEX) or not _SIZES.keys() >= {*values}:
            raise _DamagedError(f"values of types {values}")
    elif kind in (_CELL, _STRUCT):
        names = _names(data, order, parts) if kind == _STRUCT else 1
        _expect_arrays(data, order, parts, count * names, depth + 1)
    else:
        raise _DamagedError(f"an array of class {kind}")


def _names(data: bytes, order: str, parts: Iterator[_Part]) -> int:
    """Return how many fields a struct has."""
    length, names = (next(parts, (0, 0, 0)) for _ in range(2))
    if length[0] != _INT32 or length[2] - length[1] != 4 or names[0] not in _SIZES:
        raise _DamagedError("a struct without fields")
    each: int = struct.unpack_from(f"{order}i", data, length[1])[0]
    if each < 1 or (names[2] - names[1]) % each:
        raise _DamagedError(f"fields of {each} letters")
    return (names[2] - names[1]) // each
