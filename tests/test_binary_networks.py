"""The Python of "I have a binary network already" is run as it stands, on a tiny network."""

import re
from pathlib import Path

import numpy as np
import torch

import bitfactor
from bitfactor.format import load
from bitfactor.targets.onnx import export_onnx

PAGE = Path(__file__).parents[1] / "docs/binary_networks.md"


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(bitfactor.models.irnet_resnet20().state_dict(), "resnet20.pth")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if "net.onnx" in block:
            export_onnx(load("net.safetensors"), "net.onnx")
        exec(block, names)
        if "scores" in block:
            expected = names["net"](names["example"]).detach().numpy()
            np.testing.assert_allclose(names["scores"], expected, rtol=1e-4, atol=1e-5)
    assert [layer.kind for layer in names["report"].layers] == ["real", "binary", "binary", "real"]
    assert capsys.readouterr().out.count("replaced") == 2
    converted = bitfactor.Session("converted.safetensors")(names["example"].numpy())
    np.testing.assert_allclose(converted, names["scores"], rtol=1e-4, atol=1e-5)


def test_what_the_page_calls_exists():
    from bitfactor.cli import COMMANDS

    text = PAGE.read_text()
    assert set(re.findall(r"`bitfactor ([\w-]+)", text)) <= set(COMMANDS)
    for name in re.findall(r"`bitfactor\.([\w.]+)\(", text):
        owner = bitfactor
        for part in name.split("."):
            owner = getattr(owner, part)
