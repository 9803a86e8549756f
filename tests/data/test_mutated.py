"""Mutated files of others' formats: a reader gives what it reads, or one InputError."""

import io
import json
import os
import pickle
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import scipy.io
from tests.data.test_image_kinds import KINDS

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, CocoKeypoints, Shards
from bitfactor.data.readers.check import check_data
from bitfactor.data.readers.cifar import read_pickled
from bitfactor.data.readers.instances import read_h5, read_json, read_mat
from bitfactor.data.readers.mpii import read_predictions, read_truth
from bitfactor.models import load_checkpoint
from bitfactor.pose import read_skeleton
from bitfactor.pose.images import decode_about, decode_image

TRIES = int(os.environ.get("FUZZ_TRIES", "40"))
SECONDS = float(os.environ.get("FUZZ_SECONDS", "inf"))  # for each reader, at most
SEED = os.environ.get("FUZZ_SEED", "")


def mutated(content: bytes, draw: random.Random) -> bytes:
    """With some bytes changed, a part removed or doubled, or the end cut off."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(changed) or 1)
        how = draw.randrange(5)
        if how == 0:
            changed[at : at + 1] = bytes([draw.randrange(256)])
        elif how == 1:
            changed[at : at + 4] = draw.choice((b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"-1e9"))
        elif how == 2:
            del changed[at : at + draw.randrange(1, 30)]
        elif how == 3:
            changed[at:at] = changed[at : at + draw.randrange(1, 30)]
        elif draw.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def attempts() -> Iterator[int]:
    end = time.monotonic() + SECONDS
    return takewhile(lambda _: time.monotonic() < end, range(TRIES))


def expect_answers_or_input_errors(content: bytes, read: Callable[[bytes], object], seed: str) -> None:
    """Whatever else comes out fails the test, and says for which bytes."""
    draw = random.Random(seed + SEED)
    for attempt in attempts():
        changed = mutated(content, draw)
        try:
            with warnings.catch_warnings(action="ignore"):
                read(changed)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 - one of many tries
        except Exception as error:
            error.add_note(f"attempt {attempt}: {changed[:200]!r}")
            raise


@pytest.mark.parametrize("name", KINDS)
def test_images(name, monkeypatch):
    """No gigabytes for those that say they are large."""
    monkeypatch.setattr("bitfactor.pose.images.MOST_PIXELS", 1 << 20)

    def read(data: bytes) -> None:
        decode_image(data, 3, name)

    expect_answers_or_input_errors(KINDS[name], read, name)
    expect_answers_or_input_errors(KINDS[name], lambda data: decode_about(data, 8, name), name)


COCO = {
    "images": [{"id": 7, "file_name": "a.jpg", "height": 40, "width": 60}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 1, "bbox": [1, 2, 30, 30], "keypoints": [5, 5, 2] * 17}
    ],
    "categories": [
        {"id": 1, "name": "person", "keypoints": [f"k{i}" for i in range(17)], "skeleton": [[1, 2]]}
    ],
}
PREDICTIONS = [[[5.0, 5.0]] * 16] * 2


def mat() -> bytes:
    file = io.BytesIO()
    names = np.array(["a", "b"], object)
    scipy.io.savemat(file, {"joints": np.ones((3, 14, 2)), "names": names, "s": {"x": 1.0}})
    return file.getvalue()


def h5(path: Path) -> bytes:
    with h5py.File(path, "w") as file:
        file["preds"] = np.ones((2, 16, 2))
        file["center"], file["scale"], file["imgname"] = np.ones((2, 2)), np.ones(2), np.ones((2, 5))
    return path.read_bytes()


def through(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Read bytes from a file of this name."""

    def written(content: bytes) -> None:
        path.write_bytes(content)
        read(path)

    return written


def documents(path: Path) -> dict[str, tuple[bytes, Callable[[Path], Any]]]:
    coco, mpii = json.dumps(COCO).encode(), json.dumps(PREDICTIONS).encode()
    return {
        "a.json": (coco, read_json),
        "preds.json": (mpii, read_predictions),
        "skeleton.json": (coco, read_skeleton),
        "own.json": (json.dumps({"keypoints": ["a", "b"], "edges": [["a", "b"]]}).encode(), read_skeleton),
        "a.mat": (mat(), read_mat),
        "preds.mat": (mat(), read_predictions),
        "truth.mat": (mat(), read_truth),
        "a.h5": (h5(path / "a"), read_h5),
        "preds.h5": (h5(path / "b"), read_predictions),
    }


NAMES = (
    "a.json",
    "preds.json",
    "skeleton.json",
    "own.json",
    "a.mat",
    "preds.mat",
    "truth.mat",
    "a.h5",
    "preds.h5",
)


@pytest.mark.parametrize("name", NAMES)
def test_annotations(name, tmp_path):
    content, read = documents(tmp_path)[name]
    expect_answers_or_input_errors(content, through(tmp_path / name, read), name)


def test_pickles():
    content = {b"data": np.arange(64, dtype=np.uint8).reshape(2, 32), b"labels": [1, 2], b"names": [b"a"]}
    for protocol in (0, 2, 4):
        expect_answers_or_input_errors(
            pickle.dumps(content, protocol=protocol), lambda data: read_pickled(data, "a file"), str(protocol)
        )


def test_numbers_of_a_pickle_that_are_none():
    """numpy's own class of types ended the process for some."""
    content = pickle.dumps({"data": np.arange(4, dtype=np.uint8)}, protocol=2)
    for other in (b"O8", b"V1", b"U1", b"xx"):
        with pytest.raises(InputError, match="a file that cannot be read"):
            read_pickled(content.replace(b"u1", other), "a file")
    np.testing.assert_array_equal(read_pickled(content, "a file")["data"], [0, 1, 2, 3])


def test_keys_of_pickles_that_are_no_text():
    assert read_pickled(pickle.dumps({b"\xa1": 1}, protocol=2), "a file") == {"\ufffd": 1}


def read_data(kind: Any, directory: Path) -> None:
    data = kind.load(directory, workers=0) if kind is Shards else kind.load(directory)
    next(iter(data.test_batches(4)))


def test_cifar_files(cifar):
    directory, *_ = cifar(each=4)
    for name in ("batches.meta", "test_batch"):
        file = directory / name
        content = file.read_bytes()
        read = through(file, lambda _: read_data(Cifar10, directory))
        expect_answers_or_input_errors(content, read, name)
        file.write_bytes(content)


def test_shards(shards):
    directory = shards(trained=(3,), held=(2,))
    for file in sorted(directory.iterdir()):
        content = file.read_bytes()
        read = through(file, lambda _: (check_data(directory), read_data(Shards, directory)))
        expect_answers_or_input_errors(content, read, file.name)
        file.write_bytes(content)


def test_keypoints_of_coco(tmp_path, smooth):
    images = tmp_path / "val2017"
    images.mkdir()
    cv2.imwrite(str(images / "a.jpg"), smooth(0, 40, 60))
    annotations = tmp_path / "annotations" / "person_keypoints_val2017.json"
    annotations.parent.mkdir()
    shutil.copytree(images, tmp_path / "train2017")
    (annotations.parent / "person_keypoints_train2017.json").write_text(json.dumps(COCO))
    read = through(annotations, lambda _: CocoKeypoints.load(tmp_path))
    expect_answers_or_input_errors(json.dumps(COCO).encode(), read, "coco")


def onnx_file() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    signs = np.sign(np.random.default_rng(0).standard_normal((4, 3, 3, 3))).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Sign", ["x"], ["s"]),
            helper.make_node("Conv", ["s", "w"], ["y"], kernel_shape=[3, 3]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(signs, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_onnx(tmp_path):
    def read(path: Path) -> None:
        bitfactor.convert(path, tmp_path / "net.safetensors")

    content = onnx_file()
    with warnings.catch_warnings(action="ignore"):
        through(tmp_path / "net.onnx", read)(content)
    expect_answers_or_input_errors(content, through(tmp_path / "net.onnx", read), "onnx")


def test_weights_of_onnx_of_a_type_that_is_none(tmp_path):
    import onnx

    model = onnx.load_from_string(onnx_file())
    model.graph.initializer[0].data_type = 99
    model.graph.node[0].domain = "qonnx.custom_op.general"  # which onnx's own check leaves out
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="99"):
        bitfactor.convert(tmp_path / "net.onnx", tmp_path / "net.safetensors")


@pytest.mark.parametrize("name", ["net.json", "net.textproto", "net.onnxtxt"])
def test_an_ending_chooses_no_other_reader(name, tmp_path):
    (tmp_path / name).write_text("{")
    with pytest.raises(InputError):
        bitfactor.convert(tmp_path / name, tmp_path / "net.safetensors")


def test_checkpoints(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    content = (tmp_path / "w.pt").read_bytes()
    expect_answers_or_input_errors(
        content, through(tmp_path / "w.pt", lambda path: load_checkpoint(model, path)), "pt"
    )
