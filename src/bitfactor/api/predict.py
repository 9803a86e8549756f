"""`bitfactor.predict`: what a network says of images, folders and videos. Needs no torch."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bitfactor.api.video import Video, written_video
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing
from bitfactor.common.result import Result, text_table
from bitfactor.format import ModelFile
from bitfactor.pose.draw import draw_skeleton
from bitfactor.runtime import Session
from bitfactor.runtime.finder import Box, PoseFinder
from bitfactor.runtime.prediction import (
    Classification,
    Image,
    Keypoint,
    Pose,
    keypoints_of,
    name_of,
    pixels_of,
)
from bitfactor.runtime.zoo import locate

IMAGES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"))
VIDEOS = frozenset((".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"))
_WRITABLE_VIDEOS = frozenset((".mp4", ".avi"))


def is_video(source: object) -> bool:
    """Return whether a source is a file with the name of a video."""
    return isinstance(source, Path) and source.suffix.lower() in VIDEOS


def sources_of(paths: Sequence[Any]) -> list[Any]:
    """Return the files that `paths` name; a folder stands for the images and videos in it, by name.

    Raises
    ------
    InputError
        If there are none, or none in a folder.
    """
    if not paths:
        raise InputError(
            "bitfactor predict", expected="an image", found="none", fix="name one after the model"
        )
    return [
        source
        for path in paths
        for source in (_in_folder(path) if isinstance(path, Path) and path.is_dir() else [path])
    ]


def _in_folder(folder: Path) -> list[Path]:
    known = IMAGES | VIDEOS
    sources = sorted(p for p in folder.rglob("*") if p.suffix.lower() in known and _is_shown(p, folder))
    if not sources:
        raise InputError(
            folder,
            expected="a folder with images or videos, at any depth",
            found="no file with such a name",
            fix=f"names end in {', '.join(sorted(known))}",
        )
    return sources


def _is_shown(path: Path, folder: Path) -> bool:
    """Return whether a path in a folder is a file, and neither it nor a folder above it is hidden."""
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def targets_of(sources: Sequence[Any], output: Path) -> list[Path]:
    """Return the file that is made of each source.

    `output` is a file if its name ends as that of one and there is one source, else the folder in which each
    keeps its name; with another ending where that kind of file is not written.

    Raises
    ------
    InputError
        If two would be the same file, one would replace a source, or `output` is a file for several.
    """
    if output.suffix.lower() in IMAGES | VIDEOS and not output.is_dir():
        targets = [_single(sources, output)]
    else:
        targets = [output / _name(source, i) for i, source in enumerate(sources)]
    originals = {source.resolve() for source in sources if isinstance(source, Path)}
    for i, target in enumerate(targets):
        if target in targets[:i]:
            raise _bad(
                target, "a file for each image", "two images of that name", "rename one, or use two calls"
            )
        if target.resolve() in originals:
            raise _bad(target, "a new file", "an image to predict on", "choose another --output")
    return targets


def _single(sources: Sequence[Any], output: Path) -> Path:
    if len(sources) > 1:
        raise _bad(output, f"a folder for {len(sources)} images", "the name of a file", "name a folder")
    kinds = _WRITABLE_VIDEOS if is_video(sources[0]) else IMAGES
    if output.suffix.lower() not in kinds:
        raise _bad(output, f"a name that ends in {', '.join(sorted(kinds))}", output.name, "rename it")
    return output


def _name(source: Any, number: int) -> str:
    if not isinstance(source, Path):
        return f"{number}.png"
    written, otherwise = (_WRITABLE_VIDEOS, ".mp4") if is_video(source) else (IMAGES, ".png")
    return source.name if source.suffix.lower() in written else f"{source.stem}{otherwise}"


def _bad(target: Path, expected: str, found: str, fix: str) -> InputError:
    return InputError(f"--output {target}", expected=expected, found=found, fix=fix)


_Points = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class FilmedPose(Result):
    """The keypoints of the person in each frame of a video."""

    video: str
    frames: tuple[tuple[Keypoint, ...], ...]
    drawing: str | None = None


@dataclass(frozen=True)
class DrawnPose(Pose):
    """A pose, and the file that it was drawn to."""

    drawing: str | None = None


@dataclass(frozen=True)
class ClassPredictions(Result):
    """The most probable classes of several images."""

    images: tuple[Classification, ...]

    def __str__(self) -> str:
        rows = [[one.image, *(f"{c.label} {c.probability:.1%}" for c in one.classes)] for one in self.images]
        head = ["image", *(f"{i + 1}." for i in range(len(rows[0]) - 1))]
        return text_table(head, rows)


@dataclass(frozen=True)
class PosePredictions(Result):
    """The poses of several images and videos, and how many frames a second: over all, and without files."""

    poses: tuple[DrawnPose | FilmedPose, ...]
    frames_per_second: float
    network_frames_per_second: float

    def __str__(self) -> str:
        frames = sum(len(pose.frames) if isinstance(pose, FilmedPose) else 1 for pose in self.poses)
        table = text_table(["image", "confidence", "least sure", "drawing"], [_row(p) for p in self.poses])
        return (
            f"{table}\n{frames} {'frame' if frames == 1 else 'frames'}, "
            f"{self.frames_per_second:.1f} frames per second "
            f"({self.network_frames_per_second:.1f} without reading, drawing and writing)"
        )


@checked
def predict(
    model: str | os.PathLike[str] | Session,
    images: Image | Iterable[Image],
    *,
    top: int = 3,
    output: str | os.PathLike[str] | None = None,
    box: Box | None = None,
) -> ClassPredictions | PosePredictions:
    """Classify images with an exported network, or find the keypoints of the person in each and draw them.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`; in Python also a session.
    images
        Images of any size, folders of them at any depth; for poses also videos. In Python also arrays
        (H, W, 3) of uint8.
    top
        For classes: how many to show.
    output
        For poses: where the drawings go, a folder, or a file for one image or video.
    box
        For poses: left, top, width and height of the person in pixels; the whole image if left out.

    Raises
    ------
    InputError
        If an image cannot be read, or the file does not say how images are prepared.

    Example
    -------
    >>> print(predict("cifar10-resnet18", "photos/"))
    """
    session = model if isinstance(model, Session) else Session(locate(str(model)))
    if top < 1:
        raise InputError("top", expected="1 or more", found=str(top), fix="name how many classes to tell")
    if isinstance(images, str | os.PathLike | np.ndarray):
        images = [images]
    paths = [Path(image) if not isinstance(image, np.ndarray) else image for image in images]
    sources = sources_of(paths)
    if session.model.skeleton is not None:
        return _poses(session, sources, output, box)
    for name, value in {"--output": output, "--box": box}.items():
        if value is not None:
            raise InputError(
                name,
                expected="a network that finds keypoints",
                found="one that classifies",
                fix="leave it out",
            )
    for source in sources:
        if is_video(source):
            raise InputError(source, expected="an image", found="a video", fix="leave it out")
    found = session.predict(sources, top=top)
    return ClassPredictions(tuple(found))  # type: ignore[arg-type]


@dataclass
class _Work:
    """Finds keypoints in images and frames, and keeps count of them and of the time."""

    model: ModelFile
    finder: PoseFinder
    box: Box | None
    frames: int = 0
    finding: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def find(self, pixels: NDArray[np.uint8], name: str) -> _Points:
        before = time.perf_counter()
        try:
            pose = self.finder(pixels, self.box)
        except InputError as error:
            raise InputError(name, expected=error.expected, found=error.found, fix=error.fix) from error
        self.finding += time.perf_counter() - before
        self.frames += 1
        return pose

    def draw(self, pixels: NDArray[np.uint8], pose: _Points) -> NDArray[np.uint8]:
        return draw_skeleton(pixels, *pose, self.finder.skeleton)


def _poses(
    session: Session, sources: Sequence[Any], output: str | os.PathLike[str] | None, box: Box | None
) -> PosePredictions:
    work = _Work(session.model, PoseFinder.of(session.model, session), box)
    targets: Sequence[Path | None] = [None] * len(sources)
    if output is not None:
        targets = targets_of(sources, Path(output))
    poses = tuple(
        (_video if is_video(source) else _image)(work, source, target)
        for source, target in zip(sources, targets, strict=True)
    )
    seconds = time.perf_counter() - work.started
    return PosePredictions(poses, work.frames / seconds, work.frames / work.finding)


def _image(work: _Work, image: Image, target: Path | None) -> DrawnPose:
    pixels = pixels_of(image, 3)
    pose = work.find(pixels, name_of(image))
    if target is not None:
        _write(target, work.draw(pixels, pose))
    drawing = None if target is None else str(target)
    return DrawnPose(name_of(image), keypoints_of(work.model, *pose), drawing)


def _video(work: _Work, path: Path, target: Path | None) -> FilmedPose:
    video = Video.open(path)
    poses = []
    with Console(stderr=True).status(f"{path}"):
        if target is None:
            poses = [work.find(frame, str(path)) for frame in video.frames()]
        else:
            with written_video(target, video.rate, video.size) as writer:
                for frame in video.frames():
                    poses.append(work.find(frame, str(path)))
                    writer.write(work.draw(frame, poses[-1]))
    frames = tuple(keypoints_of(work.model, *pose) for pose in poses)
    return FilmedPose(str(path), frames, None if target is None else str(target))


def _row(pose: DrawnPose | FilmedPose) -> list[str]:
    """Return the cells of an image, or of a video, whose keypoints are averaged over its frames."""
    frames = pose.frames if isinstance(pose, FilmedPose) else (pose.keypoints,)
    sure = np.array([[keypoint.confidence for keypoint in frame] for frame in frames]).mean(0)
    least = int(sure.argmin())
    return [
        pose.video if isinstance(pose, FilmedPose) else pose.image,
        f"{sure.mean():.2f}",
        f"{frames[0][least].keypoint} {sure[least]:.2f}",
        pose.drawing or "none: name an --output",
    ]


def _write(path: Path, pixels: NDArray[np.uint8]) -> None:
    known, data = cv2.imencode(path.suffix, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    assert known
    with replacing(path) as temporary:
        temporary.write_bytes(data.tobytes())
