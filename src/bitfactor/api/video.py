"""Videos, frame by frame."""

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing

Frame = NDArray[np.uint8]

_CODECS = {".mp4": "mp4v", ".avi": "MJPG"}
_USUAL_RATE = 25.0


@dataclass(frozen=True)
class Video:
    """A video file: frames per second, and frames of `size` (width, height)."""

    path: Path
    rate: float
    size: tuple[int, int]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Look at the video at `path`."""
        if not path.exists():
            raise _bad(path, "no such file")
        with _capture(path) as capture:
            known, frame = capture.read()
            rate = capture.get(cv2.CAP_PROP_FPS)
        if not known:
            raise _bad(path, "data that cannot be decoded (damaged, or no video)")
        height, width = frame.shape[:2]
        return cls(path, rate if math.isfinite(rate) and rate > 0 else _USUAL_RATE, (width, height))

    def frames(self) -> Iterator[Frame]:
        """Yield the frames, (H, W, 3) RGB."""
        with _capture(self.path) as capture:
            while True:
                known, frame = capture.read()
                if not known:
                    return
                yield np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), np.uint8)


@contextmanager
def written_video(path: Path, rate: float, size: tuple[int, int]) -> Iterator[Callable[[Frame], object]]:
    """Yield what appends a frame, (H, W, 3) RGB, to a video at `path`, .mp4 or .avi.

    It appears when all frames are written.
    """
    with replacing(path) as temporary, tempfile.TemporaryDirectory(dir=temporary.parent) as folder:
        # OpenCV tells the format by the name, and the temporary name says nothing.
        whole = Path(folder) / f"video{path.suffix.lower()}"
        writer = cv2.VideoWriter(
            str(whole), cv2.VideoWriter.fourcc(*_CODECS[path.suffix.lower()]), rate, size
        )
        try:
            if not writer.isOpened():
                raise OSError(f"OpenCV cannot write {path.suffix} here")
            yield lambda frame: writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        finally:
            writer.release()
        shutil.copyfile(whole, temporary)


@contextmanager
def _capture(path: Path) -> Iterator[cv2.VideoCapture]:
    capture = cv2.VideoCapture(str(path))
    try:
        yield capture
    finally:
        capture.release()


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path, expected="a video (MP4, AVI, ...)", found=found, fix="give a file that plays as a video"
    )
