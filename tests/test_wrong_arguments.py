"""Whatever is given to a public function or a command, nothing but InputError comes out."""

import contextlib
import inspect
import io
import random
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
from torch import nn

import bitfactor
from bitfactor import binarization, data, study, training
from bitfactor.cli import main
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c
from bitfactor.targets.frozen import flat_program, frozen
from bitfactor.targets.kits import write_kit
from bitfactor.targets.onnx import export_onnx, to_onnx
from bitfactor.training.metrics import scores

ROOMS = (
    *("decompositions", "exporter", "format", "metrics", "models"),
    *("nn", "pose", "recipes", "runtime", "zoo"),
)
# Tensors in the middle of a training step: torch's own errors, as of any function of torch. PReLU and ReLU
# are torch's classes; BinaryConv and BinaryConvTranspose are what those with a number of dimensions share;
# latent_name is for the layers.
TORCHS_OWN = {"sign", "straight_through", "analytic_alpha", "PReLU", "ReLU", "MaxPool2d", "working"}
ABSTRACT = {"BinaryConv", "BinaryConvTranspose", "Latent", "Scale", "latent_name", "KeypointMetric"}
# They are given what a training or a reader has made: a Fabric, a data set.
INSIDE = (training.evaluate, data.identity_of)
# May be a function of one's own, which is remembered by its name, and whose errors are its own.
ESTIMATORS = {"weight_estimator", "activation_estimator"}
OF_ONES_OWN = {"latent", "scale", "weight_transform", "build", "block", *ESTIMATORS}
OTHERS = {"blocks": (1,) * 4, "widths": (8,) * 4, "model": nn.Sequential(nn.Linear(2, 2)), "checkpoint": {}}
VALUES = (
    *(None, -1, 0, 1.5, float("nan"), float("inf"), 2**70, True, "x", "", b"x"),
    *((), [], {}, (0, 0), (-1, 2), (2, 2, 2), [1, "a"], {"a": 1}, object()),
    *(np.zeros((0, 3)), np.zeros((2, 3), np.float32), np.array(["a"]), nn.Linear(2, 2), nn.Linear),
)


def callables():
    for module in (
        bitfactor,
        binarization,
        data,
        scores,
        study,
        training,
        *(getattr(bitfactor, room) for room in ROOMS),
    ):
        for name in public_names(module):
            one = getattr(module, name)
            if (
                callable(one)
                and one not in INSIDE
                and name not in TORCHS_OWN | ABSTRACT
                and not is_error(one)
            ):
                yield pytest.param(one, id=f"{module.__name__}.{name}")
    yield from (export_c, write_kit, export_onnx, to_onnx, flat_program, frozen)


def public_names(module) -> list[str]:
    """Those that it lists; else what it, or a module in it, defines."""
    homes = {name: getattr(one, "__module__", "") for name, one in vars(module).items() if name[0] != "_"}
    own = [name for name, home in homes.items() if home.startswith(module.__name__)]
    return getattr(module, "__all__", own)


def is_error(one) -> bool:
    return isinstance(one, type) and issubclass(one, Exception)


@pytest.mark.parametrize("function", callables())
def test_any_argument_may_be_anything(function, tmp_path, monkeypatch):
    """The others are those of OTHERS, or 4, which many of them may be."""
    monkeypatch.chdir(tmp_path)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of what is no function, but can be called
        return
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    others = {one.name: OTHERS.get(one.name, 4) for one in named if one.default is one.empty}
    for one in named:
        for value in VALUES:
            if callable(value) and one.name in OF_ONES_OWN:
                continue
            with contextlib.suppress(bitfactor.InputError), warnings.catch_warnings(action="ignore"):
                function(**{**others, one.name: value})


DIGITS = file_of("digits").read_bytes()
FILES = {
    "empty": b"",
    "text": b"hello\n",
    "half.safetensors": DIGITS[: len(DIGITS) // 2],
    "cut.safetensors": DIGITS[:-1],
    "garbage": random.Random(0).randbytes(3000),
    "half.onnx": b"\x08\x07\x12\x09bitfactor" + DIGITS[:200],
    "half.json": b'{"a": [1, 2',
    "list.json": b"[]",
    "null.json": b"null",
    "half.csv": b"a,b\n1,",
    "half.pt": b"PK\x03\x04" + DIGITS[:100],
    "pickle.pt": b"\x80\x02}q\x00.",
    "half.bfp": b"\x89BFP\r\n\x1a\n" + DIGITS[:50],
    "half.py": b"def f(:\n",
    "half.mat": b"MATLAB 5.0 MAT-file" + bytes(109) + b"IM" + DIGITS[:50],
    "half.h5": b"\x89HDF\r\n\x1a\n" + DIGITS[:90],
    "half.png": cv2.imencode(".png", np.zeros((9, 9, 3), np.uint8))[1].tobytes()[:60],
    "run/config.json": b"{",
    "other_run/config.json": b"{}",
    "other_run/checkpoint.pt": b"PK",
    "shards/shards.json": b'{"train": 3}',
    "cifar/cifar-10-batches-py/batches.meta": b"\x80",
    "mpii/annotations/train.json": b"{",
}
PLACES = ("nothing", "missing", "/dev/null", *dict.fromkeys(name.split("/")[0] for name in FILES))


DATA = ("garbage", "cifar", "mpii")  # what takes seconds to refuse, since a network is built first
KINDS = ("nothing", "missing", "empty", "text", "garbage", "half.py", "half.pt", "pickle.pt")
KINDS += ("half.safetensors", "run", "other_run")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    Path("nothing").mkdir()
    cv2.imwrite("good.png", np.zeros((9, 9, 3), np.uint8))


def commands(place: str):
    """Every way in which a command may read from a place; none trains if it should succeed."""
    for command in ("check-data", "evaluate", "inspect", "pckh", "bench"):
        yield command, place
    for command, output in (
        ("export", "o.safetensors"),
        ("convert", "o.safetensors"),
        ("freeze", "o.bfp"),
        ("page", "o.html"),
    ):
        yield command, place, "-o", output
    yield "predict", place, "good.png"
    yield "predict", "digits", place
    yield "pckh", place, "--data", place
    yield "evaluate", "cifar10-resnet18", "--data", place
    if place in DATA:
        yield "evaluate", "lsp-hourglass", "--data", place
        for recipe in ("cifar10-resnet18", "lsp-hourglass"):
            yield "train", recipe, "--data", place, "--out", "trained", "--dry-run"
    if place in KINDS:  # which these do not tell apart further
        for command in ("report", "summary", "zoo"):
            yield command, place
        yield "check", f"{place}:net"
        yield "--import", place, "recipes"
        yield "summary", "digits", "--model", place
        yield "train", "digits", "--from", place, "--out", "trained", "--dry-run"
        yield "train", "digits", "--model", place, "--out", "trained", "--dry-run"


@pytest.mark.parametrize("place", PLACES)
def test_a_command_ends_in_one_sentence(place, here):
    """Whatever stands at a place, or is half written: status 0, 1 for what check-data found, or 2."""
    for command in commands(place):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(list(command))
        assert status in (0, 1, 2), command
        assert "Traceback" not in err.getvalue(), command
        if status == 2:
            assert ": expected " in err.getvalue().splitlines()[-1], (command, err.getvalue())
