"""A binary network in Lightning's Trainer.

python examples/loops/with_lightning.py [STEPS]
"""

import sys
from typing import Any

import lightning
import torch
from digits_to_train_on import BATCH, network, scans
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bitfactor


class Digits(lightning.LightningModule):
    """A binary network, its loss and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.model = network()
        bitfactor.binarize_(self.model, latent="holistic", groups="auto")
        self.losses: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, classes = batch
        loss = F.cross_entropy(self.model(images), classes)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(bitfactor.parameter_groups(self.model, lr=4e-3))


def train(steps: int = 20, **options: Any) -> list[float]:
    """Return the loss of each step."""
    module, data = Digits(), DataLoader(TensorDataset(*scans()), BATCH, shuffle=True)
    lightning.Trainer(max_steps=steps, accelerator="cpu", **options).fit(module, data)
    return module.losses


if __name__ == "__main__":
    print(train(*map(int, sys.argv[1:2])))
