"""Times of several engines, taken in turns, so that a machine's moods meet all of them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_WARM_UP = 10


def interleaved(engines: Mapping[str, Callable[[], object]], runs: int) -> list[dict[str, Any]]:
    """Return name, minimum_ms and median_ms of each engine over `runs` runs, taken one of each in turn.

    Each round has another order, and each timed run follows one that is not: what the engine before has left
    in the caches is no engine's gain or loss.
    """
    for run in engines.values():
        for _ in range(_WARM_UP):
            run()
    times: dict[str, list[float]] = {name: [] for name in engines}
    order = np.random.default_rng(0)
    for _ in range(runs):
        for name in order.permutation(list(engines)):
            run = engines[name]
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return [
        {"name": name, "minimum_ms": 1e3 * min(t), "median_ms": 1e3 * float(np.median(t))}
        for name, t in times.items()
    ]
