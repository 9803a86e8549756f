"""Numbered pieces of work, done ahead of time by other processes, or by threads where there is no torch."""

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.machine import keep_freed_memory, usable_cpus

T = TypeVar("T")
Work = Callable[[int, NDArray[Any]], T]
"""Does the piece of a number: fills the array and returns what else there is to say."""

_AHEAD = 2  # pieces that each worker has begun or finished before they are wanted


def in_order(
    work: Work[T], numbers: range, shape: tuple[int, ...], dtype: DTypeLike, workers: int
) -> Iterator[tuple[NDArray[Any], T]]:
    """Yield for each of `numbers`, in order, the array that `work` filled and what it returned.

    Parameters
    ----------
    work
        What to do.
    numbers
        Of the pieces.
    shape, dtype
        Of the arrays. They are used again: one is valid until the next is asked for.
    workers
        Number of processes; 0 to work in this one.
    """
    slots = _shared((1 if workers == 0 else workers * _AHEAD + 2, *shape), dtype)
    if workers == 0:
        for number in numbers:
            yield slots[0], work(number, slots[0])
        return
    from torch.utils.data import DataLoader  # what needs no processes needs no torch

    loader: Iterable[Any] = DataLoader(
        _Pieces(work, slots),  # type: ignore[arg-type]
        batch_size=None,
        sampler=numbers,
        num_workers=min(workers, max(len(numbers), 1)),
        prefetch_factor=_AHEAD,
        collate_fn=lambda result: result,
        worker_init_fn=_start,
        multiprocessing_context="fork",  # what the workers read is not copied
    )
    for number, result in zip(numbers, loader, strict=True):
        if isinstance(result, InputError):
            raise result
        yield slots[number % len(slots)], result


def in_threads(
    work: Work[T], numbers: range, shape: tuple[int, ...], dtype: DTypeLike
) -> Iterator[tuple[NDArray[Any], T]]:
    """Yield what `in_order` yields, without torch: one thread per core, for work in libraries like OpenCV."""
    threads = usable_workers()
    pending = deque[tuple[NDArray[Any], Future[T]]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for number in numbers:
                out = np.empty(shape, dtype)
                pending.append((out, pool.submit(work, number, out)))
                if len(pending) > threads:
                    out, done = pending.popleft()
                    yield out, done.result()
            while pending:
                out, done = pending.popleft()
                yield out, done.result()
        finally:
            for _, left in pending:
                left.cancel()


def usable_workers() -> int:
    """Return the number of cores that each training process on this machine has for workers."""
    return max(1, usable_cpus() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _shared(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array that forked processes share; unlike /dev/shm, no container limits its size."""
    memory = mmap.mmap(-1, max(prod(shape) * np.dtype(dtype).itemsize, 1))
    return np.frombuffer(memory, dtype, prod(shape)).reshape(shape)


class _Pieces(Generic[T]):
    """What the workers do; an `InputError` is handed back, as one that is raised there loses its form."""

    def __init__(self, work: Work[T], slots: NDArray[Any]) -> None:
        self.work, self.slots = work, slots

    def __getitem__(self, number: int) -> T | InputError:
        try:
            return self.work(number, self.slots[number % len(self.slots)])
        except InputError as error:
            return error


def _start(worker: int) -> None:
    cv2.setNumThreads(0)  # the workers themselves are what runs at the same time
    keep_freed_memory()
