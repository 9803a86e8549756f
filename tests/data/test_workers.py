"""Workers return results in order, and errors as this process would."""

import itertools
import os

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.data.readers.workers import in_order, usable_workers


def square(number, out):
    out[:] = number**2
    return os.getpid()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_results_come_in_order(workers):
    processes = set()
    for number, (array, process) in zip(
        range(4, 60), in_order(square, range(4, 60), (3,), np.int64, workers), strict=True
    ):
        assert array.tolist() == [number**2] * 3
        processes.add(process)
    assert len(processes) == max(workers, 1)
    assert (os.getpid() in processes) == (workers == 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_unusable_input_is_said_by_a_worker_as_by_this_process(workers):
    def work(number, out):
        if number == 3:
            raise InputError("x", expected="a", found="b", fix="c")

    results = in_order(work, range(9), (1,), np.uint8, workers)
    assert [result for _, result in itertools.islice(results, 3)] == [None] * 3
    with pytest.raises(InputError, match=r"^x: expected a, found b; c$"):
        next(results)


def test_nothing_to_do():
    assert not list(in_order(square, range(0), (3,), np.uint8, 2))


def test_processes_of_one_machine_share_its_cores(monkeypatch):
    cores = usable_workers()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert usable_workers() == max(1, cores // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert usable_workers() == 1
