"""Matlab files and HDF5: what would end the process, or take all memory, is refused before it is read."""

import io
import struct

import h5py
import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data.readers.instances import expect_sound, read_h5, read_mat

VALUES = {
    "number": 1.0,
    "bytes": np.ones((3, 4), np.uint8),
    "text": "ü€",
    "texts": np.array(["abc", "de"]),
    "cells": np.array(["a", 3, np.ones(3)], object),
    "structs": {"x": {"y": [1, 2, 3]}, "z": "t"},
    "many": np.array([(1, 2.0), (3, 4.0)], dtype=[("p", "O"), ("q", "O")]),
    "complex": np.ones(3) * 1j,
    "nothing": np.zeros((0, 3)),
    "truths": np.array([True, False]),
}


def written(value: object, **options: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, {"a": value}, **options)
    return file.getvalue()


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"format": "4"}], ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_what_scipy_writes(name, options):
    if options == {"format": "4"} and name in ("cells", "structs", "many", "text"):
        return  # which version 4 has not
    expect_sound(written(VALUES[name], **options), "a file")


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) >= 1
    return content.replace(old, new, 1)


def nested(depth: int) -> bytes:
    cell = np.empty((1, 1), object)
    cell[0, 0] = nested(depth - 1) if depth else 1.0
    return cell


ONES = written(np.ones((3, 5), np.int16))
CELLS, TEXT = written(VALUES["cells"]), written("abcdefgh")
DAMAGED = {
    "an unknown type of letters": replaced(TEXT, struct.pack("<II", 16, 8), struct.pack("<II", 99, 8)),
    "an unknown type of numbers": replaced(ONES, struct.pack("<II", 3, 30), struct.pack("<II", 0, 30)),
    "a size of gigabytes": replaced(CELLS, struct.pack("<ii", 1, 3), struct.pack("<ii", 958017837, 3)),
    "a size below 0": replaced(ONES, struct.pack("<ii", 3, 5), struct.pack("<ii", -3, 5)),
    "a part beyond the end": replaced(ONES, struct.pack("<II", 3, 30), struct.pack("<II", 3, 3000)),
    "cells in cells": written(nested(60)),
    "a function": replaced(ONES, struct.pack("<II", 10, 0), struct.pack("<II", 16, 0)),
    "an order of bytes that is none": replaced(TEXT, b"\0\1IM", b"\1\1XM"),
    "half of what is packed": written(np.ones(99), do_compression=True)[:-20] + bytes(20),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged(what, tmp_path):
    path = tmp_path / "a.mat"
    path.write_bytes(DAMAGED[what])
    with pytest.raises(InputError, match="expected a Matlab file of arrays, structs and cells"):
        read_mat(path)


def test_an_array_of_hdf5_that_says_that_it_is_gigabytes(tmp_path):
    """Its values were never written, so the file has some hundred bytes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("preds", (1 << 20, 1 << 10), "f8")
    with pytest.raises(InputError, match=r"a.h5: expected arrays of \d+ bytes"):
        read_h5(tmp_path / "a.h5")
