import pytest
import torch

from bitfactor.convert import summary
from bitfactor.models import resnet18, resnet34


@pytest.mark.parametrize(("build", "parameters", "macs"), [(resnet18, 11.69, 1.81), (resnet34, 21.80, 3.66)])
def test_size_is_the_known_one(build, parameters, macs):
    figures = summary(build(), (1, 3, 224, 224))
    assert figures.float_bytes / 4e6 == pytest.approx(parameters, abs=0.01)
    assert figures.real_macs / 1e9 == pytest.approx(macs, abs=0.01)


def test_the_groups_of_the_paper():
    assert resnet18().holistic_groups() == {
        f"layer{i}": [f"layer{i}.0.conv2", f"layer{i}.1.conv1", f"layer{i}.1.conv2"] for i in (2, 3, 4)
    }


def test_shortcuts_stay_real():
    assert resnet18().keep_real() == [f"layer{i}.0.downsample.1" for i in (2, 3, 4)]


def test_cifar_stem_keeps_the_size():
    model = resnet18(num_classes=10, stem="cifar").eval()
    assert model.layer1(model.conv1(torch.zeros(1, 3, 32, 32))).shape == (1, 64, 32, 32)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
