"""Annotated instances, whatever data set they are from, and crops of them: what a worker makes of a few.

Reading the files in which annotations and predictions are published: .mat, .h5 and .json. Whether a Matlab
file of version 5 to 7 is built as the format says is looked at before scipy reads it. That ends the process
where a type of values is none, and allocates what an array says of its size.
"""

import errno
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import check_fields, expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.common.image_spec import Skeleton
from bitfactor.data.readers.files import is_inside
from bitfactor.pose import crop_matrix, transform, warp
from bitfactor.pose.images import exif_orientation, read_image


@dataclass(frozen=True)
class Instances:
    """N instances with J keypoints each, in pixels of their images; pixel centres stand at whole numbers.

    Parameters
    ----------
    images : N paths
        The file that shows each of them.
    centre : (N, 2), side : (N,)
        The square that is cropped, by its middle (x, y) and its side.
    keypoints : (N, J, 2)
        x and y; what stands there for a keypoint without label means nothing.
    labelled : (N, J)
        Which keypoints are known. Keypoints that are hidden behind something but annotated are.
    norm : (N,)
        The length by which errors are measured; NaN where it is not known, and then nothing is measured.
    annotated
        Image -> (height, width) that its annotations are for, or None where they do not tell.
    """

    images: tuple[Path, ...]
    centre: NDArray[np.float64]
    side: NDArray[np.float64]
    keypoints: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float64]
    annotated: Mapping[Path, tuple[int, int] | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def take(self, chosen: Sequence[int] | NDArray[np.integer] | range | slice) -> "Instances":
        """Return some of them, in the order given."""
        index = np.arange(len(self))[chosen]
        return Instances(
            tuple(self.images[i] for i in index),
            self.centre[index],
            self.side[index],
            self.keypoints[index],
            self.labelled[index],
            self.norm[index],
            self.annotated,
        )

    def pixels(self, person: int, images: "Images") -> NDArray[np.uint8]:
        """Return the image of an instance, out of decoded ones by path; it is to be as annotated."""
        path = self.images[person]
        image = images[path]
        self.expect_as_annotated(path, image.shape[:2])
        return image

    def expect_as_annotated(self, image: Path, size: tuple[int, int]) -> None:
        """Raise InputError if an image of this (height, width), as it is seen, is another than annotated.

        Where the file says that it is to be turned, only its size can tell that annotations are of the turned
        image.
        """
        if image not in self.annotated:
            return
        told, turn = self.annotated[image], orientation(image)
        told_turned = told is not None and turn >= _QUARTER and size[0] != size[1]
        if told in (None, size) and (turn == 1 or told_turned):
            return
        turned_as = "an image that EXIF turns, which its annotations may be for or not"
        seen = f"{size[1]} x {size[0]} pixels"
        raise InputError(
            image,
            expected=f"{told[1]} x {told[0]} pixels, as annotated" if told else "an image as it is stored",
            found=f"{seen}, {turned_as}" if turn != 1 else seen,
            fix="save it turned and without EXIF, and correct its annotations",
        )

    def check(self, where: object) -> "Instances":
        """Return these instances if they can be trained on; `where` they are from is named in the error."""
        labelled = self.labelled
        if not len(self) or not labelled.any():
            raise _bad(where, "nobody with a labelled keypoint")
        sound = np.isfinite(self.centre).all(1) & np.isfinite(self.side) & (self.side > 0)
        sound &= (np.isfinite(self.keypoints).all(2) | ~labelled).all(1)
        if not sound.all():
            person = int(np.flatnonzero(~sound)[0])
            raise _bad(where, f"no finite box or keypoints for person {person} in {self.images[person].name}")
        return self


_QUARTER = 5  # and above: EXIF's orientations that turn by a quarter
_HEADER = 1 << 17  # bytes, in which EXIF stands
_MOST_BYTES = 1 << 30  # of an array of HDF5, whose file need not hold them, or of a packed one of Matlab


def orientation(image: Path) -> int:
    """Return how EXIF says that a file's image is to be turned, from 1, as it is, to 8."""
    with image.open("rb") as file:
        head = file.read(_HEADER)
        whole = head[:4] in (b"\x89PNG", b"RIFF", b"II*\0", b"MM\0*")  # which have it anywhere
        return exif_orientation(head + file.read() if whole else head)


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="annotated instances", found=found, fix="restore the file or give another"
    )


def image_path(images: Path, name: str, where: object) -> Path:
    """Return the path of an image by its name in annotations, which may not lead out of their directory."""
    path = images / name
    if not is_inside(path, images):
        raise _bad(where, f"an image outside of {images}: {name}")
    return path


def read_mat(path: Path) -> dict[str, Any]:
    """Return the variables of a Matlab file; structs become objects with a field per name."""
    io = imported("scipy.io", path, "pose")
    try:
        content = path.read_bytes()
        expect_sound(content, path)
        variables = io.loadmat(BytesIO(content), struct_as_record=False, squeeze_me=False)
    except InputError:
        raise
    except NotImplementedError as error:  # what scipy says to Matlab 7.3, which is HDF5
        raise _unreadable(
            path, "a Matlab file of version 7.3", "save it with -v7, or give it the ending .h5"
        ) from error
    except Exception as error:  # a damaged file raises nearly anything
        raise unreadable(path, error) from error
    return {name: value for name, value in variables.items() if not name.startswith("__")}


def read_h5(path: Path) -> dict[str, Any]:
    """Return the arrays at the top of an HDF5 file."""
    h5py = imported("h5py", path, "pose")
    try:
        with h5py.File(path, "r") as file:
            arrays = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
            most = max((item.nbytes for item in arrays.values()), default=0)
            expect_that(most <= _MOST_BYTES, path, expected=f"arrays of {_MOST_BYTES} bytes", found=most)
            return {name: np.asarray(item) for name, item in arrays.items()}
    except InputError:
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise unreadable(path, error) from error


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


READERS = {".mat": read_mat, ".h5": read_h5, ".hdf5": read_h5, ".json": read_json}


def read(path: Path) -> Any:
    """Read a file by its ending.

    Raises
    ------
    InputError
        If the ending is another, or the file cannot be read.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        expect_file(path)
        endings = ", ".join(READERS)
        raise InputError(
            path, expected=f"a file that ends in {endings}", found=repr(path.suffix), fix="give another"
        )
    return reader(path)


def expect_file(path: Path) -> None:
    """Raise InputError, which says what is there instead, unless `path` is a file."""
    if not path.is_file():
        raise InputError(
            path,
            expected="a file",
            found="a directory" if path.is_dir() else os.strerror(errno.ENOENT),
            fix="give another",
        )


def need(content: Any, names: tuple[str, ...], where: object) -> tuple[Any, ...]:
    """Return the entries `names` of a file's content."""
    held = list(content) if isinstance(content, Mapping) else []
    missing = [name for name in names if name not in held]
    if missing:
        found = f"no {missing[0]!r} but {', '.join(map(repr, held[:8])) or 'something else'}"
        raise InputError(where, expected=f"a file with {', '.join(names)}", found=found, fix="give another")
    return tuple(content[name] for name in names)


def unreadable(path: Path, error: Exception) -> InputError:
    """Return the error for a file that cannot be read."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120] or type(error).__name__
    return _unreadable(path, f"one that cannot be ({reason})", "restore the file or give another")


def _unreadable(path: Path, found: str, fix: str) -> InputError:
    return InputError(path, expected=f"a {path.suffix.lower()} file that can be read", found=found, fix=fix)


Indices = NDArray[np.integer]


@dataclass(frozen=True)
class CropMovement:
    """How instances are moved at random in their crops: drawn uniformly, and half of them mirrored.

    Parameters
    ----------
    rotation
        Degrees to either side.
    zoom
        Largest fraction, below 1, by which a person grows or shrinks.
    mirror
        Whether half of the instances are mirrored.
    """

    rotation: float = 30.0
    zoom: float = 0.3
    mirror: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        turned = 0 <= self.rotation <= 180
        expect_that(turned, "--rotation", expected="0 to 180 degrees", found=self.rotation)
        expect_that(0 <= self.zoom < 1, "--zoom", expected="0 or more, and below 1", found=self.zoom)

    def __call__(self, seed: int, epoch: int, person: int) -> tuple[float, float, bool]:
        """Draw scale, rotation in degrees and whether to mirror; it depends on the three numbers alone."""
        scale, rotation, mirror = np.random.default_rng((seed, epoch, person)).random(3).tolist()
        return (
            1 + self.zoom * (2 * scale - 1),
            self.rotation * (2 * rotation - 1),
            self.mirror and mirror < 0.5,
        )


PAPER = CropMovement()


@dataclass(frozen=True)
class Images:
    """Decoded images by path, RGB; with `keep` they stay in memory."""

    keep: bool
    _kept: dict[Path, NDArray[np.uint8]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, path: Path) -> NDArray[np.uint8]:
        if path in self._kept:
            return self._kept[path]
        image = read_image(path, channels=3)
        if self.keep:
            self._kept[path] = image
        return image

    def fill(self, instances: Instances) -> None:
        """Decode the images that are kept: at once, so that they lie close together in memory."""
        for path in instances.images if self.keep else ():
            self[path]


@dataclass(frozen=True)
class Labelled:
    """Keypoints of n crops or persons (n, J, 2), in pixels; which are labelled (n, J); the norm (n,)."""

    keypoints: NDArray[Any]
    labelled: NDArray[np.bool_]
    norm: NDArray[Any]


@dataclass(frozen=True)
class Crops:
    """Fills an array (at least n, size, size, 3) of bytes with the crops of a batch, by its number.

    `batches` lists the instances of each batch. They are moved by `movement` as the `key` (seed, epoch) says,
    or stand as they are without one.
    """

    instances: Instances
    skeleton: Skeleton
    size: int
    images: Images
    batches: Sequence[Indices] | Indices
    movement: CropMovement
    key: tuple[int, int] | None

    def __call__(self, number: int, crops: NDArray[np.uint8]) -> Labelled:
        """Return where the keypoints are in these crops."""
        chosen, keypoints = self.batches[number], len(self.skeleton.keypoints)
        found = Labelled(
            np.zeros((len(chosen), keypoints, 2), np.float32),
            np.empty((len(chosen), keypoints), bool),
            np.empty(len(chosen), np.float32),
        )
        for i, person in enumerate(chosen):
            matrix, flip, scale = self._map(int(person))
            crops[i] = warp(self.instances.pixels(int(person), self.images), matrix, self.size)
            order = list(self.skeleton.flipped) if flip else slice(None)
            found.labelled[i] = self.instances.labelled[person][order]
            found.keypoints[i] = transform(self.instances.keypoints[person][order], matrix)
            found.norm[i] = self.instances.norm[person] * scale
        found.keypoints[~found.labelled] = 0
        return found

    def _map(self, person: int) -> tuple[NDArray[np.float64], bool, float]:
        """Return the matrix of a person's crop, whether it mirrors, and crop pixels per image pixel."""
        zoom, rotation, flip = (1.0, 0.0, False) if self.key is None else self.movement(*self.key, person)
        side = self.instances.side[person] / zoom
        matrix = crop_matrix(self.instances.centre[person], side, self.size, rotation, flip)
        return matrix, flip, self.size / side


_SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_INT32, _UINT32, _MATRIX, _COMPRESSED = 5, 6, 14, 15
_CELL, _STRUCT, _CHAR, _NUMBERS = 1, 2, 4, range(6, 16)
_COMPLEX = 0x800
_MATLAB_HEADER = 128
_DEEPEST = 50

_Part = tuple[int, int, int]  # type, begin and end


class _DamagedError(Exception):
    pass


def expect_sound(content: bytes, where: object) -> None:
    """Raise InputError where a part of the file reaches beyond it, or is of no type that annotations need."""
    version = content[124 + (content[126:127] == b"I") :][:1]
    if version != b"\1" or 0 in content[:4]:  # another version, of which scipy takes care
        return
    order = "<" if content[126:_MATLAB_HEADER] == b"IM" else ">"
    try:
        for kind, begin, end in _parts(content, order, _MATLAB_HEADER, len(content)):
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
