"""Where a result comes from: versions, the source's revision, the processor."""

import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

import bitfactor


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    return {
        "bitfactor": bitfactor.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def revision() -> str | None:
    """Return git's name of the source that runs, ending in `-dirty` if it was changed; None outside git."""
    source = Path(bitfactor.__file__)
    if not _git(source.parent, "ls-files", source.name):  # installed, maybe into another project's directory
        return None
    return _git(source.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def processor() -> str:
    """Return the name of the processor, and of the GPU if there is one."""
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([_cpu(), *gpu])


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
