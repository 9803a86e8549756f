"""Steps of training over every shape that its kernels take, with memory that is filled beforehand.

A kernel that reads what nobody wrote gives other bits for another filling. `make test-heap` runs all of them
where glibc looks at each block that is freed, and where AddressSanitizer looks at each access of the core.
"""

import copy
import ctypes
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.decompositions import JOINT, LAYERWISE, once

KERNELS = [1, 2, 3, 5, 7, (1, 3), (4, 1)]
STRIDES = [1, 2, (1, 3)]
GROUPS = [1, 2, 12]
FORMATS = [torch.contiguous_format, torch.channels_last]
TYPES = [torch.float32, torch.bfloat16]
SHAPES = list(product(KERNELS, STRIDES, GROUPS))
LATENTS = [*LAYERWISE, *JOINT]
CHANNELS = 36
_M_PERTURB = -6  # of glibc's malloc.h


def network(latent, kernel, stride, groups):
    """Three binary convolutions, two of them of one shape, with what stands between them."""
    torch.manual_seed(0)
    padding = tuple(k // 2 for k in (kernel if isinstance(kernel, tuple) else (kernel, kernel)))

    def block(stride):
        conv = nn.Conv2d(CHANNELS, CHANNELS, kernel, stride, padding, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(CHANNELS), nn.PReLU(CHANNELS)]

    layers = [nn.Conv2d(3, CHANNELS, 3), *block(1), *block(1), *block(stride)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 5))
    choices = Binarization(latent=latent, groups="auto" if latent == "holistic" else None)
    binarize_(model, choices, input_shape=(1, 3, 13, 11))
    return model


def trained(model, memory_format, dtype):
    """Return the losses of two steps, and what they made of the parameters."""
    model = copy.deepcopy(model).to(memory_format=memory_format)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x = torch.randn(3, 3, 13, 11).contiguous(memory_format=memory_format)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with once(model), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 4]))
            loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.state_dict().values()]


@pytest.fixture
def filled():
    """Return what trainings leave where memory holds this byte, inverted, when it is given out."""
    libc = ctypes.CDLL(None)

    def filled(byte, latent, *shape):
        libc.mallopt(_M_PERTURB, byte)
        try:
            model = network(latent, *shape)
            return [trained(model, *form) for form in product(FORMATS, TYPES)]
        finally:
            libc.mallopt(_M_PERTURB, 0)

    return filled


@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize("cases", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_no_bit_comes_from_memory_that_nobody_wrote(filled, latent, cases):
    for shape in SHAPES if cases == "all" else SHAPES[7 * LATENTS.index(latent) :: 63]:
        for one, other in zip(*(filled(byte, latent, *shape) for byte in (90, 165)), strict=True):
            assert all(map(torch.equal, one, other)), shape
            assert all(values.isfinite().all() for values in one), shape


def test_a_training_asks_for_huge_pages_and_touches_none() -> None:
    script = r"""
import re
from pathlib import Path
from bitfactor.common.machine import keep_freed_memory
def resident():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
before = resident()
keep_freed_memory()
heaps = re.findall(r"[[]heap[]]\n.*?VmFlags: ([^\n]*)", Path("/proc/self/smaps").read_text(), re.DOTALL)
print(any("hg" in flags.split() for flags in heaps), resident() - before)
"""
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    asked, touched = printed.split()
    assert asked == str(Path("/sys/kernel/mm/transparent_hugepage").exists())
    assert int(touched) < 16 << 20
