"""Trainings that are killed at random moments, and what comes of them.

python -m tests.training.faults --kills 1000 --seed 0 DIRECTORY

A training is a process of its own, forked from one that has trained before: so a kill costs its work, and not
the import of torch. It is killed by SIGKILL after a time that is drawn from that of a whole training, and
started again, until it ends by itself; then it must have left what a training left that nobody killed.
"""

import argparse
import json
import logging
import mmap
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import scipy.io
import torch
from rich.console import Console
from tests.training.toy import same

from bitfactor.recipes import recipe_named
from bitfactor.training import Recipe, Run, loop, train

PLACES = ("start", "step", "resume", "evaluation", "checkpoint", "log", "best")


def digits() -> Recipe:
    recipe = recipe_named("digits")
    plan = replace(recipe.optimization, epochs=3, batch_size=32, limit=96, checkpoint_steps=1, diagnose=2)
    return replace(recipe, model=replace(recipe.model, widths=(4, 8)), optimization=plan)


def lsp() -> Recipe:
    recipe = recipe_named("lsp-hourglass-small")
    plan = replace(recipe.optimization, epochs=2, batch_size=4, checkpoint_steps=1, ema=0.9)
    model = replace(recipe.model, channels=16, depth=1, blocks=1)
    return replace(
        recipe, model=model, data=replace(recipe.data, size=32), input_shape=(3, 32, 32), optimization=plan
    )


def write_lsp(directory: Path, people: int) -> Path:
    """Write noise with keypoints in the layout of LSP extended; half of it is for evaluation."""
    draws = np.random.default_rng(0)
    (directory / "images").mkdir(parents=True)
    for i in range(people):
        image = draws.integers(0, 255, (40, 60, 3)).astype(np.uint8)
        cv2.imwrite(str(directory / "images" / f"im{i:05d}.jpg"), image)
    keypoints = draws.uniform(1, 40, (14, 3, people))
    keypoints[:, 2] = 1
    scipy.io.savemat(directory / "joints.mat", {"joints": keypoints})
    return directory


class Victim:
    """A training of `recipe` in `out`, which is killed; `where` counts what it was at when it died."""

    def __init__(self, recipe: Recipe, out: Path, data: Path | None) -> None:
        self.recipe, self.out, self.data = recipe, out, data
        self.where: Counter[str] = Counter()
        self._place = mmap.mmap(-1, 1)  # shared with the process that trains

    def start(self, out: Path) -> int:
        """Return the number of a process that trains in `out`."""
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            self._note()
            warnings.filterwarnings("error", message=".*taken is")  # a checkpoint that is not whole
            train(self.recipe, out, Console(quiet=True), data=self.data)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)

    def survives(self, delay: float) -> bool:
        """Train for `delay` seconds, then kill; returns whether the training was done before."""
        self._place[0] = 0
        child, end = self.start(self.out), time.monotonic() + delay
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0, f"{self.out}: a resumed training failed"
                return True
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return True
        assert os.WIFSIGNALED(status), f"{self.out}: a resumed training failed"
        self.where[PLACES[self._place[0]]] += 1
        return False

    def _note(self) -> None:
        """Let the process that trains note what it is at."""
        self._noting(Run, "load", "resume")
        self._noting(Run, "save", "checkpoint")
        self._noting(Run, "write_history", "log")
        self._noting(Run, "keep_best", "best")
        self._noting(loop, "evaluate", "evaluation")
        self._noting(loop._Loop, "_train_step", "step")

    def _noting(self, owner: Any, name: str, place: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            before, self._place[0] = self._place[0], PLACES.index(place)
            result = function(*args, **kwargs)
            self._place[0] = before
            return result

        setattr(owner, name, noting)


def left(out: Path) -> dict[str, Any]:
    """Return what a training left, but for the time that it took."""
    run = Run(out)
    rows = [{**row, "seconds": 0} for row in run.history()]
    state = run.load()
    state["rows"] = [{**row, "seconds": 0} for row in state["rows"]]
    best = run.load(best=True)["model"]
    names = sorted(path.name for path in out.iterdir())
    return {"state": state, "best": best, "rows": rows, "movement": run.movement(), "names": names}


def killed(name: str, recipe: Recipe, data: Path | None, place: Path, kills: int, seed: int) -> Counter[str]:
    """Kill trainings `kills` times and compare each with one that nobody killed; returns where they died."""
    draws = random.Random(f"{name} {seed}")
    whole, out = place / f"{name}-whole", place / f"{name}-killed"
    logging.disable(logging.INFO)
    train(recipe, place / f"{name}-first", Console(quiet=True), data=data)  # imports all that it needs
    victim, started = Victim(recipe, out, data), time.monotonic()
    _, status = os.waitpid(victim.start(whole), 0)
    assert status == 0, f"{whole}: the training failed"
    seconds, expected, compared = time.monotonic() - started, left(whole), 0
    while (died := victim.where.total()) < kills or out.exists():
        if victim.survives(draws.uniform(0, seconds) if died < kills else 600):
            assert same(left(out), expected), f"{out}: not what an uninterrupted training leaves"
            shutil.rmtree(out)
            compared += 1
    print(
        json.dumps(
            {
                "recipe": name,
                "killed": died,
                "compared": compared,
                "seconds": seconds,
                "while": dict(victim.where),
            }
        )
    )
    return victim.where


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # a forked process has none of its parent's
    data = write_lsp(chosen.directory / "lsp", 16)
    for name, recipe, where in (("digits", digits(), None), ("lsp", lsp(), data)):
        killed(name, recipe, where, chosen.directory, chosen.kills // 2, chosen.seed)


if __name__ == "__main__":
    main()
