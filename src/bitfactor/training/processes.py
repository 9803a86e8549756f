"""The processes of a run: their devices, how they stop, and the message where one is lost."""

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.errors import TerminatedError as TerminatedError
from bitfactor.training.optimization import Optimization

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Request:
    """Whether SIGTERM has come, or SIGINT, as of Ctrl-C."""

    def __init__(self) -> None:
        self.made = False

    def make(self, number: int, frame: FrameType | None) -> None:
        """Note it; a signal handler. A second Ctrl-C ends at once, but where torchrun passes on the first."""
        self.made = True
        if number == signal.SIGINT and not torch.distributed.is_torchelastic_launched():
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def noting_signals() -> Iterator[Request]:
    """Turn SIGTERM and SIGINT into a request that is read between two steps; only the main thread can."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.make) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_of_a_reader(error: RuntimeError) -> bool:
    """Whether torch says, wherever the main thread is, that a process that reads images has died."""
    return "DataLoader worker" in str(error)


@contextmanager
def naming_the_lost(where: Path) -> Iterator[None]:
    """Say in one error that another process of a training, or one that reads its images, has died."""
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        if is_of_a_reader(error):
            expected = "processes that read images until the end"
        elif "gloo" in reason or isinstance(error, torch.distributed.DistError):
            expected = f"all {os.environ.get('WORLD_SIZE')} processes of the training until the end"
        else:
            raise
        fix = "see what ended it, such as a lack of memory; the same command resumes from the last checkpoint"
        raise InputError(
            where, expected=expected, found=f"one that ended ({reason[:160]})", fix=fix
        ) from error


_PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}


def expect_device(device: str) -> tuple[str, int | None]:
    """Return the kind and the number of a device; raises InputError if it is none of this machine's."""
    kind, colon, number = device.partition(":")
    known = kind in ("auto", "cpu", "cuda") and (not colon or (kind == "cuda" and number.isdigit()))
    expect_that(known, "--device", expected="auto, cpu, cuda or cuda:N", found=device)
    available = torch.cuda.device_count()
    there = kind != "cuda" or int(number or 0) < available
    expected = f"auto, cpu, cuda or cuda:N of the {available} GPUs that this machine has"
    expect_that(there, "--device", expected=expected, found=device, fix="leave it out")
    return kind, int(number) if colon else None


def expect_devices(joined: str) -> list[str]:
    """Return the devices of one training, joined as in "cuda:0+cuda:1"."""
    devices = joined.split("+")
    for device in devices:
        expect_device(device)
    gpus = {device for device in devices if re.fullmatch(r"cuda:\d+", device)}
    if len(devices) > 1 and len(gpus) < len(devices) and set(devices) != {"cpu"}:
        expected = "different GPUs by their numbers, or cpu more than once"
        raise InputError("--devices", expected=expected, found=joined, fix="change it")
    return devices


def run_joined(devices: list[str], part: Callable[..., int], *arguments: object) -> int | None:
    """Call `part(*arguments)` in a process for each of `devices`, joined as torchrun joins them.

    Returns the largest of what they return, or None if SIGTERM came; they are told, and waited for.
    """
    if "cpu" not in devices:  # each process takes the GPU of its own rank among those that it sees
        os.environ["CUDA_VISIBLE_DEVICES"] = visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    config = LaunchConfig(
        1, 1, len(devices), run_id=uuid4().hex, rdzv_backend="c10d", rdzv_endpoint="localhost:0"
    )
    try:
        statuses: dict[int, int] = elastic_launch(config, part)(*arguments)
    except SignalException:
        return None
    return max(statuses.values())


def visible(devices: list[str], seen: str | None) -> str:
    """Return what CUDA_VISIBLE_DEVICES has to be for `devices` alone, when it was `seen`."""
    numbers = [int(device.removeprefix("cuda:")) for device in devices]
    return ",".join(seen.split(",")[number] if seen else str(number) for number in numbers)


def is_first() -> bool:
    """Tell whether this process is the one that writes and prints."""
    return not torch.distributed.is_torchelastic_launched() or os.environ.get("RANK", "0") == "0"


def _rejoin(backend: str, world: int) -> None:
    """Join the processes that torchrun has restarted.

    It keeps its store, in which Fabric would find the addresses of those that died.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or world == 1 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    if not torch.distributed.is_initialized():
        kept = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world)
        store = PrefixStore(f"attempt {attempt}", kept)
        rank = int(os.environ["RANK"])
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world)


def launch(plan: Optimization, device: str = "auto") -> "Fabric":
    """Return Fabric on this process's device, joined with the others that torchrun started, on all machines.

    `device` is "auto", "cpu", "cuda", or a GPU of several by its number, as in "cuda:1".
    """
    kind, number = expect_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1")) if torch.distributed.is_torchelastic_launched() else 1
    share = world * plan.grad_accum_steps
    expected, fix = f"a multiple of {share}, processes times --grad-accum-steps", "change one of them"
    fits = plan.batch_size % share == 0
    expect_that(fits, "--batch-size", expected=expected, found=plan.batch_size, fix=fix)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world > 1 else 1
    from lightning_fabric import Fabric  # here, for a quick import of the rest

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # which the import sets to INFO
    fabric = Fabric(
        accelerator=kind,
        strategy="ddp" if world > 1 else "auto",
        devices=local if number is None or world > 1 else [number],
        num_nodes=world // local,
        precision=_PRECISIONS[plan.precision],  # type: ignore[arg-type]
    )
    _rejoin("gloo" if fabric.device.type == "cpu" else "nccl", world)
    fabric.launch()
    if plan.batch_norm == "synchronised":
        where, fix = "--batch-norm synchronised", "leave it out, or use batch or frozen"
        expect_that(fabric.device.type != "cpu", where, expected="GPUs", found="none", fix=fix)
    return fabric
