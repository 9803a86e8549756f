"""Where does a sign flip? Found by running the float pipeline itself, never by solving for it.

Between a value and the next sign stand per-channel operations (scale, ReLU, PReLU, clip, affine), each
rounded to float32. Their composition is monotone per channel, so the sign is a comparison with one number:
+1 where direction * x > direction * threshold. For the sums of a binary layer, every possible sum is tried;
for a float, the threshold is found by bisection over all float32 numbers. Rounding, ties, negative alpha and
zero or negative gamma therefore need no case of their own.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.format import Node

Thresholds = tuple[NDArray[np.float32], NDArray[np.int8]]


def apply(chain: Sequence[Node], x: Tensor) -> Tensor:
    """Run per-channel operations on x (1, C, M, 1) with torch's own kernels."""
    for node in chain:
        parameters = {role: torch.from_numpy(array) for role, array in node.tensors.items()}
        x = _KERNELS[node.op](x, parameters | dict(node.attributes))
    return x


def of_sums(chain: Sequence[Node], channels: int, largest: int) -> Thresholds | None:
    """Return the thresholds, on sums in -largest..largest, of `chain` followed by a sign.

    None if the chain is not monotone.

    Returns
    -------
    threshold (C,), direction (C,)
    """
    sums = torch.arange(-largest, largest + 1, dtype=torch.float32)
    positive = apply(chain, sums.view(1, 1, -1, 1).expand(1, channels, -1, 1))[0, :, :, 0] > 0
    if bool(((positive[:, 1:] != positive[:, :-1]).sum(1) > 1).any()):
        return None
    rising, falling = positive[:, -1] & ~positive[:, 0], positive[:, 0] & ~positive[:, -1]
    threshold = torch.where(positive[:, 0], -torch.inf, torch.inf)
    threshold[rising] = sums[(~positive).sum(1) - 1][rising]
    threshold[falling] = sums[positive.sum(1).clamp(max=len(sums) - 1)][falling]
    return threshold.numpy(), torch.where(falling, -1, 1).to(torch.int8).numpy()


def of_floats(chain: Sequence[Node], channels: int) -> Thresholds:
    """Return the thresholds on float32 numbers of a monotone `chain` followed by a sign.

    Returns
    -------
    threshold (C,), direction (C,)
    """
    low = torch.full(
        (channels,), _to_rank(torch.tensor(-torch.finfo(torch.float32).max)).item(), dtype=torch.int64
    )
    high = -low - 1
    at_low, at_high = _positive(chain, low), _positive(chain, high)
    falling = at_low & ~at_high
    for _ in range(33):
        middle = (low + high).div(2, rounding_mode="floor")
        like_low = _positive(chain, middle) == at_low
        low, high = torch.where(like_low, middle, low), torch.where(like_low, high, middle)
    threshold = torch.where(falling, _from_rank(high), _from_rank(low))
    threshold = torch.where(at_low == at_high, torch.where(at_low, -torch.inf, torch.inf), threshold)
    return threshold.numpy(), torch.where(falling, -1, 1).to(torch.int8).numpy()


def _positive(chain: Sequence[Node], ranks: Tensor) -> Tensor:
    return apply(chain, _from_rank(ranks).view(1, -1, 1, 1)).flatten() > 0


def _to_rank(x: Tensor) -> Tensor:
    """Number the float32 values in their order: -0.0 is -1, 0.0 is 0."""
    bits = x.view(torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def _from_rank(rank: Tensor) -> Tensor:
    bits = torch.where(rank < 0, (-rank - 1) | -0x80000000, rank)
    return bits.to(torch.int32).view(torch.float32)


def _affine(x: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    channels = x.shape[1]
    zeros, ones = torch.zeros(channels), torch.ones(channels)
    # Not the function of torch.nn.functional, which in some versions of torch refuses an eps of 0.
    return torch.batch_norm(x, tensors["scale"], tensors["shift"], zeros, ones, False, 0.0, 0.0, False)


_KERNELS = {
    "scale": lambda x, tensors: x * tensors["alpha"].view(-1, 1, 1),
    "relu": lambda x, tensors: torch.relu(x),
    "prelu": lambda x, tensors: F.prelu(x, tensors["slope"]),
    "clip": lambda x, bounds: torch.clamp(x, bounds["lower"], bounds["upper"]),
    "affine": _affine,
}
