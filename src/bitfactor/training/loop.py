"""The training loop.

It can be killed at any time and started again with the same command: what happens in a step depends on the
parameters and on (seed, epoch, step) alone, so it ends with the same weights, bit for bit, as if it had never
stopped.
"""

import math
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

import bitfactor
from bitfactor.convert import binarize_
from bitfactor.data import Batch, Target
from bitfactor.decompositions import orthogonality_penalty
from bitfactor.errors import InputError
from bitfactor.nn import anneal_
from bitfactor.training.recipe import Optimization, Recipe
from bitfactor.training.run import Run
from bitfactor.training.task import Task

_EVALUATION_BATCH = 256


def build(recipe: Recipe) -> nn.Module:
    """Return the recipe's network, binary and initialised from its seed."""
    torch.manual_seed(recipe.optimization.seed)
    model = recipe.model()
    binarize_(model, recipe.binarization, input_shape=(1, *recipe.input_shape))
    return model


def restore(recipe: Recipe, run: Run) -> nn.Module:
    """Return the network of `run` as its last checkpoint left it, in evaluation mode."""
    model = build(recipe)
    run.load_into(model)
    return model.eval()


def train(recipe: Recipe, out: Path, console: Console) -> dict[str, Any]:
    """Train `recipe` in the directory `out`, or go on where an earlier call stopped.

    Returns
    -------
    The last line of the log: epoch, step, loss, learning_rate, the task's metrics on held-out data, seconds.

    Raises
    ------
    InputError
        If `out` holds a run with other settings, the batch is larger than the data, or the loss is no number.
    """
    run = Run(out)
    run.start(recipe.settings(), _versions())
    loop = _Loop(recipe, run, console)
    with _progress(console) as progress:
        bar = progress.add_task(recipe.name, total=loop.total, completed=loop.step, note="")
        while loop.step < loop.total:
            for _ in loop.epoch():
                progress.advance(bar)
            note = f"loss {loop.rows[-1]['loss']:.3f}  held out {loop.rows[-1]['accuracy']:.2%}"
            progress.update(bar, note=note)
            if not console.is_terminal:
                console.print(f"{recipe.name}: epoch {loop.rows[-1]['epoch']}  {note}", soft_wrap=True)
    return loop.rows[-1]


class _Loop:
    """A run in progress.

    `step` counts the steps done, `loss` sums over those of the current epoch, `rows` are the lines of the
    log: together with parameters and optimizer, all that a checkpoint holds.
    """

    def __init__(self, recipe: Recipe, run: Run, console: Console) -> None:
        self.recipe, self.run, self.plan = recipe, run, recipe.optimization
        self.data = recipe.data(None)
        self.steps = self.data.steps(self.plan.batch_size)
        if self.steps < 1:
            raise InputError(
                "--batch-size",
                expected=f"at most {len(self.data.train[1])}, the number of training pictures",
                found=str(self.plan.batch_size),
                fix="choose a smaller one",
            )
        self.total = self.steps * self.plan.epochs
        self.step, self.loss, self.rows = 0, 0.0, list[dict[str, Any]]()
        model = build(recipe)
        optimizer = Adam(model.parameters(), lr=self.plan.learning_rate)
        if run.checkpoint.exists():
            self._resume(model, optimizer)
            finished = "" if self.step < self.total else ", where it finished"
            console.print(
                f"{run.path}: going on from step {self.step} of {self.total}{finished}", soft_wrap=True
            )
        logger = TensorBoardLogger(run.path, name="tensorboard", version="", purge_step=self.step)
        self.fabric = Fabric(accelerator="auto", devices=1, loggers=logger)
        self.model, self.optimizer = self.fabric.setup(model, optimizer)

    def epoch(self) -> Iterator[int]:
        """Do the rest of the current epoch, yielding after each step; then measure, log and save."""
        number, started = self.step // self.steps, time.perf_counter()
        batches = self.data.train_batches(
            self.plan.batch_size, self.plan.seed, number, self.step % self.steps
        )
        for batch in batches:
            self._train_step(*self.fabric.to_device(batch))
            if self.step % self.plan.checkpoint_steps == 0 and self.step % self.steps:
                self._save()
            yield self.step
        row = {
            "epoch": number + 1,
            "step": self.step,
            "loss": self.loss / self.steps,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            **evaluate(self.fabric, self.model, self.recipe.task, self.data.test_batches(_EVALUATION_BATCH)),
        }
        self.fabric.log_dict(row, self.step)
        self.rows.append(row | {"seconds": round(time.perf_counter() - started, 3)})
        self.loss = 0.0
        self._save()
        self.run.write_history(self.rows)

    def _train_step(self, inputs: Tensor, target: Target) -> None:
        self.model.train()
        progress = self.step / self.total
        anneal_(self.model, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.plan, progress)
        self.optimizer.zero_grad()
        loss = self.recipe.task.loss(self.model(inputs), target)
        if self.recipe.binarization.orthogonality:
            loss = loss + self.recipe.binarization.orthogonality * orthogonality_penalty(self.model)
        if not loss.isfinite():
            raise InputError(
                f"{self.run.path}, step {self.step}",
                expected="a loss that is a number",
                found=str(loss.item()),
                fix=f"lower --learning-rate; the last good state, if any, is {self.run.checkpoint}",
            )
        self.fabric.backward(loss)
        self.optimizer.step()
        self.step += 1
        self.loss += loss.item()

    def _save(self) -> None:
        state = {
            "model": self.model,
            "optimizer": self.optimizer,
            "rng": torch.get_rng_state(),
            "step": self.step,
            "loss": self.loss,
            "rows": self.rows,
        }
        self.run.save(lambda path: self.fabric.save(path, state))

    def _resume(self, model: nn.Module, optimizer: Optimizer) -> None:
        saved = self.run.load_into(model, optimizer)
        torch.set_rng_state(saved["rng"])
        self.step, self.loss, self.rows = saved["step"], saved["loss"], saved["rows"]
        self.run.write_history(self.rows)


def learning_rate(plan: Optimization, progress: float) -> float:
    """Return the rate after a share `progress` (0 to 1) of all steps: half a cosine."""
    return plan.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


@torch.inference_mode()
def evaluate(fabric: Fabric, model: nn.Module, task: Task, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the task's metrics of `model`, in evaluation mode, over `batches`."""
    model.eval()
    metrics = task.metrics().to(fabric.device)
    for batch in batches:
        inputs, target = fabric.to_device(batch)
        metrics.update(model(inputs), target)
    return {name: float(value) for name, value in metrics.compute().items()}


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )


def _versions() -> dict[str, str]:
    return {
        "bitfactor": bitfactor.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
