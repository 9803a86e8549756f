"""What others write in a forward: shapes of values, regions of autocast, choices as one-hot vectors."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.models import resnet18
from bitfactor.models.resnet import ResNet


class Around(nn.Module):
    """A stem, an idiom on its maps (N, 8, H, W), a binary layer and a linear layer."""

    def __init__(self, idiom):
        super().__init__()
        self.stem, self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 4)
        self.b = nn.Parameter(torch.randn(1, 8, 1, 1))
        self.experts = nn.Parameter(torch.randn(8, 8, 1, 1))
        self.idiom = idiom

    def forward(self, x):
        x = self.stem(x)
        return self.fc(self.conv(self.idiom(self, x)).mean((2, 3)))


def exported(model, path, side=8):
    torch.manual_seed(0)
    bitfactor.binarize_(
        model.eval(), latent="none", keep_real=["stem", "fc"] if hasattr(model, "stem") else []
    )
    x = torch.randn(3, 3, side, side)
    bitfactor.export(model, path, x)
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(bitfactor.Session(path)(x.numpy()), expected, rtol=1e-3, atol=1e-3)


def without_autocast(model, x):
    with torch.autocast("cpu", enabled=False):
        y, z = x * model.b, x + model.b
    return y - z


def nested(model, x):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        with torch.autocast("cpu", enabled=False):
            y = x * model.b
        return y + x


def of_another_device(model, x):
    with torch.autocast("cuda", dtype=torch.float16):
        return x * model.b


def without_gradients(model, x):
    with torch.no_grad():
        y = x * model.b
    return x + y


def checkpointed(model, x):
    return checkpoint(lambda v: v * model.b + 1, x, use_reentrant=False)


def chosen(model, x):
    choice = F.one_hot(x.mean((2, 3)).argmax(1), 8).float()
    return x + (choice @ model.experts.flatten(1))[:, :, None, None]


IDIOMS = {
    "expand_as": lambda m, x: x + m.b.expand_as(x),
    "view_as": lambda m, x: (
        x + m.b.expand_as(x[:, :, :2, :1]).flatten(2).view_as(x[:, :, :1, :2]).sum(3, True)
    ),
    "reshape_as": lambda m, x: x * m.b.flatten(1).expand_as(x[:, :, 0, 0]).reshape_as(x[:, :, :1, :1]),
    "broadcast_to": lambda m, x: x + m.b.broadcast_to(x.shape),
    "autocast off": without_autocast,
    "nested": nested,
    "autocast of another device": of_another_device,
    "no_grad": without_gradients,
    "checkpoint": checkpointed,
    "one_hot": chosen,
    "any of several": lambda m, x: x * (x > 0).any(dim=(2, 3), keepdim=True).float(),
    "all of several": lambda m, x: x * (x > -1).all(dim=(2, 3))[:, :, None, None].float(),
}


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_exported(name, tmp_path):
    exported(Around(IDIOMS[name]), tmp_path / "net.safetensors")


def test_a_region_of_another_type_is_refused_by_name(tmp_path):
    def idiom(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model.conv(x).float()[:, :, :1, :1] + x

    with pytest.raises(InputError, match=r"torch\.autocast inside of the model: .*bfloat16"):
        exported(Around(idiom), tmp_path / "net.safetensors")


def test_export_and_check_under_autocast(tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        model = Around(lambda m, x: x)
        bitfactor.check(model, torch.randn(2, 3, 8, 8))
        bitfactor.binarize_(model.eval(), latent="none")
        bitfactor.export(model, tmp_path / "net.safetensors", torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize("side", [14, 18, 20])
def test_maps_of_odd_sides_keep_their_edge_in_shortcuts(side, tmp_path):
    model = ResNet((1, 1, 1), (8, 8, 16), 3, stem="halving")
    exported(model, tmp_path / "net.safetensors", side)


def test_resnet18_takes_images_of_112_pixels():
    assert resnet18(num_classes=3).eval()(torch.zeros(1, 3, 112, 112)).shape == (1, 3)
