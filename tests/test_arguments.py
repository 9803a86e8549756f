"""Public functions of the rooms without torch: what is wrong with an argument is said in one sentence.

The tables name a good call of each; what has none fails, so that what is added is covered.
"""

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bitfactor.format
import bitfactor.pose
import bitfactor.runtime
from bitfactor.common.errors import InputError
from bitfactor.data.readers.mpii import read_predictions, read_truth
from bitfactor.format import Node, Skeleton, Value
from bitfactor.format.drawing import svg
from bitfactor.format.file import load
from bitfactor.format.graph import cost, total
from bitfactor.pose.draw import draw_skeleton
from bitfactor.pose.heatmap import on_target_scale
from bitfactor.pose.pck import pck, pckh, score
from bitfactor.runtime import zoo
from bitfactor.runtime.finder import PoseFinder

FILE = zoo.file_of("digits")
MODEL = load(FILE)
HANDS = Skeleton(("left_hand", "right_hand", "head"), ((0, 1),), ((0, 2), (1, 2)))
MATRIX = bitfactor.pose.crop_matrix((4.5, 4.5), 10, 5)
POINTS, SURE = np.ones((3, 2)), np.ones(3)
IMAGE = np.zeros((10, 10, 3), np.uint8)
SPEC = bitfactor.format.InputSpec((8, 8), (8, 8), (0.5,) * 3, (0.25,) * 3)
FINDER = PoseFinder(lambda x: np.zeros((len(x), 3, 2, 2), np.float32), SPEC, HANDS)
SIGNS = np.array([1, -1, 1], np.int8)
RELU = Node("y", "relu", ("x",))
INPUT = Value("x", (3,), "float32")

FORMAT = SimpleNamespace(**{name: getattr(bitfactor.format, name) for name in bitfactor.format.__all__})
POSE = SimpleNamespace(**{name: getattr(bitfactor.pose, name) for name in bitfactor.pose.__all__})

GOOD = {
    FORMAT.Graph: {"input": INPUT, "nodes": (RELU,), "outputs": ("y",)},
    FORMAT.Node: {"name": "y", "op": "relu", "inputs": ("x",), "attributes": {}, "tensors": {}},
    FORMAT.Value: {"name": "x", "shape": (3,), "dtype": "float32"},
    FORMAT.Skeleton: {"keypoints": ("a", "b"), "flip_pairs": ((0, 1),), "edges": ((0, 1),)},
    FORMAT.pack_signs: {"signs": SIGNS},
    FORMAT.sign: {"x": np.ones(3)},
    FORMAT.unpack_signs: {"words": np.array([5], np.uint64), "channels": 3},
    cost: {"node": MODEL.graph.nodes[0], "graph": MODEL.graph},
    total: {"graph": MODEL.graph},
    svg: {"model": MODEL, "title": "digits"},
    POSE.crop_matrix: {"centre": (1, 1), "side": 10.0, "size": 5, "rotation": 0.0, "flip": False},
    POSE.mpii_box: {"centre": np.ones((2, 2)), "scale": np.ones(2)},
    POSE.adjusted_mpii_box: {"centre": np.ones((2, 2)), "scale": np.ones(2)},
    POSE.transform: {"points": POINTS, "matrix": MATRIX},
    POSE.invert: {"matrix": MATRIX},
    POSE.warp: {"image": IMAGE, "matrix": MATRIX, "size": 5},
    POSE.encode: {"keypoints": POINTS, "labelled": SURE > 0, "size": (4, 4), "stride": 2, "sigma": 1.0},
    POSE.decode: {"maps": np.ones((3, 4, 4)), "stride": 2, "scale": "linear"},
    POSE.flip_maps: {"maps": np.ones((3, 4, 4), np.float32), "skeleton": HANDS},
    on_target_scale: {"maps": np.ones((3, 4, 4)), "scale": "logits"},
    draw_skeleton: {"image": IMAGE, "keypoints": POINTS, "confidence": SURE, "skeleton": HANDS},
    FINDER.__call__: {"image": IMAGE, "box": (1.0, 1.0, 5.0, 5.0)},
    pckh: {"skeleton": HANDS},
    pck: {"skeleton": HANDS},
    score: {
        "predicted": POINTS[None],
        "true": POINTS[None],
        "labelled": SURE[None] > 0,
        "norm": np.ones(1),
        "convention": pck(HANDS),
    },
    zoo.locate: {"text": "digits"},
    zoo.file_of: {"name": "digits"},
    zoo.Card.of: {"name": "digits"},
}
READERS = (POSE.read_skeleton, read_predictions, read_truth)
ELSEWHERE = {"InputSpec", "ModelFile", "Signature", "load", "save"}  # tests of the file, of signatures
CONSTANTS = {"COCO", "LSP", "MPII", "SKELETONS", "read_skeleton"}


class Wrong:
    """What no argument takes."""

    def __repr__(self):
        return "Wrong()"


def name_of(function):
    return function.__qualname__


def refusal(function, *args, **arguments):
    with pytest.raises(InputError) as error:
        function(*args, **arguments)
    text = str(error.value)
    assert re.fullmatch(r"[^\n]+: expected [^\n]+, found [^\n]+; [^\n]+", text)
    return text


def test_every_public_name_has_a_good_call():
    known = {function.__name__ for function in GOOD} | ELSEWHERE | CONSTANTS
    assert {*bitfactor.format.__all__, *bitfactor.pose.__all__} <= known
    public = {name for name, one in vars(zoo).items() if inspect.isfunction(one) and name[0] != "_"}
    assert public - {"near_matches", "dataclass", "checked"} <= known | {"names"}


@pytest.mark.parametrize("function", GOOD, ids=name_of)
def test_a_good_call(function):
    function(**GOOD[function])


CASES = [
    (function, argument, value)
    for function, good in GOOD.items()
    for argument in good
    for value in (Wrong(), None)
    if (argument, value) != ("box", None)
]


@pytest.mark.parametrize(("function", "argument", "value"), CASES)
def test_a_wrong_type(function, argument, value):
    text = refusal(function, **{**GOOD[function], argument: value})
    assert argument in text
    assert repr(value) in text


NAN = float("nan")
VALUES = [
    (FORMAT.Graph, {"nodes": [RELU, 3]}, "nodes"),
    (FORMAT.Graph, {"outputs": "y"}, "outputs"),
    (FORMAT.Graph, {"outputs": ("z",)}, "known are: x, y"),
    (FORMAT.Node, {"tensors": {"weight": [1.0]}}, "weight"),
    (FORMAT.Value, {"shape": (3, 0)}, "1 or more"),
    (FORMAT.Value, {"dtype": "float33"}, "did you mean float32"),
    (FORMAT.Skeleton, {"keypoints": ()}, "at least one"),
    (FORMAT.Skeleton, {"edges": ((0, 1, 2),)}, "edges"),
    (FORMAT.pack_signs, {"signs": np.array([0, 1])}, r"\[0, 1\]"),
    (FORMAT.pack_signs, {"signs": np.int8(1)}, "array"),
    (FORMAT.sign, {"x": np.array([1.0, NAN])}, r"NaN at index \[1\]"),
    (FORMAT.sign, {"x": np.array(["a"])}, "array of values"),
    (FORMAT.unpack_signs, {"channels": 65}, "2 words for 65"),
    (FORMAT.unpack_signs, {"channels": -1}, "1 or more"),
    (FORMAT.unpack_signs, {"words": np.array([5])}, "unsigned"),
    (POSE.crop_matrix, {"side": 0}, "above 0"),
    (POSE.crop_matrix, {"size": 0}, "above 0"),
    (POSE.crop_matrix, {"centre": (1, 2, 3)}, "centre"),
    (POSE.crop_matrix, {"centre": "ab"}, "centre"),
    (POSE.crop_matrix, {"centre": (1, NAN)}, "finite"),
    (POSE.crop_matrix, {"rotation": "30"}, "without quotes"),
    (POSE.mpii_box, {"centre": np.ones(2)}, r"\(N, 2\)"),
    (POSE.mpii_box, {"scale": np.ones(3)}, "2 scales"),
    (POSE.transform, {"points": np.ones((3, 3))}, r"\(\.\.\., 2\)"),
    (POSE.transform, {"points": "a photo"}, "points"),
    (POSE.transform, {"matrix": np.eye(3)}, r"\(2, 3\)"),
    (POSE.invert, {"matrix": np.zeros((2, 3))}, "can be inverted"),
    (POSE.warp, {"image": IMAGE / 255}, "uint8"),
    (POSE.warp, {"image": IMAGE[..., :2]}, r"\(H, W, 3\)"),
    (POSE.warp, {"image": IMAGE.transpose(2, 0, 1)}, "channels last"),
    (POSE.warp, {"size": (0, 5)}, "above 0"),
    (POSE.encode, {"keypoints": np.ones((3, 3))}, r"\(\.\.\., J, 2\)"),
    (POSE.encode, {"labelled": np.ones(4)}, r"\(3,\)"),
    (POSE.encode, {"stride": 0}, "above 0"),
    (POSE.encode, {"sigma": 0}, "above 0"),
    (POSE.encode, {"size": (4, -4)}, "above 0"),
    (POSE.decode, {"maps": np.ones(3)}, r"\(\.\.\., h, w\)"),
    (POSE.decode, {"maps": np.ones((3, 0, 4))}, "empty"),
    (POSE.decode, {"stride": -1}, "above 0"),
    (POSE.decode, {"scale": "linaer"}, "did you mean linear"),
    (POSE.flip_maps, {"maps": np.ones((4, 4, 4), np.float32)}, r"\(\.\.\., 3, h, w\)"),
    (on_target_scale, {"scale": "log"}, "logits"),
    (draw_skeleton, {"image": IMAGE[..., 0]}, r"\(H, W, 3\)"),
    (draw_skeleton, {"keypoints": POINTS[:2]}, r"\(3, 2\)"),
    (draw_skeleton, {"confidence": SURE[:2]}, r"\(3,\)"),
    (FINDER.__call__, {"image": IMAGE.astype(np.float32)}, "uint8"),
    (FINDER.__call__, {"image": IMAGE[:0]}, "with pixels"),
    (FINDER.__call__, {"image": IMAGE[..., 0]}, r"\(H, W, 3\), RGB, found"),
    (POSE.warp, {"image": IMAGE[None]}, r"list\(x\)"),
    (POSE.warp, {"image": IMAGE[..., :1]}, r"x\[\.\.\., 0\]"),
    (POSE.warp, {"image": np.zeros((8, 8, 4), np.uint8)}, r"x\[\.\.\., :3\]"),
    (FINDER.__call__, {"box": (0.0, 0.0, 0.0, 5.0)}, "above 0"),
    (FINDER.__call__, {"box": (0.0, 0.0, NAN, 5.0)}, "box"),
    (FINDER.__call__, {"box": (50.0, 0.0, 5.0, 5.0)}, "meets the image, 10 x 10"),
    (FINDER.__call__, {"box": (0.0, 0.0, 5.0)}, "box"),
    (score, {"labelled": np.ones((1, 4))}, r"\(1, 3\)"),
    (score, {"norm": np.ones(2)}, r"\(1,\)"),
    (zoo.Card.of, {"name": "digit"}, "did you mean digits"),
    (zoo.file_of, {"name": "../digits"}, "did you mean digits"),
    (zoo.locate, {"text": ""}, "neither"),
]


@pytest.mark.parametrize(("function", "changes", "words"), VALUES)
def test_a_wrong_value(function, changes, words):
    assert re.search(words, refusal(function, **{**GOOD[function], **changes}))


@pytest.mark.parametrize("function", READERS)
def test_a_reader(function, tmp_path):
    """Of a path as a string or a Path; a directory and a missing file are said to be these."""
    assert "path" in refusal(function, Wrong())
    assert "path" in refusal(function, None)
    assert "directory" in refusal(function, str(tmp_path))
    for missing in (tmp_path / "none.mat", str(tmp_path / "none.mat")):
        assert "No such file" in refusal(function, missing)


def test_paths_may_be_strings(tmp_path):
    (tmp_path / "paws.json").write_text('{"keypoints": ["left_paw", "right_paw"]}')
    assert POSE.read_skeleton(str(tmp_path / "paws.json")).keypoints == ("left_paw", "right_paw")
    assert zoo.locate(Path("digits")) == zoo.locate("digits")


def test_a_pose_finder_is_checked_where_it_is_made():
    for changes, words in (
        ({"network": 3}, "network: expected a function"),
        ({"input_spec": None}, "input_spec"),
        ({"skeleton": "mpii"}, "skeleton"),
        ({"scale": "lin"}, "scale"),
    ):
        good = {"network": FINDER.network, "input_spec": SPEC, "skeleton": HANDS}
        assert words in refusal(PoseFinder, **{**good, **changes})


def test_maps_that_do_not_fit_the_skeleton():
    wrong = PoseFinder(lambda x: np.zeros((len(x), 4, 2, 2), np.float32), SPEC, HANDS)
    assert "(3, h, w)" in refusal(wrong, IMAGE)
    for cells in ((3, 3), (2, 4), (8, 3)):
        wrong = PoseFinder(lambda x, cells=cells: np.zeros((len(x), 3, *cells), np.float32), SPEC, HANDS)
        found = refusal(wrong, IMAGE)
        assert "fill the input of 8 x 8 pixels, found maps of {} x {}".format(*cells) in found
