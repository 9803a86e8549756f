"""Weights that authors published for their binary networks, as float weights that `binarize_` makes the same.

Authors sign, centre and scale their weights each in their own way. What a convolution is given here has their
signs, and their scale as the mean magnitude of each filter, which is where `binarize_` takes its scale from.
"""

from torch import Tensor, nn


def flat_as_shaped(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `weights` (n, 1) as the `weight` that the convolution of this name has."""
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    shaped = {}
    for name, tensor in tensors.items():
        plain = name.removesuffix("s") if name.endswith(".weights") else name
        fits = plain in shapes and plain != name and tensor.numel() == shapes[plain].numel()
        shaped[plain] = tensor.reshape(shapes[plain]) if fits else tensor
    return shaped


def with_scale(weight: Tensor, alpha: Tensor | float) -> Tensor:
    """Return alpha times the weight, each filter at mean magnitude abs(alpha).

    `binarize_` then gives signs sign(alpha W) and a scale abs(alpha), whose product is alpha sign(W).
    """
    filters = (-1, *(1,) * (weight.dim() - 1))
    mean = weight.abs().flatten(1).mean(1).view(filters)
    return weight / mean * (alpha.view(filters) if isinstance(alpha, Tensor) else alpha)


def standardised(weight: Tensor) -> Tensor:
    """Return the weight with mean 0 and deviation 1 in each filter."""
    centred = weight - weight.flatten(1).mean(1).view(-1, 1, 1, 1)
    return centred / centred.flatten(1).std(1).view(-1, 1, 1, 1)
