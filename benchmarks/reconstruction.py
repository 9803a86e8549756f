"""Reconstructing a Tucker weight: ours against tensorly, and against one matrix product of the same FLOPs.

    python benchmarks/reconstruction.py [--threads 1] [--repeats 25] [--json]

For each 3x3 shape of ResNet-18, full rank, float32. The three take turns within one process, so that a busy
machine slows each alike; reported is the median over turns of the time and of the ratio within a turn. The
matrix product multiplies as often as the reconstruction does, in one call of the size of its largest: it
bounds what any order of contraction can reach. Ours gives a contiguous weight, tensorly a permuted one, whose
copy is left to the convolution. Backward is with respect to core and factors.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from statistics import median

import tensorly
import torch
from torch import Tensor

from bitfactor.common.machine import cpu_name
from bitfactor.decompositions import Tucker

SHAPES = [(64, 64, 3, 3), (128, 64, 3, 3), (128, 128, 3, 3), (256, 128, 3, 3), (256, 256, 3, 3)]
SHAPES += [(512, 256, 3, 3), (512, 512, 3, 3)]


def seconds(run: Callable[[], object], least: float = 0.01) -> float:
    """Return the time of one call, over enough calls to take `least` seconds."""
    calls, start = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        if (spent := time.perf_counter() - start) >= least:
            return spent / calls


def candidates(shape: tuple[int, ...]) -> dict[str, tuple[list[Tensor], Callable[[], Tensor]]]:
    """Return name -> parameters and forward; the product multiplies as often per weight as the modes do."""
    latent = Tucker.from_weight(torch.randn(shape))
    core = latent.core.detach().clone().requires_grad_()
    factors = [factor.detach().clone().requires_grad_() for factor in latent.factors]
    inner = shape[0] + shape[1] + shape[2] * shape[3]
    a = torch.randn(shape[0], inner, requires_grad=True)
    b = torch.randn(inner, core[0].numel(), requires_grad=True)
    return {
        "ours": (list(latent.parameters()), latent),
        "tensorly": ([core, *factors], lambda: tensorly.tucker_to_tensor((core, factors))),
        "one product": ([a, b], lambda: a @ b),
    }


def steps(shape: tuple[int, ...]) -> dict[str, dict[str, Callable[[], object]]]:
    """Return "forward" and "forward+backward" -> name -> what to time."""
    kinds: dict[str, dict[str, Callable[[], object]]] = {"forward": {}, "forward+backward": {}}
    for name, (parameters, forward) in candidates(shape).items():
        gradient = torch.randn_like(forward().detach())

        def without_graph(forward: Callable[[], Tensor] = forward) -> object:
            with torch.no_grad():
                return forward()

        def both(
            forward: Callable[[], Tensor] = forward,
            parameters: list[Tensor] = parameters,
            gradient: Tensor = gradient,
        ) -> object:
            return torch.autograd.grad(forward(), parameters, gradient)

        kinds["forward"][name], kinds["forward+backward"][name] = without_graph, both
    return kinds


def measure(shape: tuple[int, ...], repeats: int) -> list[dict[str, object]]:
    rows = []
    for kind, runs in steps(shape).items():
        for run in runs.values():
            run()
        turns = [{name: seconds(run) for name, run in runs.items()} for _ in range(repeats)]
        rows.append(
            {
                "shape": "x".join(map(str, shape)),
                "pass": kind,
                **{f"{name} ms": 1e3 * median(turn[name] for turn in turns) for name in runs},
                "tensorly / ours": median(turn["tensorly"] / turn["ours"] for turn in turns),
                "ours / one product": median(turn["ours"] / turn["one product"] for turn in turns),
            }
        )
    return rows


def machine(threads: int) -> dict[str, object]:
    isa = torch.backends.cpu.get_cpu_capability()
    versions = {
        "torch": torch.__version__,
        "tensorly": tensorly.__version__,
        "python": platform.python_version(),
    }
    return {"cpu": cpu_name(), "vector instructions": isa, "threads": threads, **versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tensorly.set_backend("pytorch")
    rows = [row for shape in SHAPES for row in measure(shape, arguments.repeats)]
    if arguments.json:
        print(json.dumps({"machine": machine(arguments.threads), "rows": rows}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in machine(arguments.threads).items()))
    head = list(rows[0])
    print("  ".join(name.rjust(18) for name in head))
    for row in rows:
        cells = (f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values())
        print("  ".join(cell.rjust(18) for cell in cells))


if __name__ == "__main__":
    main()
