import pytest
import torch
from torch import nn

from bitfactor.convert import binarize_, parameter_groups
from bitfactor.decompositions import JOINT, LAYERWISE


@pytest.mark.parametrize("latent", [*LAYERWISE, *JOINT])
def test_each_parameter_is_in_one_group(latent) -> None:
    layers = [
        nn.Conv2d(3, 8, 3),
        *(nn.Conv2d(8, 8, 3) for _ in range(3)),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 4, 3),
    ]
    model = nn.Sequential(*layers)
    binarize_(model, latent=latent)
    groups = {group["name"]: group for group in parameter_groups(model, weight_decay=0.1)}
    held = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())
    assert len(groups["alphas"]["params"]) == 3
    assert len(groups["weights"]["params"]) == 2
    assert [groups[name]["weight_decay"] for name in ("latents", "weights", "alphas", "rest")] == [
        0.1,
        0.1,
        0,
        0,
    ]
    assert ("factors" in groups) == (latent != "none")
    torch.optim.Adam(groups.values(), lr=0.1).step()


def test_the_core_is_the_latent() -> None:
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(4)])
    binarize_(model, latent="holistic")
    groups = {group["name"]: group["params"] for group in parameter_groups(model)}
    assert groups["latents"] == [model[1].latent.core]
    assert len(groups["factors"]) == 3
