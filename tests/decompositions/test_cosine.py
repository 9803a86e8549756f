"""The cosine basis of a window, against scipy's."""

import pytest
import torch
from scipy.fft import dctn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Cosine


@pytest.mark.parametrize("shape", [(8, 4, 3, 3), (2, 3, 5, 1), (2, 1, 4, 7), (3, 2, 6), (2, 2, 3, 4, 2)])
def test_the_coefficients_are_the_cosine_transform_of_each_window(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64)
    transform = torch.from_numpy(dctn(weight.numpy(), axes=range(2, len(shape)), norm="ortho"))
    torch.testing.assert_close(Cosine.from_weight(weight).coefficients.detach(), transform)


def test_weights_without_a_window_are_free() -> None:
    for shape in ((8, 4), (8, 4, 1, 1)):
        weight = torch.randn(shape)
        latent = Cosine.from_weight(weight)
        torch.testing.assert_close(latent.coefficients.detach(), weight, rtol=0, atol=0)
        torch.testing.assert_close(latent().detach(), weight, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_basis_is_exact_whatever_the_coefficients_were_cast_to(dtype: torch.dtype) -> None:
    latent = Cosine.from_weight(torch.randn(8, 4, 3, 3)).to(dtype)
    assert list(latent.state_dict()) == ["coefficients"]
    other = Cosine.from_weight(torch.randn(8, 4, 3, 3)).to(latent().dtype)
    other.load_state_dict(latent.state_dict())
    torch.testing.assert_close(other(), latent(), rtol=0, atol=0)
    torch.testing.assert_close(latent.float()(), other.float()(), rtol=0, atol=0)


def test_there_are_no_factors() -> None:
    with pytest.raises(InputError, match="a latent with factors"):
        bitfactor.Binarization(latent="cosine", rank=2)
    model = torch.nn.Sequential(*[torch.nn.Conv2d(8, 8, 3) for _ in range(3)])
    plan = bitfactor.binarize_(model, latent="cosine", weight_estimator="identity")  # warns of no factors
    assert [layer.rank for layer in plan.binary] == [()]


def test_a_rank_is_refused() -> None:
    with pytest.raises(InputError, match="no rank"):
        Cosine.from_weight(torch.randn(8, 4, 3, 3), rank=2)
