"""SIGTERM, by which schedulers announce that a machine is wanted back."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TerminatedError(Exception):
    """A run was asked to stop, and did so after a step, with a checkpoint written."""


class Request:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.made = False

    def make(self, number: int, frame: FrameType | None) -> None:
        """Note it; a signal handler."""
        self.made = True


@contextmanager
def noting_sigterm() -> Iterator[Request]:
    """Turn SIGTERM into a request that can be read between two steps; only the main thread can."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = signal.signal(signal.SIGTERM, request.make)
    try:
        yield request
    finally:
        signal.signal(signal.SIGTERM, before)
