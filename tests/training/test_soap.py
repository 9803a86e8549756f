"""SOAP on the window: Adam, in the basis that the gradients have."""

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bitfactor.nn import BinaryConv2d, BinaryLinear
from bitfactor.training import Optimization
from bitfactor.training.optimization import SOAP, optimizer_of

RATE, SHAPE = 0.01, (4, 3, 3, 3)


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def gradients_of(shape: tuple[int, ...] = SHAPE, steps: int = 8) -> list[Tensor]:
    """Return gradients whose taps are correlated, and not all as large."""
    mix = torch.randn(shape[-1], shape[-1])
    return [torch.randn(shape) @ mix + torch.randn(shape).cumsum(-2) for _ in range(steps)]


def moved(start: Tensor, gradients: list[Tensor], optimizer: type = SOAP, **options: object) -> Tensor:
    """Return where a weight is after steps along gradients."""
    p = nn.Parameter(start.clone())
    steps = optimizer([{"name": "latents", "params": [p]}], lr=RATE, **options)
    for gradient in gradients:
        p.grad = gradient.clone()
        steps.step()
    return p.detach()


def reference(start: Tensor, gradients: list[Tensor], taps: int, frequency: int, decay: float) -> Tensor:
    """Return the same from the formulas of the paper, with one side alone."""
    W = start.reshape(-1, taps).numpy().copy()
    m, v, P = np.zeros_like(W), np.zeros_like(W), np.zeros((taps, taps))
    G = gradients[0].reshape(-1, taps).numpy()
    _, Q = np.linalg.eigh(G.T @ G)
    for t, gradient in enumerate(gradients, start=1):
        G = gradient.reshape(-1, taps).numpy()
        m = 0.9 * m + 0.1 * G
        v = 0.999 * v + 0.001 * (G @ Q) ** 2
        N = (m @ Q / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        W = W - RATE * decay * W - RATE * N @ Q.T
        P = 0.999 * P + 0.001 * G.T @ G
        if t % frequency == 0:
            order = np.argsort(-np.diag(Q.T @ P @ Q))
            v, Q = v[:, order], Q[:, order]
            Q, _ = np.linalg.qr(P @ Q)
    return torch.from_numpy(W).view(start.shape)


@pytest.mark.parametrize(("shape", "taps"), [(SHAPE, 9), ((3, 4, 3), 3), ((2, 4, 3, 3, 3), 9)])
def test_steps_are_those_of_the_formulas(shape, taps):
    """Of a window of two modes, of one, and of the core of several layers."""
    start, gradients = torch.randn(shape), gradients_of(shape)
    ours = moved(start, gradients, frequency=3, weight_decay=0.1)
    theirs = reference(start, gradients, taps, frequency=3, decay=0.1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_where_taps_are_not_correlated_it_is_adam():
    """Each filter's gradient has one tap, so G^T G is diagonal. Of its zeros rounding over eps is left."""
    start, taps = torch.randn(6, 3, 3, 3), torch.eye(9).repeat(2, 1).view(6, 3, 3, 3)
    gradients = [torch.randn(6, 3, 3, 3) * taps for _ in range(8)]
    ours = moved(start, gradients, frequency=3, weight_decay=0.0)
    theirs = moved(start, gradients, torch.optim.Adam)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_a_rotated_window_is_trained_to_a_rotated_weight():
    def rotated(x: Tensor) -> Tensor:
        return (x.reshape(-1, 9) @ rotation).view(x.shape)

    rotation = torch.linalg.qr(torch.randn(9, 9)).Q
    start, gradients = torch.randn(SHAPE), gradients_of()
    for optimizer, options, is_rotated in (
        (SOAP, {"frequency": 3}, True),
        (torch.optim.AdamW, {}, False),
    ):
        plain = moved(start, gradients, optimizer, **options)
        other = moved(rotated(start), [rotated(g) for g in gradients], optimizer, **options)
        assert torch.allclose(other, rotated(plain), rtol=0, atol=1e-10) == is_rotated


@pytest.mark.parametrize(
    ("shape", "name"), [((4, 3, 1, 1), "latents"), ((4, 9), "latents"), (SHAPE, "weights")]
)
def test_what_has_no_window_and_other_parameters_are_adamws(shape, name):
    start, gradients = torch.randn(shape), gradients_of(shape)
    p = nn.Parameter(start.clone())
    steps = SOAP([{"name": name, "params": [p]}], lr=RATE)
    for p.grad in gradients:
        steps.step()
    assert steps.state[p].keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert torch.equal(p.detach(), moved(start, gradients, torch.optim.AdamW))


def test_another_goes_on_from_its_state_bit_for_bit():
    """In float32, across an update of the basis."""
    torch.set_default_dtype(torch.float32)
    layers = [BinaryConv2d(2, 4, 3, latent="tucker"), BinaryConv2d(4, 5, 3, latent="none"), nn.Flatten()]
    model = nn.Sequential(*layers, BinaryLinear(20, 3, latent="none"))
    plan = Optimization(epochs=1, batch_size=1, learning_rate=RATE, optimizer="soap", weight_decay=0.1)
    before = copy.deepcopy(model)
    whole, x = optimizer_of(model, plan), torch.randn(7, 2, 6, 6)

    def train(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(7):
            optimizer.zero_grad()
            network(x).square().sum().backward()
            optimizer.step()

    train(model, whole)
    assert all(p.grad is not None for p in model.parameters())
    assert not any(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))
    other = copy.deepcopy(model)
    resumed = optimizer_of(other, plan)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    train(model, whole)
    train(other, resumed)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
