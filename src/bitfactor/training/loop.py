"""The training loop.

It can be killed at any time and started again with the same command: what happens in a step depends on the
parameters and on (seed, epoch, step) alone, so it ends with the same weights, bit for bit, as if it had never stopped.
"""

import math
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers import TensorBoardLogger
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

import bitfactor
from bitfactor.atomic import replacing
from bitfactor.convert import binarize_
from bitfactor.data import Digits
from bitfactor.errors import InputError
from bitfactor.training.recipe import Optimization, Recipe
from bitfactor.training.run import Run
from bitfactor.training.tasks import Classification

_EVALUATION_BATCH = 256


def build(recipe: Recipe) -> nn.Module:
    """Return the recipe's network, binary and initialised from its seed."""
    torch.manual_seed(recipe.optimization.seed)
    model = recipe.model()
    binarize_(model, recipe.binarization)
    return model


def restore(recipe: Recipe, run: Run) -> nn.Module:
    """Return the network of `run` as its last checkpoint left it, in evaluation mode."""
    model = build(recipe)
    model.load_state_dict(run.load()["model"])
    return model.eval()


def train(recipe: Recipe, out: Path, console: Console) -> dict[str, Any]:
    """Train `recipe` in the directory `out`, or go on where an earlier call stopped.

    Returns
    -------
    The last line of the log: epoch, step, loss, learning_rate, accuracy on training and held-out data, seconds.

    Raises
    ------
    InputError
        If `out` holds a run with other settings, or the loss is no longer a number.
    """
    run, plan = Run(out), recipe.optimization
    run.start(recipe.settings(), _versions())
    data = recipe.data()
    model = build(recipe)
    optimizer = Adam(model.parameters(), lr=plan.learning_rate)
    state: dict[str, Any] = {"step": 0, "loss": 0.0, "rows": []}
    if run.checkpoint.exists():
        state = _resume(run, model, optimizer, console)
    logger = TensorBoardLogger(out, name="tensorboard", version="", purge_step=state["step"])
    fabric = Fabric(accelerator="auto", devices=1, loggers=logger)
    model, optimizer = fabric.setup(model, optimizer)
    _epochs(fabric, run, recipe, data, model, optimizer, state, console)
    logger.finalize("success")
    return state["rows"][-1]  # type: ignore[no-any-return]


def _epochs(
    fabric: Fabric, run: Run, recipe: Recipe, data: Digits, model: nn.Module, optimizer: Optimizer,
    state: dict[str, Any], console: Console,
) -> None:  # fmt: skip
    plan = recipe.optimization
    steps = data.steps(plan.batch_size)
    if steps < 1:
        raise InputError(
            "--batch-size",
            expected=f"at most the {len(data.train[1])} training pictures",
            found=str(plan.batch_size),
            fix="choose a smaller one",
        )
    with _progress(console) as progress:
        task = progress.add_task(recipe.name, total=steps * plan.epochs, completed=state["step"], note="")
        for epoch in range(state["step"] // steps, plan.epochs):
            started = time.perf_counter()
            batches = data.train_batches(plan.batch_size, plan.seed, epoch, state["step"] % steps)
            for inputs, target in batches:
                rate = learning_rate(plan, state["step"] / (steps * plan.epochs))
                loss = _step(fabric, recipe.task, model, optimizer, rate, inputs, target)
                if not math.isfinite(loss):
                    raise _diverged(run, state["step"])
                state["step"] += 1
                state["loss"] += loss
                progress.advance(task)
                if state["step"] % plan.checkpoint_steps == 0 and state["step"] % steps:
                    _save(fabric, run, model, optimizer, state)
            row = {
                "epoch": epoch + 1,
                "step": state["step"],
                "loss": state["loss"] / steps,
                "learning_rate": rate,
                **evaluate(fabric, model, recipe.task, data.test_batches(_EVALUATION_BATCH)),
            }
            fabric.log_dict({name: value for name, value in row.items() if name != "step"}, row["step"])
            row["seconds"] = round(time.perf_counter() - started, 3)
            state["rows"].append(row)
            state["loss"] = 0.0
            _save(fabric, run, model, optimizer, state)
            run.write_history(state["rows"])
            progress.update(task, note=f"loss {row['loss']:.3f}  held out {row['accuracy']:.2%}")


def _step(
    fabric: Fabric, task: Classification, model: nn.Module, optimizer: Optimizer, rate: float, inputs: Tensor, target: Tensor
) -> float:
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss = task.loss(model(inputs.to(fabric.device)), target.to(fabric.device))
    fabric.backward(loss)
    optimizer.step()
    return loss.item()


def learning_rate(plan: Optimization, progress: float) -> float:
    """Return the rate after a share `progress` (0 to 1) of all steps: half a cosine."""
    return plan.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


@torch.inference_mode()
def evaluate(
    fabric: Fabric, model: nn.Module, task: Classification, batches: Iterable[tuple[Tensor, Tensor]]
) -> dict[str, float]:
    """Return the task's metrics of `model`, in evaluation mode, over `batches`."""
    model.eval()
    metrics = task.metrics().to(fabric.device)
    for inputs, target in batches:
        metrics.update(model(inputs.to(fabric.device)), target.to(fabric.device))
    return {name: float(value) for name, value in metrics.compute().items()}


def _save(fabric: Fabric, run: Run, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    with replacing(run.checkpoint) as temporary:
        fabric.save(temporary, {"model": model, "optimizer": optimizer, "rng": torch.get_rng_state(), **state})


def _resume(run: Run, model: nn.Module, optimizer: Optimizer, console: Console) -> dict[str, Any]:
    saved = run.load()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    console.print(f"{run.path}: going on from step {saved['step']}")
    run.write_history(saved["rows"])
    return {name: saved[name] for name in ("step", "loss", "rows")}


def _diverged(run: Run, step: int) -> InputError:
    return InputError(
        f"{run.path}, step {step}",
        expected="a loss that is a number",
        found="NaN or infinity",
        fix=f"lower --learning-rate; the last good state is {run.checkpoint}",
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


def _versions() -> dict[str, str]:
    return {"bitfactor": bitfactor.__version__, "torch": torch.__version__, "python": platform.python_version()}
