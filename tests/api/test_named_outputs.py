"""Networks whose outputs have names, or are several, are evaluated as they are predicted with."""

import cv2
import numpy as np
import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.api.evaluate import evaluate
from bitfactor.format import InputSpec

LABELS = ("black", "white")


class Network(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.Flatten())
        self.head = nn.Linear(128, 2)

    def forward(self, x):
        features = self.layers(x)
        return self.form(self.head(features), features)


FORMS = {
    "named": lambda scores, features: {"scores": scores, "features": features},
    "two": lambda scores, features: (scores, features),
    "nested": lambda scores, features: {"heads": [scores], "features": features},
}


@pytest.fixture
def images(tmp_path):
    for label, value in zip(LABELS, (0, 255), strict=True):
        (tmp_path / "data" / label).mkdir(parents=True)
        for i in range(3):
            cv2.imwrite(str(tmp_path / "data" / label / f"{i}.png"), np.full((8, 8, 3), value, np.uint8))
    return tmp_path / "data"


def exported(path, form, **options):
    torch.manual_seed(0)
    model = Network(FORMS[form])
    bitfactor.binarize_(model, latent="none")
    return bitfactor.export(model.eval(), path, torch.rand(2, 3, 8, 8), **options)


@pytest.mark.parametrize("form", FORMS)
def test_evaluate_takes_the_first_output_as_predict_does(form, images, tmp_path):
    path = tmp_path / "net.safetensors"
    exported(path, form, input_spec=InputSpec((8, 8), (8, 8), (0.5,) * 3, (0.5,) * 3), labels=LABELS)
    found = evaluate(path, data=images)
    predicted = [one.classes[0].label for one in bitfactor.predict(path, images).images]
    assert [LABELS[index] for index in found.found] == predicted


@pytest.mark.parametrize(
    ("spec", "said"), [(None, True), (InputSpec((8, 8), (8, 8), (0.5,) * 3, (0.5,) * 3), False)]
)
def test_an_export_without_an_input_spec_says_so(spec, said, tmp_path, recwarn):
    exported(tmp_path / "net.safetensors", "two", input_spec=spec)
    told = [str(one.message) for one in recwarn if "has no input_spec" in str(one.message)]
    assert len(told) == said
