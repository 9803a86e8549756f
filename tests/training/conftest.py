"""The toy of this folder, as fixtures."""

import pytest
from tests.training.toy import Toy, toy_recipe


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture
def recipe_of_toy():
    """Return a recipe for the toy with some settings changed."""
    return toy_recipe
