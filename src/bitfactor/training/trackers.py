"""Trackers of experiments, which get each row of a run's log."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from bitfactor.common.errors import imported
from bitfactor.training.processes import TerminatedError
from bitfactor.training.run import flat

Tracker = Literal["wandb", "mlflow"]


class Wandb(AbstractContextManager["Wandb"]):
    """Weights & Biases, in the project that WANDB_PROJECT names, else "bitfactor"."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        wandb = imported("wandb", "--track wandb", "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bitfactor"),
            name=out.name,
            dir=str(out),
            config=settings,
            id=_id_of(out),
            resume="allow",
        )

    def on_log(self, row: Mapping[str, Any]) -> None:
        self._run.log(dict(row), step=row["step"])

    def __exit__(self, failed: type | None, *error: object) -> None:
        self._run.finish(exit_code=int(failed is not None))


class Mlflow(AbstractContextManager["Mlflow"]):
    """MLflow, where MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self._mlflow = imported("mlflow", "--track mlflow", "mlflow")
        own = _id_of(out)
        before = self._mlflow.search_runs(filter_string=f"tags.bitfactor = '{own}'", output_format="list")
        run_id = before[0].info.run_id if before else None
        self._mlflow.start_run(run_id=run_id, run_name=out.name, tags={"bitfactor": own})
        if not before:
            self._mlflow.log_params(flat(settings))

    def on_log(self, row: Mapping[str, Any]) -> None:
        self._mlflow.log_metrics({name: float(value) for name, value in row.items()}, step=row["step"])

    def __exit__(self, failed: type | None, *error: object) -> None:
        stopped = failed is not None and issubclass(failed, TerminatedError | KeyboardInterrupt)
        self._mlflow.end_run("FINISHED" if failed is None else "KILLED" if stopped else "FAILED")


TRACKERS: dict[Tracker, type[Wandb] | type[Mlflow]] = {"wandb": Wandb, "mlflow": Mlflow}


def _id_of(out: Path) -> str:
    """Return what a tracker knows a run by, from its first start on."""
    file = out / "tracked-as"
    if not file.exists():
        file.write_text(uuid4().hex)
    return file.read_text()
