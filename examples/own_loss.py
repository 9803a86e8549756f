"""A loss of one's own: a focal loss, in a task that a recipe takes.

bitfactor --import examples/own_loss.py train digits-focal --epochs 2 --out runs/focal
"""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from bitfactor.data import Target
from bitfactor.recipes import RECIPES, register
from bitfactor.training import Classification, Recipe

GAMMA = 2.0


class Focal(Classification):
    """(1 - p)^gamma times the cross entropy, p the probability of the right class (Lin et al., 2017)."""

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        assert isinstance(target, Tensor)
        entropy = F.cross_entropy(outputs, target, reduction="none")
        return ((1 - (-entropy).exp()) ** GAMMA * entropy).mean()


def recipe() -> Recipe:
    """Return the recipe of the digits, with the other loss."""
    return replace(RECIPES["digits"](), name="digits-focal", task=Focal())


register("digits-focal", recipe)
