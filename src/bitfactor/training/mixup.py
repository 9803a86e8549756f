"""Softened targets of classification: label smoothing and mixup (Zhang et al. 2018)."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def soften(
    inputs: Tensor,
    target: Tensor,
    classes: int,
    smoothing: float,
    mixup: float,
    generator: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """Blend each image with another of the batch, and spread `smoothing` of the target over all classes.

    Inputs (N, C, H, W), target (N,) -> the same inputs or blends of them, target (N, classes) whose rows sum
    to 1.
    """
    soft = F.one_hot(target, classes).to(inputs.dtype)
    soft = soft * (1 - smoothing) + smoothing / classes
    if not mixup:
        return inputs, soft
    fraction = float(generator.beta(mixup, mixup))
    partner = torch.from_numpy(generator.permutation(len(inputs))).to(inputs.device)
    return _blend(inputs, inputs[partner], fraction), _blend(soft, soft[partner], fraction)


def _blend(a: Tensor, b: Tensor, fraction: float) -> Tensor:
    return a * fraction + b * (1 - fraction)
