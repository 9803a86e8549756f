"""A data set cut short, for a trial."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bitfactor.data import Batch, DataSet
from bitfactor.format import InputSpec


@dataclass(frozen=True)
class Limited:
    """At most `limit` images of `whole` in an epoch, in whole batches, and about as many to evaluate on.

    Example
    -------
    >>> Limited(data, limit=2000).steps(batch_size=128)
    15
    """

    whole: DataSet
    limit: int

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        return self.whole.input_spec

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.whole.labels

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return min(self.whole.steps(batch_size), self.limit // batch_size)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the first batches of an epoch of `whole`."""
        batches = self.whole.train_batches(batch_size, seed, epoch, start, rank, world)
        yield from islice(batches, self.steps(batch_size) - start)

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the first test images, in batches of at most the limit."""
        batch_size = min(batch_size, self.limit)
        batches = -(-self.limit // (batch_size * world))
        yield from islice(self.whole.test_batches(batch_size, rank, world), batches)
