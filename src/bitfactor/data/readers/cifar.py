"""The files of CIFAR-10 and CIFAR-100, official python version (Krizhevsky 2009), read without torch.

The scans of handwritten digits that come with scikit-learn (Alpaydin & Kaynak 1998), without torch.
"""

import io
import pickle
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.data.readers.files import existing

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # before and since numpy 2


class _Dtype:
    """What a pickle says of numbers. numpy's own class believes all of it, and may end the process."""

    def __init__(self, code: bytes | str, *_: Any) -> None:
        self.code, self.order = _text(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])


class _Array:
    """What a pickle says of an array, in place of numpy's own class."""

    value: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, content = state
        if not re.fullmatch("[biuf][1248]", dtype.code):
            raise pickle.UnpicklingError(f"an array of {dtype.code}")
        kind = np.dtype(dtype.order + dtype.code)
        self.value = np.frombuffer(content, kind).reshape(shape, order="F" if by_columns else "C").copy()


_ARRAY_PARTS = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype}


def _text(word: bytes | str) -> str:
    return word.decode() if isinstance(word, bytes) else word


class _ArrayUnpickler(pickle._Unpickler):
    """Knows plain types and numpy arrays, nothing else.

    It is Python's own in Python: that in C allocates what a pickle says of its number of objects.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the function or class that a pickle asks for, if it can only build arrays."""
        if module in _MULTIARRAY and name == "_reconstruct":
            return lambda *_: _Array()
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode("latin1")
        if (module, name) in _ARRAY_PARTS:
            return _ARRAY_PARTS[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_pickled(data: bytes, where: object) -> dict[str, Any]:
    """Return the dictionary of plain values and arrays that `data` holds; keys of bytes become strings.

    `where` names the file in the error.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
        if isinstance(content, dict):
            content = {_key(key): getattr(one, "value", one) for key, one in content.items()}
    except Exception as error:  # a damaged pickle can raise anything
        raise _bad_pickle(
            where, f"a file that cannot be read ({error})" if data else "an empty file"
        ) from error
    if not isinstance(content, dict):
        raise _bad_pickle(where, f"a pickled {type(content).__name__}")
    return content


def _key(key: object) -> str:
    return str(key, "utf8", "replace") if isinstance(key, bytes) else str(key)


def _bad_pickle(where: object, found: str) -> InputError:
    return InputError(
        where, expected="a pickled dictionary of arrays", found=found, fix="download and unpack it again"
    )


SIDE = 32

Pixels = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels (N, 3072), all red ones first, then green, then blue, and labels (N,)."""


@dataclass(frozen=True)
class CifarLayout:
    """Where the official version of a data set keeps what, and the colours of its training images."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    names: str
    name_key: str
    label_key: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def is_in(self, directory: Path) -> bool:
        """Return whether `directory` holds the files, their directory or the archive."""
        places = (f"{self.folder}/{self.names}", self.archive, self.names)
        return any((directory / place).is_file() for place in places)


CIFAR10 = CifarLayout(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    names="batches.meta",
    name_key="label_names",
    label_key="labels",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

CIFAR100 = CifarLayout(
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    names="meta",
    name_key="fine_label_names",
    label_key="fine_labels",
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


@dataclass(frozen=True)
class CifarFiles:
    """The files of one of the data sets; `read` returns the bytes of one by name, `where` they lie."""

    layout: CifarLayout
    read: Callable[[str], bytes]
    where: Path

    @classmethod
    def at(cls, directory: Path | None, layout: CifarLayout) -> Self:
        """Find the files: in `directory`, in their directory below it, or in the archive as downloaded."""
        source = "get the python version from https://www.cs.toronto.edu/~kriz/cifar.html"
        if directory is None or directory.name != layout.archive:
            expected = f"the directory that holds {layout.folder}/"
            directory = existing(directory, expected, f"{source} and name its place")
        for folder in (directory / layout.folder, directory):
            if (folder / layout.names).is_file():
                return cls(layout, partial(_read_file, folder), folder)
        archive = directory if directory.name == layout.archive else directory / layout.archive
        if archive.is_file():
            return cls(layout, _archived(archive, layout), archive)
        expected, fix = f"{layout.folder}/ or {layout.archive}", f"{source} and unpack it there"
        raise InputError(directory, expected=expected, found="neither", fix=fix)

    def labels(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        where = f"{self.where}/{self.layout.names}"
        names = read_pickled(self.read(self.layout.names), where).get(self.layout.name_key)
        if not isinstance(names, list) or not names:
            raise _bad(where, "no names of classes")
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)

    def batch(self, file: str, classes: int) -> Pixels:
        """Return pixels and labels of one of the files."""
        where = f"{self.where}/{file}"
        content = read_pickled(self.read(file), where)
        pixels, labels = content.get("data"), np.asarray(content.get(self.layout.label_key, []))
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
            raise _bad(where, "no pixels")
        if pixels.shape != (len(labels), 3 * SIDE**2) or not len(labels):
            raise _bad(where, f"pixels of shape {pixels.shape} with {len(labels)} labels")
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
            raise _bad(where, f"labels other than 0 to {classes - 1}")
        return pixels, labels.astype(np.int64)

    def test(self, classes: int) -> Pixels:
        """Return the test images."""
        return self.batch(self.layout.test, classes)

    def train(self, classes: int) -> Pixels:
        """Return all training images."""
        batches = [self.batch(file, classes) for file in self.layout.train]
        pixels, labels = (np.concatenate(columns) for columns in zip(*batches, strict=True))
        return pixels, labels


def without_last_tenth(images: Pixels) -> tuple[Pixels, Pixels]:
    """Return the first nine tenths of the images and the last one, which is for validation."""
    pixels, labels = images
    kept = len(labels) - len(labels) // 10
    return (pixels[:kept], labels[:kept]), (pixels[kept:], labels[kept:])


def _read_file(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _bad(folder / name, error.strerror or str(error)) from error


def _archived(archive: Path, layout: CifarLayout) -> Callable[[str], bytes]:
    wanted = {f"{layout.folder}/{name}": name for name in (*layout.train, layout.test, layout.names)}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name in wanted else None
                if file is not None:
                    found[wanted[member.name]] = file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise _bad(archive, f"an archive that cannot be read ({error})") from error

    def read(name: str) -> bytes:
        if name not in found:
            raise _bad(f"{archive}/{name}", "no such file")
        return found[name]

    return read


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where,
        expected="a file of CIFAR's python version",
        found=found,
        fix="get it again from https://www.cs.toronto.edu/~kriz/cifar.html",
    )


TEST_NAME = "test images (scikit-learn's digits)"


@dataclass(frozen=True)
class Scans:
    """All digits: `images` (N, 8, 8) of 0..1, bright on a dark ground, and `classes` (N,), 0 to 9.

    `train` and `test` are indices of 80 % and 20 %, with the classes equally often, the same every time.
    """

    images: NDArray[np.float32]
    classes: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


@cache
def read_scans() -> Scans:
    """Read the scans and split them."""
    datasets = imported("sklearn.datasets", "digits", "train")
    selection = imported("sklearn.model_selection", "digits", "train")
    pixels, classes = datasets.load_digits(return_X_y=True)
    train, test = selection.train_test_split(
        range(len(classes)), test_size=0.2, random_state=0, stratify=classes
    )
    images = np.asarray(pixels / 16, np.float32).reshape(-1, 8, 8)
    return Scans(images, np.asarray(classes, np.int64), np.array(train), np.array(test))


def expect_no_directory(directory: Path | None) -> None:
    """Raise InputError where a directory of data is named, since the digits need none."""
    expected = "none: the digits come with scikit-learn"
    expect_that(directory is None, "--data", expected=expected, found=directory, fix="leave it out")
