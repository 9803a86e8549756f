"""What a run has learned."""

from torch import nn

from bitfactor.training.recipe import Recipe
from bitfactor.training.run import Run
from bitfactor.training.step import build


def restore(recipe: Recipe, run: Run, *, best: bool = False) -> nn.Module:
    """Return the network of `run` as its last checkpoint left it, or its best one, in evaluation mode."""
    model = build(recipe)
    run.load_outcome_into(model, best=best)
    return model.eval()
