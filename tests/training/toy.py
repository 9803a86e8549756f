"""A data set, a network and a recipe so small that a step takes milliseconds."""

import signal
from dataclasses import dataclass

import torch

from bitfactor.binarization import Binarization
from bitfactor.data import identity_of
from bitfactor.format import InputSpec
from bitfactor.models import ResNet
from bitfactor.training import Classification, Optimization, Recipe

IMAGES, CLASSES = 48, 3
SPEC = InputSpec((8, 8), (8, 8), (0.0,), (1.0,))


@dataclass(frozen=True)
class Toy:
    """Noise with a bright corner that tells the class; `spoiled` makes the images of one batch NaN."""

    spoiled: int = -1
    labels: tuple[str, ...] = ("a", "b", "c")
    input_spec: InputSpec = SPEC
    test_name: str = "test images"
    fingerprint: str = "toy"

    def images(self, seed, count):
        generator = torch.Generator().manual_seed(seed)
        target = torch.arange(count) % CLASSES
        inputs = torch.randn(count, 1, 8, 8, generator=generator)
        for i, label in enumerate(target.tolist()):
            inputs[i, 0, 4 * (label // 2) : 4, 4 * (label % 2) :] += 2
        return inputs, target

    def identity(self):
        return {"train": IMAGES, "test": 30, "fingerprint": self.fingerprint}

    def steps(self, batch_size):
        return IMAGES // batch_size

    def train_batches(self, batch_size, seed, epoch, start=0, rank=0, world=1):
        inputs, target = self.images(0, IMAGES)
        order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size][rank::world]
            broken = float("nan") if step == self.spoiled else 0.0
            yield inputs[chosen] + broken, target[chosen]

    def test_batches(self, batch_size, rank=0, world=1):
        inputs, target = self.images(1, 30)
        for start in range(0, 30, batch_size):
            yield inputs[start : start + batch_size], target[start : start + batch_size]


class Disturbed:
    """A data set during whose epoch something happens, before the batch number `at` of all."""

    def __init__(self, data, at, disturb):
        self.data, self.at, self.batch, self.disturb = data, at, 0, disturb
        self.labels, self.input_spec = data.labels, data.input_spec
        self.steps, self.test_batches = data.steps, data.test_batches
        self.identity = getattr(data, "identity", lambda: identity_of(data, None))

    def train_batches(self, *arguments):
        for batch in self.data.train_batches(*arguments):
            if self.batch == self.at:
                self.disturb()
            self.batch += 1
            yield batch


class Stopping(Disturbed):
    """A data set during whose epoch a signal comes, SIGTERM say."""

    def __init__(self, data, at, number=signal.SIGTERM):
        super().__init__(data, at, lambda: signal.raise_signal(number))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def toy_recipe(data=None, binarization=None, real=False, **changes):
    """Return a recipe for the toy with some settings changed."""
    plan = {"epochs": 2, "batch_size": 16, "learning_rate": 5e-3, "checkpoint_steps": 1} | changes
    return Recipe(
        name="toy",
        description="",
        model=lambda: ResNet((1, 1), (8, 16), CLASSES, in_channels=1, stem="cifar"),
        input_shape=(1, 8, 8),
        data=lambda directory: data or Toy(),
        task=Classification(),
        binarization=binarization or Binarization(latent="tucker"),
        optimization=Optimization(**plan),
        real=real,
    )
