"""A step of training: time, bytes kept for backward and peak memory of binary networks, over the float one's.

    python benchmarks/training.py [--model hourglass|zoo] [--batch 128] [--size 32] [--precision bfloat16]
                                  [--device cuda] [--repeats 3] [--only none holistic ...] [--json]

One process, one thread on a CPU unless --threads says more, which keeps the memory that it frees, as
`bitfactor train` does. All networks take turns, so that a busy machine
slows each alike; a ratio is the median of those within a turn. `kept` are the bytes that autograd keeps of
one forward pass, parameters apart; `peak` is what a step needs beyond what stood before it. `reconstruct` is
the share of a step in which the latents give their weights and take their gradients, measured alone; the
other shares are of the profiler: forward products of convolutions, backward products, BatchNorm, optimizer.

`NAME-compiled` is a network under torch.compile; `bnn` a peer from PyPI, where it is installed
(`pip install --no-deps bnn==0.1.2`). Binary networks make the weights of a bank together, as
`bitfactor train` does (`bitfactor.decompositions.once`).
"""

import argparse
import copy
import json
import platform
import time
from collections.abc import Callable
from itertools import accumulate
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import bitfactor
from bitfactor.common.machine import cpu_name, keep_freed_memory
from bitfactor.decompositions import once
from bitfactor.models import ResNet, hourglass, resnet18
from bitfactor.nn import BinaryLayer, MaxPool2d, ReLU

LATENTS = ("none", "svd", "tucker", "holistic", "cosine", "window")
SHARES = {
    "forward": ("aten::mkldnn_convolution", "bitfactor::sign_product", "aten::cudnn_convolution"),
    "backward": ("aten::convolution_backward", "bitfactor::sign_product_backward"),
    "norm": (
        "aten::native_batch_norm",
        "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm",
        "aten::cudnn_batch_norm_backward",
    ),
}


class Step:
    """A network with its optimizer and a batch; calling it is a step of training."""

    def __init__(self, model: nn.Module, batch: tuple[Tensor, Tensor], precision: str) -> None:
        self.model, (self.x, self.target) = model.train(), batch
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        self.autocast = precision == "bfloat16"

    def loss(self) -> Tensor:
        with torch.autocast(self.x.device.type, torch.bfloat16, enabled=self.autocast):
            y = self.model(self.x)
            if not isinstance(y, Tensor):
                return sum((F.mse_loss(part.float(), self.target) for part in y), torch.zeros(()))
            classes = self.target.dim() == 1
            return F.cross_entropy(y.float(), self.target) if classes else F.mse_loss(y.float(), self.target)

    def __call__(self) -> None:
        with once(self.model):
            self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait(self.x.device)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "zoo":
        return ResNet((2, 2, 2), (32, 64, 128), 10, stem="halving")
    return resnet18(num_classes=10, stem="cifar") if name == "resnet18" else hourglass(stacks=1, channels=128)


def of_torch(name: str) -> nn.Module:
    """Return the network with layers of torch alone."""
    model = network(name)
    for module in list(model.modules()):
        for child_name, child in module.named_children():
            if isinstance(child, ReLU):
                setattr(module, child_name, nn.ReLU())
            elif isinstance(child, MaxPool2d):
                setattr(module, child_name, nn.MaxPool2d(child.kernel_size, child.stride, child.padding))
    return model


def networks(arguments: argparse.Namespace) -> dict[str, nn.Module]:
    """Return the networks to compare, each from the same draw."""
    found = {"float": of_torch(arguments.model), "float-compiled": torch.compile(of_torch(arguments.model))}
    for latent in LATENTS:
        for scale in ("learned", "analytic"):
            model = network(arguments.model)
            size = (1, 3, arguments.size, arguments.size)
            groups = "auto" if latent == "holistic" else None
            bitfactor.binarize_(model, latent=latent, scale=scale, groups=groups, input_shape=size)
            found[latent if scale == "learned" else f"{latent}-analytic"] = model
            if scale == "learned":
                found[f"{latent}-compiled"] = torch.compile(copy.deepcopy(model))
    try:
        found["bnn"] = of_bnn(of_torch(arguments.model), found["none"])
    except ImportError as error:
        print(f"bnn is left out: {error}")
    if arguments.only:
        found = {name: model for name, model in found.items() if name in {"float", *arguments.only}}
    for name, model in found.items():
        found[name] = model.to(arguments.device)
        if arguments.channels_last:
            found[name] = found[name].to(memory_format=torch.channels_last)
    return found


def of_bnn(model: nn.Module, binary: nn.Module) -> nn.Module:
    """Make the layers binary that are so in `binary`, with a learned scale."""
    from bnn import BConfig, prepare_binary_model
    from bnn.ops import BasicInputBinarizer, BasicScaleBinarizer, XNORWeightBinarizer

    ours = {name for name, module in binary.named_modules() if isinstance(module, BinaryLayer)}
    real = [name for name, _ in model.named_modules() if name and name not in ours]
    config = BConfig(
        BasicInputBinarizer, BasicScaleBinarizer, XNORWeightBinarizer.with_args(compute_alpha=False)
    )
    return prepare_binary_model(model, config, ignore_layers_name=real)


def kept_bytes(step: Step) -> int:
    """Return the bytes that autograd keeps of a forward pass, parameters and the batch apart."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*step.model.parameters(), step.x, step.target)}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step.loss()
    return sum(kept.values())


def peak_bytes(step: Step) -> int:
    """Return by how much memory grows in a step."""
    if step.x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    results = profiled.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in results if event.name() == "[memory]")
    return max(accumulate((bytes_ for _, bytes_ in changes), initial=0))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def reconstruction(step: Step) -> float:
    """Return the seconds in which all latents give their weights and take gradients."""
    latents = [module.latent for module in step.model.modules() if isinstance(module, BinaryLayer)]
    if not latents:
        return 0.0
    gradients = [torch.randn(latent.shape, device=step.x.device) for latent in latents]

    def run() -> None:
        with once(step.model):
            torch.autograd.backward([latent() for latent in latents], gradients)
        step.optimizer.zero_grad()
        wait(step.x.device)

    run()
    return min(seconds(run) for _ in range(3))


def shares(step: Step) -> dict[str, float]:
    """Return what parts of a step take, in seconds of the profiler, the least of three steps."""
    found = [profiled_parts(step) for _ in range(3)]
    return {part: min(parts[part] for parts in found) for part in found[0]}


def profiled_parts(step: Step) -> dict[str, float]:
    cuda = step.x.is_cuda
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as profiled:
        step()
    events = profiled.key_averages()
    total = {event.key: (event.device_time_total if cuda else event.cpu_time_total) / 1e6 for event in events}
    found = {name: sum(total.get(key, 0.0) for key in keys) for name, keys in SHARES.items()}
    nested = total.get("bitfactor::sign_product_backward", 0.0)
    found["backward"] -= min(nested, total.get("aten::convolution_backward", 0.0)) if nested else 0.0
    found["optimizer"] = sum(value for key, value in total.items() if key.startswith("Optimizer.step"))
    return found


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    device, size = torch.device(arguments.device), arguments.size
    x = torch.randn(arguments.batch, 3, size, size, device=device)
    if arguments.model != "hourglass":
        target = torch.randint(0, 10, (arguments.batch,), device=device)
    else:
        target = torch.rand(arguments.batch, 16, size // 4, size // 4, device=device)
    if arguments.channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    steps = {
        name: Step(model, (x, target), arguments.precision) for name, model in networks(arguments).items()
    }
    for step in steps.values():
        step()
    turns = [{name: seconds(step) for name, step in steps.items()} for _ in range(arguments.repeats)]
    rows = []
    for name, step in steps.items():
        own = median(turn[name] for turn in turns)
        parts = (
            {} if hasattr(step.model, "_orig_mod") else {"reconstruct": reconstruction(step), **shares(step)}
        )
        rows.append(
            {
                "network": name,
                "seconds": own,
                "fastest": min(turn[name] for turn in turns),
                "over float": median(turn[name] / turn["float"] for turn in turns),
                "kept MB": kept_bytes(step) / 1e6,
                "peak MB": peak_bytes(step) / 1e6,
                **{part: value / own for part, value in parts.items()},
            }
        )
    for row in rows:
        row["kept over float"] = row["kept MB"] / rows[0]["kept MB"]
        row["peak over float"] = row["peak MB"] / rows[0]["peak MB"]
    return rows


COLUMNS = (
    "network",
    "over float",
    "kept over float",
    "peak over float",
    "seconds",
    "fastest",
    "kept MB",
    "peak MB",
)
PARTS = ("reconstruct", "forward", "backward", "norm", "optimizer")


def text(value: object, column: str) -> str:
    if not isinstance(value, float):
        return str(value)
    if column in PARTS:
        return f"{value:.0%}"
    if column.endswith("MB"):
        return f"{value:.0f}"
    return f"{value:.4f}" if column in ("seconds", "fastest") else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model",
        choices=("resnet18", "hourglass", "zoo"),
        default="resnet18",
        help="zoo: its CIFAR-10 network",
    )
    parser.add_argument("--batch", type=int, help="128, or 4 of the hourglass")
    parser.add_argument("--size", type=int, help="32, or 256 of the hourglass")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="what to compare with float; all if left out")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    arguments = parser.parse_args()
    pose = arguments.model == "hourglass"
    arguments.batch = arguments.batch or (4 if pose else 128)
    arguments.size = arguments.size or (256 if pose else 32)
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    rows = measure(arguments)
    gpu = [torch.cuda.get_device_name()] if arguments.device.startswith("cuda") else []
    machine = {
        "machine": ", ".join([cpu_name(), *gpu]),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "bitfactor": bitfactor.__version__,
        "python": platform.python_version(),
        **{name: getattr(arguments, name) for name in ("model", "batch", "size", "precision", "threads")},
        "channels_last": arguments.channels_last,
    }
    if arguments.json:
        print(json.dumps({"machine": machine, "rows": rows}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    head = [*COLUMNS, *PARTS]
    cells = [head, *([text(row.get(name, ""), name) for name in head] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


if __name__ == "__main__":
    main()
