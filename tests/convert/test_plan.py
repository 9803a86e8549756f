import json

from torch import nn

from bitfactor.convert import Binarization, binarize_

EXPECTED = """\
layer  shape    kind    latent    bank  place  scale    reason
-----  -------  ------  --------  ----  -----  -------  -----------------------
0      4x3x3x3  real                                    first layer
1      4x4x1    binary  tucker                 learned  in no group: layer-wise
2      4x4      binary  holistic  4x4   0      learned  turns binary
3      4x4      binary  holistic  4x4   1      learned  turns binary
4      4x4      real                                    last layer"""


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
        "bank": "4x4", "place": [1], "scale": "learned",
    }  # fmt: skip
