"""A pickle of arrays is read, and nothing in it is ever run."""

import os
import pickle

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.data.readers.cifar import read_pickled


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL))
def test_arrays_and_plain_values(protocol):
    content = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], b"name": b"x"}
    read = read_pickled(pickle.dumps(content, protocol=protocol), "file")
    np.testing.assert_array_equal(read["data"], content[b"data"])
    assert read["labels"] == [1, 2]
    assert read["name"] == b"x"


def test_as_python_2_wrote_it():
    old = (
        b"\x80\x02}q\x00(U\x04dataq\x01cnumpy.cor"
        b"e.multiarray\n_reconstruc"
        b"t\nq\x02cnumpy\nndarray\nq\x03K\x00\x85"
        b"q\x04U\x01bq\x05\x87q\x06Rq\x07(K\x01K\x02\x85q\x08cnu"
        b"mpy\ndtype\nq\tU\x02u1q\nK\x00K\x01\x87q"
        b"\x0bRq\x0c(K\x03U\x01|q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff"
        b"\xffK\x00tq\x0eb\x89U\x02\xfe\x01q\x0ftq\x10bu."
    )
    np.testing.assert_array_equal(read_pickled(old, "file")["data"], np.array([254, 1], np.uint8))


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_what_a_pickle_could_run_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"it asks for posix\.mkdir"):
        read_pickled(pickle.dumps({"data": Harm()}), "file")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("data", "found"),
    [(b"", "an empty file"), (b"hello", "cannot be read"), (pickle.dumps([1]), "a pickled list")],
)
def test_other_content(data, found):
    with pytest.raises(
        InputError, match=rf"^batch: expected a pickled dictionary of arrays, found .*{found}"
    ):
        read_pickled(data, "batch")


def test_every_truncation_is_named():
    whole = pickle.dumps({"data": np.arange(40, dtype=np.uint8)}, protocol=2)
    for size in range(len(whole) - 1):
        with pytest.raises(InputError):
            read_pickled(whole[:size], "batch")
