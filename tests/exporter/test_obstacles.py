"""What a file cannot hold is said at once: each place, with its layer, its line, and the way out."""

import re

import pytest
import torch
from torch import Tensor, nn

from bitfactor.binarization import binarize_
from bitfactor.exporter import UnsupportedError, export

HERE = r"test_obstacles.py:\d+"


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erfinv(x.clamp(-0.5, 0.5))


class Net(nn.Module):
    """Two places, one of them twice, with much between them; one that only follows from another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.plain = nn.Conv2d(8, 8, 3, padding=1)
        self.odd, self.again = Odd(), Odd()

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.body(self.odd(self.stem(x))))
        places = torch.cummax(x, 3).indices
        x = self.plain(x + places.float())
        return self.last(x)


def test_all_places_at_once(tmp_path) -> None:
    model = Net()
    binarize_(model, latent="none")
    with pytest.raises(UnsupportedError) as raised:
        export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 3, 6, 6))
    found = [(one.layer, one.found) for one in raised.value.obstacles]
    assert found == [
        ("odd", "aten.erfinv.default"),
        ("again", "aten.erfinv.default"),
        ("", "aten.cummax.default"),
    ]
    text = str(raised.value)
    assert text.startswith("Net: expected what the file can hold, found 3 places that it cannot")
    assert text.count("\n") == 2
    assert re.search(rf"odd, {HERE}; again, {HERE}: .*aten.erfinv", text)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_traced_is_said_with_its_line() -> None:
    class Decides(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    model = Decides()
    binarize_(model, latent="none")
    with pytest.raises(UnsupportedError) as raised:
        export(model.eval(), "net.safetensors", torch.randn(2, 3, 6, 6))
    (trace,) = raised.value.obstacles
    assert trace.line.startswith("test_obstacles.py:")
    assert "trace" in trace.expected
