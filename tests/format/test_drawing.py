"""The drawing is valid XML whatever names are in it, the same each time, and shows every operation."""

import os
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from bitfactor.format import Graph, Node, Value
from bitfactor.format.drawing import _printable, svg
from bitfactor.runtime.zoo import file_of

SVG = "{http://www.w3.org/2000/svg}"


def texts(image):
    root = ElementTree.fromstring(image)
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


def test_every_operation_is_shown_with_its_shape(model):
    found = texts(svg(model, "net.safetensors"))
    assert found[0] == "net.safetensors"
    assert [text for text in found if text.startswith("binary conv 3×3")] == ["binary conv 3×3conv"]
    assert found.count("70×8×8") == 2
    assert found.count("3×8×8") == 2
    assert "output y" in found


def test_a_binary_and_a_real_weight_have_their_colours(model):
    root = ElementTree.fromstring(svg(model, ""))
    assert sum(rect.get("class") == "binary" for rect in root.iter(f"{SVG}rect")) == 2, "legend and layer"
    real = Node(
        "y", "linear", ("x",), {}, {"weight": np.ones((3, 4), np.float32), "bias": np.ones(3, np.float32)}
    )
    other = replace(model, graph=Graph(Value("x", (4,), "float32"), (real,), ("y",)))
    kinds = [rect.get("class") for rect in ElementTree.fromstring(svg(other, "")).iter(f"{SVG}rect")]
    assert kinds.count("real") == 2, "legend and layer"
    assert kinds.count("binary") == 1, "legend"


def test_the_same_model_gives_the_same_text():
    """In processes whose sets have another order."""
    code = "from bitfactor.format.drawing import svg; from bitfactor.runtime import Session; import sys; "
    code += "print(svg(Session(sys.argv[1]).model, 'a'))"
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code, file_of("digits")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "12"
    )
    assert first == second
    assert first.startswith(b"<")


@pytest.mark.parametrize("name", ["<b>&\"'", "a\x01\x1bb", "名前.conv", "x" * 500, "]]>", " "])
def test_any_name_gives_valid_xml(model, name):
    first, *rest = model.graph.nodes
    rest[0] = replace(rest[0], inputs=(name,))
    graph = replace(model.graph, nodes=(replace(first, name=name), *rest))
    image = svg(replace(model, graph=graph), name)
    shown = _printable(name).strip()
    assert texts(image)[0] in (shown, "") or texts(image)[0].startswith("…")
    assert ("名前" in image) == ("名前" in name)


def test_long_names_are_cut_from_their_beginning(model):
    scale = replace(model.graph.nodes[-1], name="stage." * 20 + "last")
    graph = replace(model.graph, nodes=(*model.graph.nodes[:-1], scale), outputs=(scale.name,))
    assert any(
        "…" in text and text.endswith("stage.last") for text in texts(svg(replace(model, graph=graph), ""))
    )


def test_what_the_pointer_shows(model):
    root = ElementTree.fromstring(svg(model, ""))
    (tip,) = [e.text for e in root.iter(f"{SVG}title") if e.text and e.text.startswith("conv = ")]
    assert "weight: uint64 3×3×3×2, 432 bytes" in tip
    assert f"{3 * 8 * 8 * 9 * 70:,} multiply-accumulates" in tip
