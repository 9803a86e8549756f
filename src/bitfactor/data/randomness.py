"""Random numbers that depend on where they are used, not on what was drawn before."""

import numpy as np
import torch


def generator(*key: int) -> torch.Generator:
    """Return a generator whose numbers depend on `key` alone; entries are 0 or more."""
    mixed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed))
