"""Tests draw the same numbers in every run."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    """Draw the same numbers in every run, whatever ran before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
