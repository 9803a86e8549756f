"""`bitfactor predict` with a network that finds joints."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.atomic import replacing
from bitfactor.cli.output import print_json, print_table, status
from bitfactor.cli.sources import is_video, targets_of
from bitfactor.cli.video import Video, written_video
from bitfactor.errors import InputError
from bitfactor.pictures import read_picture
from bitfactor.pose.draw import draw_skeleton
from bitfactor.pose.finder import Box, PoseFinder
from bitfactor.runtime import Session

Pose = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass
class _Work:
    """Finds joints in pictures and frames, and keeps count of them and of the time."""

    finder: PoseFinder
    box: Box | None
    frames: int = 0
    finding: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def find(self, picture: NDArray[np.uint8], path: Path) -> Pose:
        if self.box is not None:
            _expect_inside(self.box, picture, path)
        before = time.perf_counter()
        pose = self.finder(picture, self.box)
        self.finding += time.perf_counter() - before
        self.frames += 1
        return pose

    def draw(self, picture: NDArray[np.uint8], pose: Pose) -> NDArray[np.uint8]:
        return draw_skeleton(picture, *pose, self.finder.skeleton)

    def rates(self) -> dict[str, float]:
        """Return frames per second: over all, and of crop, network and decoding alone."""
        total = time.perf_counter() - self.started
        return {
            "frames_per_second": self.frames / total,
            "network_frames_per_second": self.frames / self.finding,
        }


def predict_pose(
    session: Session, sources: Sequence[Path], box: Box | None, output: Path | None, as_json: bool
) -> None:
    """Print the joints of each picture and video, and draw them if `output` says where."""
    work = _Work(PoseFinder.of(session.model, session), box)
    targets: Sequence[Path | None] = [None] * len(sources) if output is None else targets_of(sources, output)
    results = []
    for source, target in zip(sources, targets, strict=True):
        predict = _video if is_video(source) else _picture
        results.append(predict(work, source, target) | ({} if target is None else {"drawing": str(target)}))
    if as_json:
        print_json({"poses": results, **work.rates()})
    else:
        print_table(("picture", "confidence", "least sure", "drawing"), map(_row, results))
        rates = work.rates()
        print(
            f"{work.frames} {'frame' if work.frames == 1 else 'frames'}, "
            f"{rates['frames_per_second']:.1f} frames per second "
            f"({rates['network_frames_per_second']:.1f} without reading, drawing and writing)"
        )


def _picture(work: _Work, path: Path, target: Path | None) -> dict[str, Any]:
    picture = read_picture(path, channels=3)
    pose = work.find(picture, path)
    if target is not None:
        _write(target, work.draw(picture, pose))
    return {"picture": str(path), "joints": _joints(work, pose)}


def _video(work: _Work, path: Path, target: Path | None) -> dict[str, Any]:
    video = Video.open(path)
    poses = []
    with status.status(f"{path}"):
        if target is None:
            poses = [work.find(frame, path) for frame in video.frames()]
        else:
            with written_video(target, video.rate, video.size) as writer:
                for frame in video.frames():
                    poses.append(work.find(frame, path))
                    writer.write(work.draw(frame, poses[-1]))
    return {"video": str(path), "frames": [_joints(work, pose) for pose in poses]}


def _joints(work: _Work, pose: Pose) -> list[dict[str, Any]]:
    return [
        {"joint": name, "x": float(x), "y": float(y), "confidence": float(sure)}
        for name, (x, y), sure in zip(work.finder.skeleton.joints, *pose, strict=True)
    ]


def _row(result: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return the cells of a picture, or of a video, whose joints are averaged over its frames."""
    frames = result["frames"] if "frames" in result else [result["joints"]]
    sure = np.array([[joint["confidence"] for joint in frame] for frame in frames]).mean(0)
    least = int(sure.argmin())
    return (
        result.get("picture") or result["video"],
        f"{sure.mean():.2f}",
        f"{frames[0][least]['joint']} {sure[least]:.2f}",
        result.get("drawing", "none: name an --output"),
    )


def _write(path: Path, picture: NDArray[np.uint8]) -> None:
    known, data = cv2.imencode(path.suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    assert known
    with replacing(path) as temporary:
        temporary.write_bytes(data.tobytes())


def _expect_inside(box: Box, picture: NDArray[np.uint8], path: Path) -> None:
    left, top, width, height = box
    if left >= picture.shape[1] or top >= picture.shape[0] or left + width <= 0 or top + height <= 0:
        raise InputError(
            f"--box for {path}",
            expected=f"a box that meets the picture, {picture.shape[1]} x {picture.shape[0]} pixels",
            found=",".join(f"{value:g}" for value in box),
            fix="give left, top, width and height in pixels",
        )
