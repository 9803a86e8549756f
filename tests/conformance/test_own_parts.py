"""Parts from outside the package run on every target as in torch: a decomposition, estimators, a scale."""

import numpy as np
import onnxruntime
import pytest
import torch
from tests.targets.c99.conftest import compiled as compiled
from tests.targets.page.conftest import node as node
from torch import nn

import bitfactor
from bitfactor.common.files import run_file
from bitfactor.decompositions import LAYERWISE
from bitfactor.format import load
from bitfactor.nn.scale import PER_CHANNEL
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS
from bitfactor.nn.transform import WEIGHT_TRANSFORMS
from bitfactor.targets.onnx import export_onnx

EXAMPLES = ("own_decomposition", "own_estimators")
_TABLES = (ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS, PER_CHANNEL, WEIGHT_TRANSFORMS, LAYERWISE)
OWN = {"latent": "gated", "scale": "rms_scale", "weight_estimator": "reste"}


@pytest.fixture(autouse=True)
def _examples(request):
    """Register what the examples do, and leave the tables as they were."""
    before = [dict(table) for table in _TABLES]
    for name in EXAMPLES:
        run_file(request.config.rootpath / "examples" / f"{name}.py")
    yield
    for table, entries in zip(_TABLES, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.fixture
def trained(tmp_path):
    """A network of such parts after some steps, its file, an input, and its output in torch."""
    torch.manual_seed(0)
    block = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)]
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), *block, nn.PReLU(), *block, nn.Flatten(), nn.Linear(128, 4)
    )
    model[5] = nn.Conv2d(8, 8, 3, padding=1)
    bitfactor.binarize_(model, activation_estimator={"2": "threshold", "5": "staircase"}, **OWN)
    optimizer, x = torch.optim.Adam(model.parameters(), 0.05), torch.randn(3, 3, 6, 6)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert model[2].sign_input.surrogate.threshold != 0
    bitfactor.export(model.eval(), tmp_path / "net.safetensors", x)
    with torch.no_grad():
        return tmp_path / "net.safetensors", x.numpy(), model(x).numpy()


def test_the_answer_is_that_of_torch_everywhere(trained, compiled, node, tmp_path) -> None:
    path, x, expected = trained
    export_onnx(load(path), tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    bitfactor.freeze(path, tmp_path / "net.bfp")
    page = node("run", file=str(tmp_path / "net.bfp"), x=x[:1], relaxed=False)["outputs"][0]
    found = {
        "python": bitfactor.Session(path)(x),
        "onnx": np.concatenate(
            [session.run(None, {session.get_inputs()[0].name: one[None]})[0] for one in x]
        ),
        "c99": compiled(load(path))(x),
        "page": np.array(page, np.float32).reshape(1, -1),
    }
    for target, values in found.items():
        atol = 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(values, expected[: len(values)], atol=atol, err_msg=target)
