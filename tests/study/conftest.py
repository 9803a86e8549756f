"""The directory of a finished study, with made-up numbers."""

import pytest
from tests.study.made_up import accuracy, add_cell, make_study


@pytest.fixture(scope="session", name="accuracy")
def accuracy_fixture():
    """The accuracy that a made-up training reached: latent, scale, seed, learning rate."""
    return accuracy


@pytest.fixture(scope="session", name="add_cell")
def add_cell_fixture():
    """Write a training into a study."""
    return add_cell


@pytest.fixture(scope="session", name="make_study")
def make_study_fixture():
    """Write the directory of a finished study."""
    return make_study


@pytest.fixture
def study(tmp_path):
    """The directory of a finished study of eight rows and the full-precision baseline, three seeds."""
    return make_study(tmp_path / "study")
