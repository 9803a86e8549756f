"""`bitfactor.predict`: what a network says of images, folders and videos. Needs no torch."""

import csv as tables
import mimetypes
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, replacing, write_file
from bitfactor.common.result import Result, text_table
from bitfactor.format import Skeleton
from bitfactor.runtime import Session
from bitfactor.runtime.prediction import Classification, Image, Keypoint, Pose, as_list, name_of, pixels_of
from bitfactor.runtime.zoo import locate

# What FFmpeg would print about a damaged video, the error says. OpenCV looks here at its first video.
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")

IMAGES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"))
_READABLE = frozenset((".ppm", ".pgm", ".gif"))  # and not written
VIDEOS = frozenset((".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"))
_WRITABLE_VIDEOS = frozenset((".mp4", ".avi"))


def is_video(source: object) -> bool:
    """Return whether a source is a file with the name of a video."""
    return isinstance(source, Path) and source.suffix.lower() in VIDEOS


class _FromStandardInput(bytes):
    """An image file whose name is "-"."""

    def __str__(self) -> str:
        return "-"


def sources_of(images: Sequence[Any]) -> list[Any]:
    """Return paths, arrays and the like; a folder stands for the images and videos in it, by name.

    "-" stands for the image file that standard input gives.
    """
    if not images:
        raise InputError(
            "bitfactor predict", expected="an image", found="none", fix="name one after the model"
        )
    found: list[Any] = []
    for image in images:
        path = Path(image) if isinstance(image, str | os.PathLike) else None
        if path is not None and str(path) == "-":
            found.append(_FromStandardInput(sys.stdin.buffer.read()))
        elif path is not None and path.is_dir():
            found += _in_folder(path)
        else:
            found.append(image if path is None else path)
    return found


def _in_folder(folder: Path) -> list[Path]:
    known = IMAGES | _READABLE | VIDEOS
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

    `output` is a file if its name ends as that of one and there is one source. Else it is the folder in which
    each keeps its name, with another ending where that kind of file is not written.
    """
    meant = mimetypes.guess_type(output.name)[0] or ""
    is_file = meant.startswith(("image/", "video/")) or output.suffix.lower() in IMAGES | VIDEOS
    if is_file and not output.is_dir():
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


@dataclass(frozen=True)
class ClassifiedImage(Classification):
    """The most probable classes of an image, or why there are none."""

    error: str | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each class."""
        yield from (asdict(one) for one in self.classes)


@dataclass(frozen=True)
class DrawnPose(Pose):
    """A pose, and the file that it was drawn to; or why there is none."""

    drawing: str | None = None
    error: str | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each keypoint."""
        yield from (asdict(one) for one in self.keypoints)


@dataclass(frozen=True)
class FilmedPose(Result):
    """The keypoints of the person in each frame of a video, or why there are none."""

    image: str
    frames: tuple[tuple[Keypoint, ...], ...]
    drawing: str | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        return {"video": values.pop("image"), **values}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each keypoint of each frame."""
        for number, frame in enumerate(self.frames):
            yield from ({"frame": number, **asdict(one)} for one in frame)


Answer = ClassifiedImage | DrawnPose | FilmedPose


def _problems(answers: Sequence[Answer]) -> list[str]:
    return [one.error for one in answers if one.error is not None]


@dataclass(frozen=True)
class ClassPredictions(Result):
    """The most probable classes of several images; `problems` says which have none."""

    images: tuple[ClassifiedImage, ...]

    @property
    def problems(self) -> list[str]:
        """What is wrong with images that could not be read."""
        return _problems(self.images)

    def __str__(self) -> str:
        rows = [[one.image, *(f"{c.label} {c.probability:.1%}" for c in one.classes)] for one in self.images]
        most = max(map(len, rows))
        table = text_table(
            ["image", *(f"{i + 1}." for i in range(most - 1))],
            [row + ["-"] * (most - len(row)) for row in rows],
        )
        return "\n".join([table, *self.problems])


@dataclass(frozen=True)
class PosePredictions(Result):
    """The poses of several images and videos, and how many frames a second: over all, and without files."""

    poses: tuple[DrawnPose | FilmedPose, ...]
    frames_per_second: float
    network_frames_per_second: float

    @property
    def problems(self) -> list[str]:
        """What is wrong with images that could not be read."""
        return _problems(self.poses)

    def __str__(self) -> str:
        found = [pose for pose in self.poses if pose.error is None]
        frames = sum(len(pose.frames) if isinstance(pose, FilmedPose) else 1 for pose in found)
        table = text_table(["image", "confidence", "least sure", "drawing"], [_row(p) for p in found])
        speed = (
            f"{frames} {'frame' if frames == 1 else 'frames'}, "
            f"{self.frames_per_second:.1f} frames per second "
            f"({self.network_frames_per_second:.1f} without reading, drawing and writing)"
        )
        return "\n".join([table, speed, *self.problems])


_TOP = 3  # classes


@checked
def predict(
    model: str | os.PathLike[str] | Session,
    images: Image | Iterable[Image],
    *,
    top: int = _TOP,
    output: str | os.PathLike[str] | None = None,
    box: tuple[float, float, float, float] | None = None,
    csv: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> ClassPredictions | PosePredictions:
    """Classify images with an exported network, or find the keypoints of the person in each and draw them.

    Of several images, one that cannot be read has an error in place of an answer; the exit status then is 1.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`; in Python also a session.
    images
        Images of any size, folders of them at any depth, - for standard input; for poses also videos. In
        Python also what `Session.predict` takes.
    top
        For classes: how many to show.
    output
        For poses: where the drawings go, a folder, or a file for one image or video.
    box
        For poses: left, top, width and height of the person in pixels; the whole image if left out.
    csv
        Also write a table, .csv: a row for each class, or for each keypoint, of each image.
    overwrite
        Replace drawings and tables that are there already.

    Raises
    ------
    InputError
        If the only image cannot be read, or the file does not say how images are prepared.

    Example
    -------
    >>> print(predict("cifar10-resnet18", "photos/"))
    """
    session = model if isinstance(model, Session) else Session(locate(str(model)))
    session.predict([], top=top, box=box)  # says what is wrong with these
    several = as_list(images)
    sources = sources_of([images] if several is None else several)
    table = None if csv is None else expect_output(csv, [".csv"], overwrite=overwrite, flag="--csv")
    if top != _TOP and session.model.skeleton is not None:
        expected, found = "a network that classifies", "one that finds keypoints"
        raise InputError("--top", expected=expected, found=found, fix="leave it out")
    if session.model.skeleton is None:
        classes = _classes(session, sources, top, output)
        _write_table(table, classes.images)
        return classes
    work = _Work(session, session.model.skeleton, box)
    poses = _poses(work, sources, None if output is None else Path(output), overwrite)
    _write_table(table, poses.poses)
    return poses


def _classes(session: Session, sources: Sequence[Any], top: int, output: object) -> ClassPredictions:
    if output is not None:
        expected, given = "a network that finds keypoints", "one that classifies"
        raise InputError("--output", expected=expected, found=given, fix="leave it out")

    def classify(source: Image) -> ClassifiedImage:
        if is_video(source):
            raise InputError(source, expected="an image", found="a video", fix="leave it out")
        one = session.predict(source, top=top)
        assert isinstance(one, Classification)
        return ClassifiedImage(one.image, one.classes)

    if len(sources) == 1:
        return ClassPredictions((classify(sources[0]),))
    found = []
    for source in sources:
        try:
            found.append(classify(source))
        except InputError as error:
            found.append(ClassifiedImage(name_of(source), (), str(error)))
    return ClassPredictions(tuple(found))


@dataclass
class _Work:
    """Finds keypoints in images and frames, and keeps count of them and of the time."""

    session: Session
    skeleton: Skeleton
    box: tuple[float, float, float, float] | None
    frames: int = 0
    finding: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def find(self, pixels: NDArray[np.uint8], name: str) -> Pose:
        before = time.perf_counter()
        try:
            pose = self.session.predict(pixels, box=self.box)
        except InputError as error:
            raise InputError(name, expected=error.expected, found=error.found, fix=error.fix) from error
        self.finding += time.perf_counter() - before
        self.frames += 1
        assert isinstance(pose, Pose)
        return replace(pose, image=name)

    def draw(self, pixels: NDArray[np.uint8], pose: Pose) -> NDArray[np.uint8]:
        points = np.array([(one.x, one.y) for one in pose.keypoints])
        confidence = np.array([one.confidence for one in pose.keypoints])
        drawn: NDArray[np.uint8] = imported("bitfactor.pose.draw", "predict", "cli").draw_skeleton(
            pixels, points, confidence, self.skeleton
        )
        return drawn


def _poses(work: _Work, sources: Sequence[Any], output: Path | None, overwrite: bool) -> PosePredictions:
    targets: Sequence[Path | None] = [None] * len(sources)
    if output is not None:
        targets = targets_of(sources, output)
    for target in targets:
        if target is not None:
            expect_output(target, overwrite=overwrite, flag="--output")
    poses: list[DrawnPose | FilmedPose] = []
    for source, target in zip(sources, targets, strict=True):
        try:
            poses.append((_video if is_video(source) else _image)(work, source, target))
        except InputError as error:
            if len(sources) == 1:
                raise
            kind = FilmedPose if is_video(source) else DrawnPose
            poses.append(kind(name_of(source), (), error=str(error)))
    seconds = time.perf_counter() - work.started
    rates = (work.frames / seconds, work.frames / work.finding if work.frames else 0.0)
    return PosePredictions(tuple(poses), *rates)


def _image(work: _Work, image: Image, target: Path | None) -> DrawnPose:
    pixels = pixels_of(image, 3)
    pose = work.find(pixels, name_of(image))
    if target is not None:
        _write(target, work.draw(pixels, pose))
    return DrawnPose(pose.image, pose.keypoints, None if target is None else str(target))


def _video(work: _Work, path: Path, target: Path | None) -> FilmedPose:
    videos = imported("bitfactor.api.video", path, "cli")
    video = videos.Video.open(path)
    poses = []
    with imported("rich.console", path, "cli").Console(stderr=True).status(f"{path}"):
        if target is None:
            poses = [work.find(frame, str(path)) for frame in video.frames()]
        else:
            with videos.written_video(target, video.rate, video.size) as write:
                for frame in video.frames():
                    poses.append(work.find(frame, str(path)))
                    write(work.draw(frame, poses[-1]))
    frames = tuple(pose.keypoints for pose in poses)
    return FilmedPose(str(path), frames, None if target is None else str(target))


def _row(pose: DrawnPose | FilmedPose) -> list[str]:
    """Return the cells of an image, or of a video, whose keypoints are averaged over its frames."""
    frames = pose.frames if isinstance(pose, FilmedPose) else (pose.keypoints,)
    sure = np.array([[keypoint.confidence for keypoint in frame] for frame in frames]).mean(0)
    least = int(sure.argmin())
    drawing = pose.drawing or "none: name an --output"
    return [pose.image, f"{sure.mean():.2f}", f"{frames[0][least].keypoint} {sure[least]:.2f}", drawing]


def _write_table(path: Path | None, answers: Sequence[Answer]) -> None:
    """Write a row for each part of an answer, or one with the error where there is no answer."""
    if path is None:
        return
    rows = [
        {"image": answer.image, **row, "error": answer.error or ""}
        for answer in answers
        for row in list(answer.rows()) or [{}]
    ]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "error"))
    with replacing(path) as temporary, _as_text(temporary) as file:
        writer = tables.DictWriter(file, [*names, "error"])
        writer.writeheader()
        writer.writerows(rows)


def _as_text(path: Path) -> TextIO:
    """Open a table to write. Bytes of names that are no UTF-8 are escaped."""
    return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")


def _write(path: Path, pixels: NDArray[np.uint8]) -> None:
    cv2 = imported("cv2", path, "cli")
    try:
        known, data = cv2.imencode(path.suffix, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    except cv2.error:
        known, data = False, b""
    if not known:
        height, width = pixels.shape[:2]
        raise _bad(path, f"a size that {path.suffix} has", f"{height} x {width} pixels", "name it .png")
    write_file(path, bytes(data))
