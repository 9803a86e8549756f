"""A binary network in one's own loop: plain torch.

python examples/loops/plain.py [STEPS]
"""

import sys

import torch
from digits_to_train_on import batches, network
from torch.nn import functional as F

import bitfactor


def train(steps: int = 20) -> list[float]:
    """Return the loss of each step."""
    model = network()
    bitfactor.binarize_(model, latent="tucker")
    optimizer = torch.optim.AdamW(bitfactor.parameter_groups(model, lr=4e-3, weight_decay=1e-4))
    losses = []
    for images, classes in batches(steps):
        with bitfactor.decompositions.once(model):
            loss = F.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(train(*map(int, sys.argv[1:2])))
