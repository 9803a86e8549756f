"""The processes and devices of a run: one, or as many as torchrun has started."""

import os

import torch
from lightning_fabric import Fabric

from bitfactor.errors import InputError
from bitfactor.training.optimization import Optimization

_PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}


def is_first() -> bool:
    """Tell whether this process is the one that writes and prints."""
    return not torch.distributed.is_torchelastic_launched() or os.environ.get("RANK", "0") == "0"


def launch(plan: Optimization) -> Fabric:
    """Return Fabric on this process's device, joined with the others that torchrun started, on all machines.

    Raises
    ------
    InputError
        If a batch cannot be shared out equally.
    """
    world = int(os.environ.get("WORLD_SIZE", "1")) if torch.distributed.is_torchelastic_launched() else 1
    share = world * plan.accumulate
    if plan.batch_size % share:
        raise InputError(
            "--batch-size",
            expected=f"a multiple of {share}, processes times --accumulate",
            found=str(plan.batch_size),
            fix="change one of them",
        )
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world > 1 else 1
    fabric = Fabric(
        accelerator="auto",
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=_PRECISIONS[plan.precision],  # type: ignore[arg-type]
    )
    fabric.launch()
    if plan.batch_norm == "synchronised" and fabric.device.type == "cpu":
        raise InputError(
            "--batch-norm synchronised",
            expected="GPUs",
            found="none",
            fix="leave it out, or use batch or frozen",
        )
    return fabric
