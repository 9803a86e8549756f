"""Decoded images, kept on disk between epochs and between runs: a JPEG is decoded once.

A file has a record for each image of a store, all of one length. It has a digest that tells the encoded image
(its name, its size, when it was last changed), height, width, a checksum, and the pixels. A record with
another digest or checksum counts for nothing. So no write has to be whole, and none needs a lock: two
processes that write the same record write the same bytes. The system keeps what was read in the memory that
it has to spare.
"""

import os
import shutil
import struct
import warnings
import weakref
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.data.readers.files import Store, VanishedError

Image = NDArray[np.uint8]

_HEAD = struct.Struct("<16sIII")  # digest of the encoded image, height, width, checksum of all else
_SUFFIX = ".pixels"
_GIB = 1 << 30


class KeptImages:
    """Images as they were decoded, each of at most `pixels` pixels of three channels; see `decoded_image`."""

    def __init__(self, path: Path, images: int, pixels: int) -> None:
        self.path, self.record = path, _record_bytes(pixels)
        self.size = images * self.record
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self._file)
        os.utime(self._file)  # what was used last is removed last
        if os.fstat(self._file).st_size < self.size:
            os.ftruncate(self._file, self.size)

    def __call__(self, index: int, version: bytes, decode: Callable[[], Image]) -> Image:
        """Return an image of the store, (H, W, 3); `version` tells its encoded image from a later one."""
        found = self._read(index, version)
        if found is not None:
            return found
        image = decode()
        head = version, image.shape[0], image.shape[1]
        pixels = image.tobytes()
        record = _HEAD.pack(*head, _checksum(*head, pixels)) + pixels
        with suppress(OSError):  # as of a full disk: the next epoch decodes it again
            os.pwrite(self._file, record, index * self.record)
        return image

    def _read(self, index: int, version: bytes) -> Image | None:
        record = bytearray(self.record)
        os.preadv(self._file, [record], index * self.record)
        digest, height, width, checksum = _HEAD.unpack_from(record)
        pixels = memoryview(record)[_HEAD.size : _HEAD.size + 3 * height * width]
        if digest != version or checksum != _checksum(digest, height, width, pixels):
            return None
        return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def _checksum(digest: bytes, height: int, width: int, pixels: bytes | memoryview) -> int:
    return zlib.crc32(pixels, zlib.crc32(_HEAD.pack(digest, height, width, 0)))


def _record_bytes(pixels: int) -> int:
    return _HEAD.size + 3 * pixels


def decoded_image(
    store: Store,
    index: int,
    kept: KeptImages | None,
    decode: Callable[[bytes, str], Image],
    corrupt: list[tuple[str, str]],
) -> Image | None:
    """Return an image of a store: as it was kept, else what `decode` makes of its bytes and its name.

    One that cannot be read is None, and its name and the reason are added to `corrupt`.
    """

    def fresh() -> Image:
        return decode(store.read(index)[0], store.name(index))

    try:
        return fresh() if kept is None else kept(index, store.version(index), fresh)
    except VanishedError:
        raise
    except (OSError, InputError) as error:
        corrupt.append((store.name(index), str(error)))
        return None


def keep_images(directory: Path, parts: dict[str, tuple[Store, int]], limit: float) -> dict[str, KeptImages]:
    """Return where the images of some stores are kept, of so many pixels each, together at most `limit` GiB.

    The files of other stores that were used the longest ago are removed where all together are more. Nothing
    is kept where these images alone need more, the disk has less left or the directory cannot be written. The
    result is empty then, and a warning says why.
    """
    needed = {
        directory / f"{part}-{store.digest()}-{pixels}{_SUFFIX}": (part, len(store), pixels)
        for part, (store, pixels) in parts.items()
    }
    sizes = {path: images * _record_bytes(pixels) for path, (_, images, pixels) in needed.items()}
    size = sum(sizes.values())
    if size > limit * _GIB:
        return _unkept(f"decoded images need {size / _GIB:.2g} GiB, more than --decoded-cache {limit:g}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        others = [path for path in directory.glob(f"*{_SUFFIX}") if path not in sizes]
        _remove_oldest(others, int(limit * _GIB) - size)
        written = sum(path.stat().st_blocks * 512 for path in sizes if path.exists())
        if size - written > shutil.disk_usage(directory).free:
            return _unkept(f"decoded images need {size / _GIB:.2g} GiB, more than {directory} has left")
        return {part: KeptImages(path, images, pixels) for path, (part, images, pixels) in needed.items()}
    except OSError:
        return _unkept(f"{directory} cannot be written")


def _unkept(why: str) -> dict[str, KeptImages]:
    warnings.warn(f"{why}: each epoch decodes its images", stacklevel=4)
    return {}


def _remove_oldest(files: list[Path], most: int) -> None:
    """Remove the files that were used the longest ago, until the others have at most so many bytes."""
    left, found = 0, []
    for file in files:
        with suppress(FileNotFoundError):  # another process removes some too
            found.append((file.stat(), file))
    for status, file in sorted(found, key=lambda one: one[0].st_mtime, reverse=True):
        left += status.st_size
        if left > most:
            file.unlink(missing_ok=True)
