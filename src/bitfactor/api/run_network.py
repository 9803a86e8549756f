"""The network of a run, in torch."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bitfactor.api.network import Array, Network, first_of, holdout_in
from bitfactor.common.errors import InputError
from bitfactor.data.readers.identity import remembered
from bitfactor.recipes import recipe_of
from bitfactor.training import PoseEstimation, Run, restore


def network_of(path: Path, best: bool, device: str) -> Network:
    """Return the network of the run in the directory `path`, on a device that torch knows."""
    run = Run(path)
    recipe, interface, target = recipe_of(run), run.interface(), _device(device)
    model = restore(recipe, run, best=best).to(target)

    @torch.inference_mode()
    def outputs(inputs: NDArray[np.float32]) -> Array:
        found: Array = (
            first_of(model(torch.from_numpy(np.ascontiguousarray(inputs)).to(target))).cpu().numpy()
        )
        return found

    return Network(
        path,
        outputs,
        interface.labels,
        interface.input_spec,
        isinstance(recipe.task, PoseEstimation),
        recipe.name,
        lambda: recipe,
        holdout_in(recipe.settings()),
        remembered(path),
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise InputError(
            "--device",
            expected="auto, cpu, cuda or cuda:N, of which this machine has one",
            found=f"{name} ({str(error).splitlines()[0]})",
            fix="leave it out",
        ) from error
    return device
