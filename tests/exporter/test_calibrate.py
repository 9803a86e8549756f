"""`export(calibration=samples)`: ranges in the file, and what 8-bit integers cost in the report."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.exporter.report import with_ranges
from bitfactor.format import InputSpec, Node, load
from bitfactor.runtime import Session, instruction_sets

DRAWS = torch.Generator().manual_seed(0)
SPEC = InputSpec((16, 16), (16, 16), (0.5, 0.4, 0.3), (0.2, 0.25, 0.25))
IMAGES = torch.randint(0, 256, (24, 3, 16, 16), generator=DRAWS) / 255
SAMPLES = (IMAGES - torch.tensor(SPEC.mean)[:, None, None]) / torch.tensor(SPEC.std)[:, None, None]


def classifier():
    torch.manual_seed(0)
    binary = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
    binarize_(binary, Binarization("none", real_ends=False))
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(8))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(stem, binary, nn.Conv2d(8, 8, 1), head)


def finder():
    """Heatmaps of five keypoints."""
    return nn.Sequential(classifier()[:3], nn.Conv2d(8, 5, 1))


def trained(model):
    model.train()(SAMPLES)
    return model.eval()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


@pytest.mark.parametrize(("model", "decisions"), [(classifier, "classes"), (finder, "joints")])
def test_every_instruction_set_gives_the_bits_of_the_reference(path, model, decisions):
    report = export(trained(model()), path, SAMPLES[:2], calibration=SAMPLES, input_spec=SPEC)
    x = SAMPLES[:5].numpy()
    expected = Session(path, isa="reference", precision="low")(x)
    for isa in instruction_sets():
        session = Session(path, isa=isa, precision="low")
        session.verify()
        np.testing.assert_array_equal(session(x), expected)
    exact = Session(path)(SAMPLES.numpy())
    low = Session(path, precision="low")(SAMPLES.numpy())
    assert not np.array_equal(low, exact)
    cost = report.calibration
    assert (cost.samples, cost.decisions) == (24, decisions)
    assert cost.max_difference == pytest.approx(abs(low - exact).max() / abs(exact).max())
    axis = 1 if decisions == "classes" else 2
    same = low.reshape(*low.shape[:axis], -1).argmax(-1) == exact.reshape(*low.shape[:axis], -1).argmax(-1)
    assert cost.agreement == pytest.approx(same.mean())
    assert f"over 24 samples: {same.mean():.2%} of {decisions}" in str(report)
    assert load(path).report["calibration"]["agreement"] == cost.agreement


@pytest.mark.parametrize(("model", "decisions"), [(classifier, "classes"), (finder, "joints")])
def test_ranges_of_all_values_make_integers(path, model, decisions):
    report = export(trained(model()), path, SAMPLES[:2], calibration=SAMPLES, input_spec=SPEC)
    session = Session(path, precision="integer")
    session.verify()
    exact, found = Session(path)(SAMPLES.numpy()), session(SAMPLES.numpy())
    cost = report.integers
    assert (cost.samples, cost.decisions, cost.precision) == (24, decisions, "integer")
    assert cost.max_difference == pytest.approx(abs(found - exact).max() / abs(exact).max())
    assert "precision integer, over 24 samples" in str(report)
    assert load(path).report["integers"]["agreement"] == cost.agreement
    assert load(path).ranges.keys() == {
        name for name, value in session.model.graph.values.items() if value.dtype == "float32"
    }


def test_a_network_without_integers_is_calibrated_for_8_bits_alone(path):
    gated = nn.Sequential(classifier(), nn.Sigmoid())
    report = export(trained(gated), path, SAMPLES[:2], calibration=SAMPLES, input_spec=SPEC)
    assert report.calibration is not None
    assert report.integers is None
    assert not load(path).ranges
    Session(path, precision="low")(SAMPLES.numpy())


def test_other_precisions_stay_as_they_are(tmp_path):
    files = [tmp_path / "plain.safetensors", tmp_path / "calibrated.safetensors"]
    for file, samples in zip(files, (None, [SAMPLES[:20], SAMPLES[20:]]), strict=True):
        export(trained(classifier()), file, SAMPLES[:2], calibration=samples)
    with pytest.raises(InputError, match=r"for precision 'low', found none; .* calibration=samples"):
        Session(files[0], precision="low")
    plain, calibrated = (Session(file) for file in files)
    np.testing.assert_array_equal(plain(SAMPLES.numpy()), calibrated(SAMPLES.numpy()))
    assert "calibration" not in load(files[0]).report


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "net.safetensors"
    export(trained(classifier()), path, SAMPLES[:2])
    return load(path).graph


def ranges(graph, samples):
    layers = with_ranges(graph, samples.numpy(), SPEC).nodes
    return [node.tensors["range"] for node in layers if node.op in ("conv2d", "linear")]


def test_an_image_has_its_own_range_and_0_is_a_level_of_the_others(graph):
    stem, *others = ranges(graph, SAMPLES)
    mean, std = np.array(SPEC.mean), np.array(SPEC.std)
    np.testing.assert_allclose(stem, [-mean / std, (1 - mean) / std], rtol=1e-6)
    for lowest, highest in others:
        level = -lowest / (highest - lowest) * 255
        assert level == pytest.approx(round(level), abs=1e-4)


@pytest.mark.parametrize("samples", [SAMPLES * 3, torch.randn(9, 3, 16, 16, generator=DRAWS)])
def test_samples_that_are_no_such_images_have_one_range(graph, samples):
    """Theirs, moved by a step at most so that 0 is a level; what is far out may be cut off."""
    lowest, highest = ranges(graph, samples)[0]
    step = (highest - lowest) / 255
    assert lowest - step <= samples.min()
    assert highest + step >= samples.max()
    assert highest - lowest < 1.05 * float(samples.max() - samples.min())


UNUSABLE = {
    r"calibration: expected samples shaped \(N, 3, 16, 16\), found shape \(2, 3, 8, 8\)": SAMPLES[
        :2, :, :8, :8
    ],
    r"found shape \(0, 3, 16, 16\)": SAMPLES[:0],
    "expected a tensor of samples, .* found no batch": [],
    "calibration: expected samples that vary, found 0.5 everywhere": torch.full((4, 3, 16, 16), 0.5),
    "calibration: expected finite values": SAMPLES * torch.nan,
    "calibration: expected float32": SAMPLES.double(),
}


@pytest.mark.parametrize(("message", "samples"), UNUSABLE.items())
def test_samples_that_are_none(path, message, samples):
    with pytest.raises(InputError, match=message):
        export(trained(classifier()), path, SAMPLES[:2], calibration=samples)
    assert not path.exists()


def test_a_layer_whose_input_is_always_the_same(graph):
    flat = next(node for node in graph.nodes if node.op == "linear")
    nothing = Node("nothing", "clip", flat.inputs, {"lower": -1e9, "upper": -1e8})
    nodes = [
        one
        for node in graph.nodes
        for one in ((nothing, replace(node, inputs=("nothing",))) if node is flat else (node,))
    ]
    with pytest.raises(InputError, match=r"calibration, node .* \(linear\): .* found -1e\+08 in all samples"):
        with_ranges(replace(graph, nodes=tuple(nodes)), SAMPLES.numpy(), SPEC)
