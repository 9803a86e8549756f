"""A draft: Tucker whose steps have Adam's moments in W, not in core and factors.

bitfactor --import docs/results/wspace.py ablate ... --latent tucker_wspace --factor-rate 1/rank
"""

import torch
from torch import Tensor

from bitfactor.decompositions import Tucker, register
from bitfactor.training import optimization

CORES: set[torch.nn.Parameter] = set()
FACTORS: set[torch.nn.Parameter] = set()


class WSpace(Tucker):
    """W = G x_0 U0 x_1 U1 ...; what reaches G and the factors is the step that Adam would make with W.

    With g the gradient in W, m and v its moments, G moves by -rate * u x_0 U0^T x_1 U1^T ... where
    u = m / (sqrt(v) + eps), and each factor by -rate along its own gradient of <u, W>, made as long as if
    each of its elements were 1, which is what Adam's steps are at most. With orthonormal factors that
    stand still W moves by -rate * u: a free weight under Adam.
    """

    def reconstruct(self) -> Tensor:
        weight = super().reconstruct()
        if weight.requires_grad:
            weight.register_hook(self._step)  # type: ignore[no-untyped-call]
        return weight

    def _step(self, gradient: Tensor) -> Tensor:
        if not hasattr(self, "_moments"):
            self._moments = torch.zeros_like(gradient), torch.zeros_like(gradient)
            self._steps = 0
            CORES.add(self.core)
            FACTORS.update(self.factors)
        first, second = self._moments
        self._steps += 1
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square(), 0.001)
        corrected = (second / (1 - 0.999**self._steps)).sqrt() + 1e-8
        return first / (1 - 0.9**self._steps) / corrected


class Adam(torch.optim.Adam):
    """Adam, but for cores and factors, whose gradients are their steps."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        gradients = []
        for group in self.param_groups:
            for parameter in (CORES | FACTORS).intersection(group["params"]):
                assert parameter.grad is not None
                size = parameter.grad.square().mean().sqrt() + 1e-12 if parameter in FACTORS else 1.0
                parameter.sub_(group["lr"] * parameter.grad / size)
                gradients.append((parameter, parameter.grad))
                parameter.grad = None
        super().step()
        for parameter, gradient in gradients:
            parameter.grad = gradient


optimization.OPTIMIZERS["adam"] = Adam
register("tucker_wspace", WSpace.from_weight)
