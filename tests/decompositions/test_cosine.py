"""The cosine basis of a window, against scipy's."""

import pytest
import torch
from scipy.fft import dctn

from bitfactor.decompositions import Cosine
from bitfactor.errors import InputError


@pytest.mark.parametrize("shape", [(8, 4, 3, 3), (2, 3, 5, 1), (2, 1, 4, 7), (3, 2, 6), (2, 2, 3, 4, 2)])
def test_the_core_is_the_cosine_transform_of_each_window(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64)
    transform = torch.from_numpy(dctn(weight.numpy(), axes=range(2, len(shape)), norm="ortho"))
    torch.testing.assert_close(Cosine.from_weight(weight).core.detach(), transform)


def test_weights_without_a_window_are_free() -> None:
    for shape in ((8, 4), (8, 4, 1, 1)):
        weight = torch.randn(shape)
        latent = Cosine.from_weight(weight)
        torch.testing.assert_close(latent.core.detach(), weight, rtol=0, atol=0)
        torch.testing.assert_close(latent().detach(), weight, rtol=0, atol=0)


def test_the_basis_follows_the_core_and_is_not_saved() -> None:
    latent = Cosine.from_weight(torch.randn(8, 4, 3, 3))
    assert list(latent.state_dict()) == ["core"]
    assert latent.double()().dtype == torch.float64


def test_a_rank_is_refused() -> None:
    with pytest.raises(InputError, match="no rank with latent 'cosine'"):
        Cosine.from_weight(torch.randn(8, 4, 3, 3), rank=2)
