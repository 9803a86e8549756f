"""The training loop.

It can be killed at any time and started again with the same command. What happens in a step depends on the
parameters and on (seed, epoch, step) alone. So it ends with the same weights, bit for bit, as if it had never
stopped.
"""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.files import not_writable
from bitfactor.data import Target
from bitfactor.data.readers.identity import remembered
from bitfactor.training.metrics import FlipRatio, Movement
from bitfactor.training.metrics.latents import troubles
from bitfactor.training.processes import Request, TerminatedError, naming_the_lost, noting_signals
from bitfactor.training.recipe import Experiment, Recipe, bad_parameter, origin, prepare
from bitfactor.training.run import Run, digest_of, versions
from bitfactor.training.step import Source, Stepper
from bitfactor.training.tasks import EVALUATION_BATCH, evaluate
from bitfactor.training.trackers import TRACKERS, Tracker


def progress_bar(console: Console) -> Progress:
    """Return a bar whose tasks have a field `note`; it shows on terminals alone."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )


class DivergedError(InputError):
    """The loss or a parameter of a training is no number."""


@checked
def train(
    recipe: Recipe,
    out: Path,
    console: Console,
    *,
    data: Path | None = None,
    teacher: nn.Module | None = None,
    device: str = "auto",
    other_data: bool = False,
    start_from: Source | None = None,
    beside: Sequence[Run] = (),
    callbacks: Sequence[object] = (),
    track: Sequence[Tracker] = (),
) -> dict[str, Any]:
    """Train `recipe` in the directory `out`, or resume where an earlier call stopped.

    Parameters
    ----------
    data
        Directory of the data, for recipes that need one; a run that is resumed remembers it.
    teacher
        The network of the run that `optimization.teacher` names, if it names one.
    device
        As of `bitfactor.training.processes.launch`.
    other_data
        Resume although the images are others than those that the run began with.
    start_from
        A network to start from, see `bitfactor.training.step.build`; left out, a run that is resumed keeps
        its own.
    callbacks
        Objects whose methods the first process calls as the training goes, as in `bitfactor.train`.
    track
        Trackers of experiments, which get each row of the log.
    beside
        Runs that it will be compared with: with the same options of the data, they are of the same images.

    Returns
    -------
    The last line of the log: epoch, step, loss, learning_rate, flipped, the task's metrics on the test set,
    seconds. `flipped` is the fraction of binary weights whose sign is not that of the epoch's start.

    Raises
    ------
    InputError
        If `out` holds a run with other settings or of other images, `beside` one of others, or another
        process trains in `out`. Also if the batch is larger than the data, the loss is no number, or a
        process that it needs has died. A run that is refused leaves nothing behind.
    TerminatedError
        If SIGTERM came, or SIGINT; the state is saved.
    """
    run = Run(out)
    if data is None and run.checkpoint.exists() and (before := remembered(out)) and before["path"]:
        data = Path(before["path"])
    experiment = prepare(recipe, data, device)
    name, task, fabric = recipe.name, recipe.task, experiment.fabric
    evaluated_on = "validation" if "validation" in getattr(experiment.data, "test_name", "") else "test"
    if not fabric.is_global_zero:
        console = Console(quiet=True)
    with (
        _nothing_left_of(run),
        run.alone() if fabric.is_global_zero else nullcontext(),
        ExitStack() as ending,
        noting_signals() as request,
        progress_bar(console) as progress,
        naming_the_lost(run.path),
    ):
        fabric.barrier()  # each process has seen what was there before
        if fabric.is_global_zero:
            run.start(
                experiment.recipe.settings(),
                experiment.interface,
                versions(),
                experiment.identity,
                source=None if start_from is None else start_from.place,
                beside=beside,
                other_data=other_data,
                newer=experiment.recipe.defaults(),
                teacher="" if teacher is None else digest_of(teacher),
            )
        fabric.barrier()
        if note := getattr(experiment.data, "note", ""):
            console.print(f"{name}: {note}", soft_wrap=True)
        loop = _Loop(experiment, run, console, teacher, request, start_from)
        if fabric.is_global_zero:
            settings = experiment.recipe.settings()
            trackers = [ending.enter_context(TRACKERS[name](out, settings)) for name in track]
            loop.callbacks = [*callbacks, *trackers]
        loop.tell("on_train_start", loop.stepper.network)
        bar = progress.add_task(name, total=loop.total, completed=loop.step, note="")
        while loop.step < loop.total:
            for _ in loop.epoch():
                progress.advance(bar)
            row = loop.rows[-1]
            note = f"loss {row['loss']:.3f}"
            if task.headline in row:
                note += f"  {evaluated_on} {task.headline} {row[task.headline]:.2%}"
            progress.update(bar, note=note)
            if not console.is_terminal:
                console.print(f"{name}: epoch {row['epoch']}  {note}", soft_wrap=True)
        if fabric.is_global_zero and not run.layers.exists():
            run.write_layers(loop.stepper.evaluated)
        loop.tell("on_train_end", loop.rows[-1])
    return loop.rows[-1]


@contextmanager
def _nothing_left_of(run: Run) -> Iterator[None]:
    """Undo what a run that is refused before its first checkpoint has written, and nothing else."""
    before, recipe = _found(run), run.recipe.read_bytes() if run.recipe.is_file() else None
    try:
        yield
    except InputError:
        if not run.checkpoint.exists():
            with suppress(OSError):
                if recipe is not None:
                    run.recipe.write_bytes(recipe)
            for path in sorted(_found(run) - before, reverse=True):
                with suppress(OSError):
                    path.rmdir() if path.is_dir() else path.unlink()
        raise


def _found(run: Run) -> set[Path]:
    """Return what there is of that which a run writes before its first checkpoint."""
    found = [run.path, run.recipe, run.lock, run.path / "tensorboard", *run.path.glob("tensorboard/**/*")]
    return {path for path in found if path.exists()}


class _Loop:
    """A run in progress.

    `step` counts the steps done, `loss` sums over those of the current epoch, `recent` over those since the
    last row within it. `rows` are the lines of the log, `within` those within epochs, `movement` those of
    the diagnosis. `flips` knows the signs at the epoch's start. These, parameters and optimizer are all that
    a checkpoint holds.
    """

    callbacks: Sequence[object] = ()

    def __init__(
        self,
        experiment: Experiment,
        run: Run,
        console: Console,
        teacher: nn.Module | None,
        request: Request,
        start_from: Source | None = None,
    ) -> None:
        self.recipe, self.fabric, self.data = experiment.recipe, experiment.fabric, experiment.data
        self.plan, self.steps, self.run = self.recipe.optimization, experiment.steps, run
        self.total, self.request, self.stop = experiment.total, request, False
        self.step, self.loss, self.rows = 0, 0.0, list[dict[str, Any]]()
        self.movement, self.within, self.recent = list[dict[str, Any]](), list[dict[str, Any]](), 0.0
        self._began, self._spent = 0.0, 0.0  # when this epoch did, and what it took before a resume
        self._said = set[str]()
        self.stepper = Stepper(experiment, teacher, start_from)
        for note in self.stepper.notes:
            console.print(f"{self.recipe.name}: {note}", soft_wrap=True)
        self.flips: FlipRatio | None = None
        first = self.recipe.first_stage
        for stage in (first, self.plan.epochs - first):
            if 0 < stage == self.plan.warmup_epochs:
                console.print(
                    f"{run.path}: --warmup-epochs {self.plan.warmup_epochs:g} last for all {stage} of "
                    f"{'a stage' if first else 'the training'}: "
                    f"the learning rate rises, and does not fall",
                    soft_wrap=True,
                )
        if run.checkpoint.exists():
            self._resume(console)
        # Here, for a quick import of the rest.
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        self.logger = TensorBoardLogger(
            run.path, name="tensorboard", version="", purge_step=self.step and self.step + 1
        )

    def epoch(self) -> Iterator[int]:
        """Do the rest of the current epoch, yielding after each step; then evaluate, log and save."""
        self._began, number = time.perf_counter(), self.step // self.steps
        if number == self.plan.merge_epoch > 0 and not self.stepper.merged:
            self.stepper.merge()
        if self.flips is None:
            self.flips = FlipRatio(self.stepper.network)
        batches = self.data.train_batches(
            self.plan.batch_size,
            self.plan.seed,
            number,
            self.step % self.steps,
            self.fabric.global_rank,
            self.fabric.world_size,
        )
        began, due = self.step, min(self.steps - self.step % self.steps, self.total - self.step)
        for batch in islice(batches, self.total - self.step):
            self._train_step(*self.fabric.to_device(batch))
            inside = not self._between_epochs
            if inside and (self.stop or self.step % self.plan.checkpoint_steps == 0):
                self._save()
            if inside and self.stop:
                break
            yield self.step
        else:
            found = self.step - began
            fix = "let train_batches give as many as `steps` says, less those before `start`"
            expect_that(found == due, "data", expected=f"{due} batches in this epoch", found=found, fix=fix)
            self._end_epoch(number + 1)
        if self.stop and self.step < self.total:
            raise TerminatedError(f"{self.run.path}: stopped after step {self.step}, which is saved")

    @property
    def _between_epochs(self) -> bool:
        return self.step % self.steps == 0 or self.step == self.total

    def tell(self, event: str, *what: object) -> None:
        """Call each callback that has a method of this name."""
        for callback in self.callbacks:
            if method := getattr(callback, event, None):
                method(*what)

    def _train_step(self, inputs: Tensor, target: Target) -> None:
        """Do a step, and log it if it is one of those that are."""
        diagnosed = self.plan.diagnose and (self.step + 1) % self.plan.diagnose == 0
        movement = Movement(self.stepper.network) if diagnosed else None
        loss, self.stop = self._agreed(self.stepper.loss_of(inputs, target, self.step))
        if not math.isfinite(loss):
            raise self._diverged(f"{loss}, first in {origin(self.stepper.network, inputs)}")
        looked_at = self.step == 0 or (self.step + 1) % self.steps == 0
        flips = FlipRatio(self.stepper.network) if looked_at else None
        if movement is None:
            self.stepper.update()
        else:
            moved = movement(self.stepper.update, self.stepper.learning_rate(self.step))
            self.movement += [
                {"step": self.step + 1, "layer": name, **asdict(one)} for name, one in moved.items()
            ]
        self.step += 1
        if flips and self.fabric.is_global_zero:
            self._warn(flips.of_all())
        self.loss += loss
        self.recent += loss
        self.tell("on_train_batch_end", self.step, loss)
        if self.plan.log_every and self.step % self.plan.log_every == 0:
            self.within.append(self._row(-(-self.step // self.steps), self.recent / self.plan.log_every))
            self.recent = 0.0
            self._log(self.within[-1])

    def _row(self, epoch: int, loss: float) -> dict[str, Any]:
        assert self.flips is not None
        return {
            "epoch": epoch,
            "step": self.step,
            "loss": loss,
            "learning_rate": self.stepper.learning_rate(self.step - 1),
            "flipped": self.flips.of_all(),
        }

    def _warn(self, flipped: float) -> None:
        for trouble in troubles(self.stepper.network, flipped, self.step == 1):
            layer = trouble.partition(":")[0]
            if layer not in self._said:  # once each
                self._said.add(layer)
                warnings.warn(f"{self.run.path}, step {self.step}: {trouble}", stacklevel=2)

    def _agreed(self, loss: Tensor) -> tuple[float, bool]:
        """Return the mean loss of all processes, and whether one of them was asked to stop."""
        stop = torch.full_like(loss, float(self.request.made))
        loss, stop = self.fabric.all_reduce(torch.stack([loss, stop]), reduce_op="mean")
        return float(loss), bool(stop)

    @property
    def _seconds(self) -> float:
        return self._spent + time.perf_counter() - self._began

    def _end_epoch(self, number: int) -> None:
        row = self._row(number, self.loss / (self.step - (number - 1) * self.steps))
        if number % self.plan.eval_interval == 0 or number == self.plan.epochs:
            row |= self._measure()
        self.rows.append(row | {"seconds": round(self._seconds, 3)})
        self._log(self.rows[-1])
        self.loss, self.flips, self._spent = 0.0, None, 0.0
        self._save()
        self._keep_records()
        self.tell("on_train_epoch_end", self.rows[-1])

    def _log(self, row: dict[str, Any]) -> None:
        try:
            self.logger.log_metrics(row, self.step)
        except (OSError, ValueError) as error:  # the one hides the other, which a thread had that writes
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
            raise not_writable(self.run.path / "tensorboard", cause) from error
        self.tell("on_log", row)

    def _measure(self) -> dict[str, float]:
        self.stepper.share_statistics()
        rank, world = self.fabric.global_rank, self.fabric.world_size
        batches = self.data.test_batches(EVALUATION_BATCH, rank, world)
        found = evaluate(self.fabric, self.stepper.evaluated, self.recipe.task, batches)
        headline, expected = self.recipe.task.headline, f"one of its metrics, {', '.join(found)}"
        known = headline in found
        expect_that(known, "the task's headline", expected=expected, found=headline, fix="name one of them")
        return found

    def _save(self) -> None:
        self.stepper.share_statistics()
        if bad := bad_parameter(self.stepper.network):
            raise self._diverged(f"no number in the parameter {bad} after it")
        if self.fabric.is_global_zero:
            state = {**self.stepper.state(), "step": self.step, "loss": self.loss, "rows": self.rows}
            state |= {"movement": self.movement} if self.plan.diagnose else {}
            state |= {"within": self.within, "recent": self.recent} if self.plan.log_every else {}
            state |= {"signs": self.flips.state(), "spent": self._seconds} if self.flips else {}
            self.run.save(lambda path: torch.save(state, path), self.plan.keep_last)
        self.fabric.barrier()

    def _keep_records(self) -> None:
        """Bring the log and the best checkpoint up to the last one."""
        if not self.fabric.is_global_zero:
            return
        self.run.write_history(self.rows, self.movement, self.within)
        first = self.recipe.first_stage
        compared = [row.get(self.recipe.task.headline, -math.inf) for row in self.rows[first:]]
        *before, last = compared or [-math.inf]
        if self._between_epochs and last > max(before, default=-math.inf):
            self.run.keep_best()

    def _resume(self, console: Console) -> None:
        saved, stepper = self.run.load(mend=True), self.stepper
        if saved.get("merged"):
            stepper.merge()
        self.run.put(saved, stepper.network, stepper.optimizer, stepper.average)
        for flips, state in zip(stepper.flips, saved.get("flips", ()), strict=True):
            flips.load(state)
        self.step, self.loss, self.rows = saved["step"], saved["loss"], saved["rows"]
        if self.rows and self.rows[0]["step"] not in (stepper.steps, self.total):
            raise InputError(
                str(self.run.path),
                expected=f"{self.rows[0]['step']} steps in an epoch, as it began with",
                found=f"{stepper.steps}, as these images give",
                fix=f"train in another directory, with --from {self.run.path}",
            )
        self.movement = saved.get("movement", [])
        self.within, self.recent = saved.get("within", []), saved.get("recent", 0.0)
        self._spent = saved.get("spent", 0.0)
        if "signs" in saved:
            self.flips = FlipRatio(stepper.network)
            self.flips.load(saved["signs"])
        self._keep_records()
        finished = "" if self.step < self.total else ", where it finished"
        console.print(
            f"{self.run.path}: resuming from step {self.step} of {self.total}{finished}", soft_wrap=True
        )

    def _diverged(self, found: str) -> "DivergedError":
        last = f"the last good state is {self.run.checkpoint}" if self.run.checkpoint.exists() else ""
        return DivergedError(
            f"{self.run.path}, step {self.step}",
            expected="a loss that is a number",
            found=found,
            fix=f"lower --learning-rate or set --max-grad-norm; {last or 'no checkpoint was written yet'}",
        )
