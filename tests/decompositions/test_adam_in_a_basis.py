"""What `cosine` and `window` are: the optimizer in another basis of the window, and a rate for each layer.

Both are theorems about the update, so that float64 shows them but for rounding.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bitfactor.decompositions import Cosine, Dense, Latent, Window
from bitfactor.nn import BinaryConv2d
from bitfactor.training.optimization import SOAP

STEPS = 40
CHANNELS = 8


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def network(latent: str) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1, latent=latent) for _ in range(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS * 36, 4))


def trained(latent: str, optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> list[Tensor]:
    """Return W of each layer after the training."""
    model = network(latent)
    steps = optimizer(list(model.parameters()))
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        images = torch.randn(16, CHANNELS, 6, 6, generator=generator)
        labels = torch.randint(4, (16,), generator=generator)
        steps.zero_grad()
        cross_entropy(model(images), labels).backward()
        steps.step()
    return [layer.latent().detach() for layer in model if isinstance(layer, BinaryConv2d)]


def apart(ours: list[Tensor], theirs: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


def test_cosine_is_a_free_weight_under_sgd_with_momentum_and_decay() -> None:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-2)

    free, cosine = trained("none", sgd), trained("cosine", sgd)
    first = [layer.latent().detach() for layer in network("none")[:2]]
    assert apart(free, first) > 0.01
    assert apart(cosine, free) < 1e-12


def test_cosine_is_a_free_weight_under_soap_which_finds_the_basis_itself() -> None:
    def soap(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return SOAP([{"name": "latents", "params": parameters}], lr=0.01)

    assert apart(trained("cosine", soap), trained("none", soap)) < 1e-9


def test_under_adam_cosine_is_not_a_free_weight() -> None:
    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    assert apart(trained("cosine", adam), trained("none", adam)) > 0.01


def descend(latent: Latent, learned: nn.Parameter, lengths: Tensor, target: Tensor) -> Tensor:
    """Return W after Adam's steps with `learned`; each pattern's are `lengths` times the rate."""
    adam = torch.optim.Adam([learned], lr=0.01, eps=0)
    for step in range(STEPS):
        adam.zero_grad()
        W = latent()
        (torch.tanh(W - target) * torch.cos(W + step)).sum().backward()
        before = learned.detach().clone()
        adam.step()
        with torch.no_grad():
            moved = (learned - before).view(-1, len(lengths)) * lengths
            learned.copy_(before + moved.view_as(before))
    return latent().detach()


@pytest.mark.parametrize(
    ("initialisation", "basis"), [("factorised", Cosine), ("identity", Dense)], ids=["cosines", "taps"]
)
@pytest.mark.parametrize("equal", [True, False], ids=["rate per layer", "rate per pattern"])
def test_window_whose_basis_stands_still_is_adam_in_that_basis(initialisation, basis, equal) -> None:
    """One step of A with columns of length 1 is a step of the coefficients, times the column's length.

    Adam divides each gradient by its own size, so the length that multiplies A's gradient cancels and the
    length that multiplies A's step in W = A (C diag(l))^T stays.
    """
    torch.manual_seed(0)
    weight, target = torch.randn(2, 16, 8, 3, 3)
    window = Window.from_weight(weight, initialisation=initialisation)
    if equal:
        mean = window.basis.norm(dim=0).mean()
        window.basis.data *= mean / window.basis.norm(dim=0)
    free = basis.from_weight(window().detach())
    lengths = window.basis.detach().norm(dim=0)
    ours = descend(window, window.coefficients, torch.ones(9), target)
    theirs = descend(free, next(free.parameters()), lengths, target)
    assert float((ours - weight).abs().max()) > 0.1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("channels", "rate"), [(32, 2.67), (64, 3.77), (128, 5.33)])
def test_that_rate_is_the_root_of_two_ninths_of_the_channels(channels: int, rate: float) -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(channels, channels, 3, latent="window")
    assert isinstance(layer.latent, Window)
    torch.testing.assert_close(
        layer.latent.basis.detach().norm(dim=0), torch.full((9,), rate), rtol=0.1, atol=0
    )
    assert rate == pytest.approx((2 * channels / 9) ** 0.5, abs=0.005)
