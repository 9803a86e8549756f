"""A penalty that keeps factors near orthonormal; nothing in the paper does, so its weight is 0 by default."""

import torch
from torch import Tensor, nn

from bitfactor.decompositions.latent import Latent


def orthogonality_penalty(model: nn.Module) -> Tensor:
    """Return the sum over all factors F (D, R) of the squared Frobenius norm of F^T F - I.

    A factor that several layers share counts once. Add the result, times a weight, to the loss.

    Example
    -------
    >>> loss = loss + 1e-4 * orthogonality_penalty(model)
    """
    factors: dict[tuple[int, int], Tensor] = {}
    for latent in model.modules():
        if isinstance(latent, Latent):
            factors |= {(f.data_ptr(), f.shape[1]): f for f in latent.orthonormal().values()}
    terms = [
        (f.mT @ f - torch.eye(f.shape[1], dtype=f.dtype, device=f.device)).square().sum()
        for f in factors.values()
    ]
    return torch.stack(terms).sum() if terms else torch.zeros(())
