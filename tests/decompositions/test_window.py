"""A weight in a basis of its window that learns."""

import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.decompositions import Cosine, Window


def test_it_starts_as_cosines_with_the_lengths_of_the_columns() -> None:
    weight = torch.randn(8, 4, 3, 3, dtype=torch.float64)
    latent, fixed = Window.from_weight(weight), Cosine.from_weight(weight)
    lengths = fixed.coefficients.detach().reshape(32, 9).norm(dim=0)
    torch.testing.assert_close(latent.coefficients.norm(dim=0).detach(), torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(latent.basis.detach(), fixed.basis * lengths)


@pytest.mark.parametrize("shape", [(8, 4), (8, 4, 1, 1)])
def test_weights_without_a_window_are_free(shape) -> None:
    weight = torch.randn(shape)
    latent = Window.from_weight(weight)
    assert torch.equal(latent.coefficients.view(shape), weight)
    assert torch.equal(latent.basis.detach(), torch.ones(1, 1))


def test_the_patterns_of_most_energy_are_kept() -> None:
    weight = torch.ones(8, 4, 3, 3) + 0.1 * torch.randn(8, 4, 3, 3)
    W = Window.from_weight(weight, 1)()
    torch.testing.assert_close(W, weight.mean((2, 3), keepdim=True).expand(weight.shape))


def test_taps_have_no_rank() -> None:
    with pytest.raises(InputError, match="expected the full rank"):
        Window.from_weight(torch.randn(8, 4, 3, 3), 4, "identity")


@pytest.mark.parametrize("weight", [torch.ones(8, 4, 3, 3), torch.zeros(8, 4, 3, 3)])
def test_a_pattern_that_no_filter_has_can_still_be_learned(weight) -> None:
    latent = Window.from_weight(weight)
    latent()[..., 0, 0].sum().backward()
    assert latent.coefficients.grad.abs().amin(0).min() > 0.1
