"""A network that finds coloured dots, and what a refused command prints."""

import json

import cv2
import numpy as np
import pytest

from bitfactor.cli import main
from bitfactor.format import Graph, InputSpec, ModelFile, Node, Skeleton, Value
from bitfactor.format.file import save
from bitfactor.format.graph import run
from bitfactor.format.model import golden_input

SKELETON = Skeleton(("left_hand", "right_hand", "head"), ((0, 1),), ((0, 2), (1, 2)))
COLOURS = ((220, 20, 20), (20, 220, 20), (20, 20, 220))


@pytest.fixture(scope="session")
def dots_file(tmp_path_factory):
    """A pose network without training: it finds a red left hand, a green right one and a blue head."""
    weight = np.full((3, 4, 4, 3), -0.5, np.float32)
    weight[range(3), :, :, range(3)] = 1
    attributes = {"stride": (4, 4), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    tensors = {"weight": weight / 16, "bias": np.zeros(3, np.float32)}
    graph = Graph(
        Value("x", (3, 64, 64), "float32"), (Node("maps", "conv2d", ("x",), attributes, tensors),), ("maps",)
    )
    spec = InputSpec((64, 64), (64, 64), (0.0,) * 3, (1.0,) * 3)
    golden = run(graph, golden_input(graph.input.shape))
    path = tmp_path_factory.mktemp("dots") / "dots.safetensors"
    save(path, ModelFile(graph, golden, spec, skeleton=SKELETON))
    return path


def dots(width, height, places, radius):
    """A grey image (H, W, 3), RGB, with a dot for each keypoint."""
    image = np.full((height, width, 3), 128, np.uint8)
    for place, colour in zip(places, COLOURS, strict=True):
        cv2.circle(image, place, radius, colour, -1)
    return image


def write(path, image):
    assert cv2.imwrite(str(path), image[..., ::-1])
    return path


@pytest.fixture
def poses(dots_file, capsys):
    """Run `predict` on images and return what its JSON holds of each: places (J, 2), confidences (J,)."""

    def poses(*arguments):
        capsys.readouterr()
        assert main(["predict", str(dots_file), *map(str, arguments), "--json"]) == 0
        results = json.loads(capsys.readouterr().out)["poses"]
        found = []
        for result in results:
            frames = result.get("frames") or [result["keypoints"]]
            assert all(
                [keypoint["keypoint"] for keypoint in frame] == list(SKELETON.keypoints) for frame in frames
            )
            found += [
                (
                    np.array([[keypoint["x"], keypoint["y"]] for keypoint in frame]),
                    np.array([keypoint["confidence"] for keypoint in frame]),
                )
                for frame in frames
            ]
        return found

    return poses


@pytest.fixture
def refused(capfd, tmp_path):
    """Run a command that fails and return its line."""

    def refused(*arguments):
        capfd.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("bitfactor")
        assert ": expected " in line
        return line

    return refused
