"""What `binarize_` would do, as a table and as JSON."""

import json

import pytest
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError

EXPECTED = """\
layer  shape    kind    latent    rank   bank  place  scale    float bytes  latent bytes  file bytes  reason
-----  -------  ------  --------  -----  ----  -----  -------  -----------  ------------  ----------  -------------------------------------------------------------
0      4x3x3x3  real                                                   432                            first layer, in the order of modules; an example tells better
1      4x4x1    binary  tucker    4x4x1               learned           64           196          32  in no group: layer-wise
2      4x4      binary  holistic  2x4x4  4x4   0      learned           64           272          32  turns binary
3      4x4      binary  holistic  2x4x4  4x4   1      learned           64             0          32  turns binary
4      4x4      real                                                    64                            last layer, in the order of modules; an example tells better
warning: the tucker latent of 1 takes 196 bytes in training, 3.1 times the weight; rank=0.5 would bring it below 2 times"""  # noqa: E501


def model() -> nn.Module:
    linears = [nn.Linear(4, 4) for _ in range(3)]
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv1d(4, 4, 1), *linears)


def test_table() -> None:
    assert str(binarize_(model(), dry_run=True)) == EXPECTED


def test_a_second_call_says_what_is_binary_already() -> None:
    network = model()
    binarize_(network, Binarization(latent="none"))
    plan = binarize_(network, Binarization(latent="none"), dry_run=True)
    assert {layer.reason for layer in plan.binary} == {"is binary already"}


def test_json() -> None:
    plan = binarize_(model(), dry_run=True)
    layers = json.loads(json.dumps(plan.to_dict()))["layers"]
    assert layers[3] == {
        "name": "3", "shape": [4, 4], "binary": True, "reason": "turns binary", "latent": "holistic",
        "bank": "4x4", "place": [1], "scale": "learned", "rank": [2, 4, 4],
        "weight_bytes": 64, "latent_bytes": 0, "packed_bytes": 32,
        "activation_estimator": "clipped", "weight_estimator": "clipped", "weight_transform": "none",
        "kind": "binary",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("activations", "weights", "kind"),
    [
        (True, True, "binary"),
        (True, False, "binary inputs"),
        (False, True, "binary weights"),
        (False, False, "real"),
    ],
)
def test_what_turns_binary_is_what_the_plan_says(activations, weights, kind):
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    options = Binarization(latent="none", activations=activations, weights=weights)
    plan = binarize_(model, options, dry_run=True)
    (layer,) = plan.binary
    assert layer.kind == kind
    assert layer.packed_bytes == (64 * 64 // 8 if weights else 4 * 64 * 64)
    assert f"  {kind}  " in str(plan)


def test_a_model_without_layers_has_nothing_to_turn():
    with pytest.raises(InputError, match="a layer that can turn binary, found none with a weight"):
        binarize_(nn.ReLU())
