"""What the training loop asks of a data set."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from bitfactor.common.errors import InputError, near_matches
from bitfactor.format import InputSpec

Target = Tensor | Mapping[str, Tensor]
Batch = tuple[Tensor, Target]
O = TypeVar("O")


class DataSet(Protocol):
    """Images to train on and test images, in batches: inputs (N, C, H, W) with what to learn from them.

    `labels` name the classes; a data set for another task leaves them empty. Where it has them, `test_name`
    says which images the test images are, for use after their number, and `identity()` what `identity_of`
    returns of them.
    """

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        ...

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        ...

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch, shuffled and augmented, from number `start` on.

        Of `world` processes, number `rank` gets its equal part of each batch: `batch_size / world` images.
        What a batch holds depends on (seed, epoch, its number) alone, so that an interrupted epoch can go on
        and the joined batch does not depend on the number of processes.
        """
        ...

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order, as for inference; `rank` of `world` gets its part."""
        ...


def options_of(given: O | None, default: O, named: Mapping[str, Any]) -> O:
    """Return the options of a data set: those given, else its own, with those named changed."""
    for name in named.keys() - vars(default).keys():
        fix = near_matches(name, [*vars(default), "limit", "workers"])
        raise InputError("load()", expected="a known option", found=name, fix=fix)
    return replace(default if given is None else given, **named)  # type: ignore[type-var]
