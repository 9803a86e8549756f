"""A binary network with Hugging Face's accelerate.

python examples/loops/with_accelerate.py [STEPS]
"""

import sys

import torch
from accelerate import Accelerator
from digits_to_train_on import batches, network
from torch.nn import functional as F

import bitfactor


def train(steps: int = 20) -> list[float]:
    """Return the loss of each step."""
    accelerator, model = Accelerator(cpu=True), network()
    bitfactor.binarize_(model, latent="window")
    optimizer = torch.optim.Adam(bitfactor.parameter_groups(model, lr=4e-3))
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for images, classes in batches(steps):
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(images), classes)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(train(*map(int, sys.argv[1:2])))
