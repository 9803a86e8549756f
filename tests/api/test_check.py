"""What a network would become, said before it is trained."""

import copy
import json

import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE
from bitfactor.nn.scale import MAPS, PER_CHANNEL

OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 16, 3), nn.Sigmoid(), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 4, 3))
"""


def network(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 16, 3), *between, nn.Conv2d(16, 16, 3), nn.Conv2d(16, 4, 3))


def test_a_network_that_can_be_exported_and_is_left_as_it_is() -> None:
    model = network(nn.BatchNorm2d(16))
    before = copy.deepcopy(model.state_dict())
    found = bitfactor.check(model, torch.randn(2, 3, 16, 16), latent="tucker", scale="analytic")
    assert found.obstacles == ()
    assert [layer.name for layer in found.plan.binary] == ["2"]
    assert "can be exported" in str(found)
    assert json.loads(found.to_json())["plan"]["layers"][1]["latent"] == "tucker"
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


class Squeezed(nn.Module):
    """What it does depends on the number of samples: one loses its batch."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.features, self.norm = network(nn.BatchNorm2d(16)), norm
        self.fc = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(self.features(x).mean((2, 3), keepdim=True).squeeze()))


@pytest.mark.parametrize("norm", [nn.Identity(), nn.BatchNorm1d(4)])
def test_what_export_refuses_of_one_sample_is_said(norm: nn.Module, tmp_path) -> None:
    model, x = Squeezed(norm).eval(), torch.randn(2, 3, 16, 16)
    found = bitfactor.check(model, x)
    assert "cannot be exported:" in str(found)
    bitfactor.binarize_(model, latent="none", example=x)
    with pytest.raises(InputError) as refused:
        bitfactor.export(model.eval(), tmp_path / "net.safetensors", x)
    assert refused.value.found == found.obstacles[0].found


def test_torch_keeps_its_threads_where_the_timing_fails(monkeypatch) -> None:
    def fail(*_, **__):
        assert torch.get_num_threads() == 1
        raise RuntimeError("not now")

    monkeypatch.setattr("bitfactor.api.check.interleaved", fail)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="not now"):
            bitfactor.check(network(), torch.randn(2, 3, 16, 16))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_constant_of_the_number_of_samples_is_said() -> None:
    class Divided(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / len(x)

    (obstacle,) = bitfactor.check(Divided(*network()), torch.randn(2, 3, 16, 16)).obstacles
    assert obstacle.expected == "the same operations for each number of samples"


class Odd(nn.Module):
    def forward(self, x):
        return x + torch.erfinv(x.clamp(-0.5, 0.5))


def test_what_cannot_be_exported_and_what_is_dead() -> None:
    found = bitfactor.check(network(nn.Sigmoid(), Odd()), torch.randn(2, 3, 16, 16))
    (obstacle,) = found.obstacles
    assert (obstacle.layer, obstacle.found) == ("2", "aten.erfinv.default")
    assert "aten.erfinv.default" in str(found)
    (warning,) = found.plan.warnings
    assert warning.startswith("3: 100%")


@pytest.mark.parametrize(
    "choices",
    [
        {"latent": "svd", "rank": 4},
        *({"latent": latent} for latent in (*LAYERWISE, *JOINT)),
        *({"scale": scale} for scale in (*PER_CHANNEL, *MAPS)),
    ],
    ids=str,
)
def test_every_latent_and_scale_can_be_asked_about(choices) -> None:
    assert not bitfactor.check(network(), torch.randn(2, 3, 12, 12), **choices).obstacles


def test_a_model_that_does_not_run_on_the_example() -> None:
    with pytest.raises(InputError, match=r"layer '0'.*3 channels, but got 1"):
        bitfactor.check(network(), torch.randn(2, 1, 16, 16))


def test_the_command(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    command = ["check", "own.py:Net", "--input", "3", "12", "12"]
    assert main([*command, "--latent", "tucker", "--keep-real", "0"]) == 0
    text = capsys.readouterr().out
    assert "can be exported" in text
    assert "100% of its input channels" in text
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["obstacles"] == []


def test_the_command_for_several_inputs(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table, self.body, self.last = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 2)\n"
        "    def forward(self, ids, weight):\n"
        "        return self.last(self.body(self.body(self.table(ids))) * weight[:, None, None])\n"
        "def given():\n"
        "    return {'ids': torch.arange(8).reshape(2, 4), 'weight': torch.tensor([1.0, 0.5])}\n"
    )
    for name in ("check", "summary"):
        assert main([name, "tokens.py:Net", "--example", "tokens.py:given"]) == 0
        text = capsys.readouterr().out
        assert "body" in text
    assert main(["check", "tokens.py:Net", "--example", "tokens.py:gven"]) == 2
    assert "did you mean given" in capsys.readouterr().err
    assert main(["check", "tokens.py:Net", "--example", "tokens.py:Net"]) == 2
    assert "expected a batch, a tuple" in capsys.readouterr().err


def test_what_one_bit_gives_is_said_in_one_line() -> None:
    found = bitfactor.check(network(), torch.randn(2, 3, 12, 12))
    assert found.price
    assert 0 < found.price.binary_bytes < found.price.float_bytes
    assert str(found).splitlines()[-1] == str(found.price)
    assert "`bitfactor compare` measures what it costs" in str(found.price)


def test_a_typo() -> None:
    with pytest.raises(InputError, match="did you mean latent"):
        bitfactor.check(network(), torch.randn(2, 3, 12, 12), latnet="svd")


class Signed(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(torch.sign(x), torch.sign(self.weight), self.bias)


def test_a_network_that_is_binary_by_its_own_code_is_described_as_it_stands() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), Signed(16, 16, 3), nn.Conv2d(16, 4, 3))
    found = bitfactor.check(model, torch.randn(2, 3, 16, 16))
    assert [(layer.module, layer.kind) for layer in found.layers] == [
        ("0", "real"),
        ("1", "binary"),
        ("2", "real"),
    ]
    assert found.obstacles == ()
    assert str(found).endswith("binary as it stands, can be exported")
    assert "its input is -1 or 1, each filter has two values" in str(found)
    binary = 16 * 16 * 9 * 12 * 12
    assert f"multiply-accumulates: {binary:,} of 1 bit, " in str(found)
    assert [layer.file_bytes for layer in found.stored] == [4 * 16 * 27, 8 * 16 * 9, 4 * 4 * 16 * 9]
    json.dumps(found.to_dict())
