"""From an image to an answer: what `Session.predict` returns."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_channels, expect_image
from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.common.result import Result
from bitfactor.format import InputSpec, ModelFile

if TYPE_CHECKING:
    from bitfactor.runtime.finder import Box


@runtime_checkable
class PilImage(Protocol):
    """An image of the package Pillow."""

    mode: str

    def convert(self, mode: str) -> Any: ...

    def getexif(self) -> Any: ...


Image = str | os.PathLike[str] | NDArray[np.uint8] | bytes | PilImage
Network = Callable[[NDArray[np.float32]], Any]


@dataclass(frozen=True)
class ClassScore:
    """A class, by number and name, and its probability (softmax of the first output)."""

    index: int
    label: str
    probability: float


@dataclass(frozen=True)
class Classification(Result):
    """The most probable classes of an image, best first."""

    image: str
    classes: tuple[ClassScore, ...]

    def __str__(self) -> str:
        return f"{self.image}: " + ", ".join(f"{one.label} {one.probability:.1%}" for one in self.classes)


@dataclass(frozen=True)
class Keypoint:
    """A keypoint in pixels of the image, with a confidence from 0 to 1."""

    keypoint: str
    x: float
    y: float
    confidence: float


@dataclass(frozen=True)
class Pose(Result):
    """The keypoints of the person in an image."""

    image: str
    keypoints: tuple[Keypoint, ...]

    def __str__(self) -> str:
        points = ", ".join(f"{j.keypoint} ({j.x:.0f}, {j.y:.0f}) {j.confidence:.2f}" for j in self.keypoints)
        return f"{self.image}: {points}"


def predictor(
    model: ModelFile, network: Network, top: int, box: "Box | None"
) -> Callable[[Image], Classification | Pose]:
    """Return what predicts one image with the network of a model file; it needs OpenCV."""
    if top < 1:
        raise InputError("top", expected="1 or more", found=str(top), fix="name how many classes to tell")
    model.expect_one_input("predict")
    spec = model.input_spec
    if spec is None:
        raise InputError(
            "the model",
            expected="one that says how images are prepared",
            found="no input specification",
            fix="export it with input_spec, or call Session(FILE) with an array that is prepared",
        )
    images = imported("bitfactor.pose.images", "predict", "cli")
    if model.skeleton is None:
        if box is not None:
            raise InputError(
                "box",
                expected="a network that finds keypoints",
                found="one that classifies",
                fix="leave it out",
            )

        def classify(image: Image) -> Classification:
            pixels = pixels_of(image, len(spec.mean))
            scores = np.asarray(network(images.prepare(pixels, spec)[None]))[0]
            return Classification(name_of(image), _ranked(_probabilities(scores, model), model.labels, top))

        return classify
    finder = imported("bitfactor.runtime.finder", "predict", "cli").PoseFinder.of(model, network)

    def find(image: Image) -> Pose:
        points, confidence = finder(pixels_of(image, 3), box)
        return Pose(name_of(image), keypoints_of(model, points, confidence))

    return find


def keypoints_of(
    model: ModelFile, points: NDArray[np.float64], confidence: NDArray[np.float64]
) -> tuple[Keypoint, ...]:
    """Return points (J, 2) and confidences (J,) as the keypoints of a model's skeleton."""
    assert model.skeleton is not None
    return tuple(
        Keypoint(name, float(x), float(y), float(sure))
        for name, (x, y), sure in zip(model.skeleton.keypoints, points, confidence, strict=True)
    )


def name_of(image: Image) -> str:
    """Return how an image is named in a result: its path, or what it is."""
    if isinstance(image, np.ndarray):
        return f"array {image.shape}"
    return f"{len(image)} bytes" if type(image) is bytes else str(image)


def pixels_of(image: Image, channels: int) -> NDArray[np.uint8]:
    """Return an image as (H, W, 3), or (H, W) where the network takes one channel; arrays have as many."""
    if channels not in (1, 3):
        return expect_channels("image", image, channels)
    images = imported("bitfactor.pose.images", "predict", "cli")
    if isinstance(image, str | os.PathLike):
        pixels = images.read_image(Path(image), channels)
    elif isinstance(image, bytes):
        pixels = images.decode_image(image, channels, name_of(image))
    else:
        image = _seen(image) if isinstance(image, PilImage) else image
        expect_image("image", image)
        pixels = images.with_channels(image, channels)
    return np.asarray(pixels)


def _seen(image: PilImage) -> NDArray[np.uint8]:
    """Return the pixels of an image of Pillow as a decoder of its file would: turned as EXIF says, 8 bits."""
    operations = imported("PIL.ImageOps", "predict", "cli")
    try:
        turned = operations.exif_transpose(image)
        sixteen = turned.mode.startswith("I;16") or (
            turned.mode == "I" and getattr(image, "format", "") in _OF_16_BITS
        )
        if sixteen:
            return (np.asarray(turned) >> 8).astype(np.uint8)
        expected, fix = "an image of 8 or 16 bits", 'scale it, and convert it to "L" or "RGB"'
        found = f"one of mode {turned.mode}, of 32"
        expect_that(turned.mode not in ("I", "F"), "image", expected=expected, found=found, fix=fix)
        return np.asarray(turned if turned.mode == "L" else turned.convert("RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError) as error:  # of a damaged file, which Pillow reads late
        raise InputError(
            "image", expected="an image that Pillow can decode", found=str(error), fix="give another"
        ) from error


_OF_16_BITS = ("PNG", "PPM")  # files of which Pillow makes 32
_ARRANGEMENTS = ("flatten", "reshape", "permute", "rearrange", "slice", "take")  # no number is another then


def _probabilities(scores: NDArray[np.float32], model: ModelFile) -> NDArray[np.float32]:
    """Return the softmax of the scores (classes,), or the scores if they are probabilities already."""
    if scores.ndim != 1:
        raise InputError(
            "predict",
            expected="a network that gives a score for each class",
            found=f"one whose output is shaped {scores.shape}",
            fix="call the session with an array that is prepared",
        )
    if gives_probabilities(model):
        return scores
    if len(scores) == 1:
        raise InputError(
            "predict",
            expected="a score for each class, or probabilities",
            found="one score, such as of two classes",
            fix="end the network in a sigmoid, or call the session with an array that is prepared",
        )
    exponents = np.exp(scores - scores.max())
    return np.asarray(exponents / exponents.sum(), np.float32)


def gives_probabilities(model: ModelFile) -> bool:
    """Return whether the first output is of probabilities already.

    It is where a softmax or sigmoid is at its end, or where its golden output is a distribution.
    """
    nodes = {node.name: node for node in model.graph.nodes}
    last = nodes.get(model.graph.outputs[0])
    while last is not None and last.op in _ARRANGEMENTS:
        last = nodes.get(last.inputs[0])
    known = last is not None and last.op in ("softmax", "sigmoid")
    golden = model.golden_outputs[0].astype(np.float64)
    whole = golden.size > 1 and golden.min() >= 0 and abs(float(golden.sum()) - 1) < _CLOSE
    return known or bool(whole)


_CLOSE = 1e-4


def _ranked(probabilities: NDArray[np.float32], labels: tuple[str, ...], top: int) -> tuple[ClassScore, ...]:
    best = np.argsort(-probabilities, kind="stable")[:top]  # of equals the first, as on every target
    return tuple(ClassScore(int(i), labels[i] if labels else str(i), float(probabilities[i])) for i in best)


def expect_prepared(x: NDArray[Any], spec: InputSpec) -> None:
    """Raise InputError if integers x (N, C, H, W) are out of the range that `spec` gives an image."""
    if x.dtype.kind not in "iu" or not x.size:
        return
    low, high = _range(spec)
    if float(x.max()) > high + 1 or float(x.min()) < low - 1:
        raise InputError(
            "x",
            expected=f"images prepared as (x / 255 - mean) / std, from {low:.3g} to {high:.3g}",
            found=f"{x.dtype} values of {x.min()} to {x.max()}",
            fix="session.predict(image) prepares an image as the file says",
        )


def _range(spec: InputSpec) -> tuple[float, float]:
    """Return the lowest and the highest value of a prepared image."""
    spread = tuple(zip(spec.mean, spec.std, strict=True))
    return min(-mean / std for mean, std in spread), max((1 - mean) / std for mean, std in spread)


def looks_unprepared(x: NDArray[Any], spec: InputSpec) -> str:
    """Return why x (N, C, H, W) cannot be what `spec` makes of an image, or nothing."""
    if not x.size:
        return ""
    lowest, highest = _range(spec)
    low, high = float(x.min()), float(x.max())
    if 0 <= low < 0.1 and 0.8 < high <= 1 and (highest > 1.2 or lowest < -0.2):
        return "values of 0 to 1"  # a pale image that is prepared lies there too, but does not fill it
    # Noise, as tests and timings take, reaches out of the range too: by a little, and below 0.
    far = max(16.0, 8 * highest, -8 * lowest)
    if max(high, -low) > far or (low >= 0 > lowest and high > 2 * highest):
        pixels = low >= 0 and far < high <= 255
        return "pixels of 0 to 255" if pixels else f"values of {low:.4g} to {high:.4g}"
    return ""


def as_list(images: Image | Iterable[Image]) -> list[Image] | None:
    """Return several images as a list, None where there is one."""
    if isinstance(images, str | os.PathLike | np.ndarray | bytes) or not isinstance(images, Iterable):
        return None
    return list(images)
