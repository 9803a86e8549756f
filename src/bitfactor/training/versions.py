"""The versions of what a training depends on."""

import platform

import numpy as np
import torch

import bitfactor


def versions() -> dict[str, str]:
    """Return name -> version."""
    return {
        "bitfactor": bitfactor.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
