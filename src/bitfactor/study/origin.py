"""Where a result comes from: the source's revision, the machine."""

import subprocess
from pathlib import Path

import torch

import bitfactor
from bitfactor.machine import cpu_name


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


def machine() -> str:
    """Return the name of the CPU, and of the GPU if there is one."""
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([cpu_name(), *gpu])
