"""Images of a store, decoded and prepared as `predict` prepares them; needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitfactor.data.split import Indices
from bitfactor.data.store import Store
from bitfactor.errors import InputError
from bitfactor.format import InputSpec
from bitfactor.images import decode_image, prepare

Drawn = tuple[list[int], list[tuple[str, str]]]
"""The classes of a batch's images, and name and message of each image that could not be read."""


@dataclass(frozen=True)
class PreparedBatch:
    """Fills batches (N, C, H, W) of the images with these `indices`; what cannot be read is left out."""

    store: Store
    spec: InputSpec
    batch_size: int
    indices: Sequence[int] | Indices

    def __len__(self) -> int:
        """Return the number of batches."""
        return -(-len(self.indices) // self.batch_size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a batch."""
        return self.batch_size, len(self.spec.mean), *self.spec.size

    def __call__(self, number: int, out: NDArray[np.float32]) -> Drawn:
        labels, corrupt = list[int](), list[tuple[str, str]]()
        for index in self.indices[number * self.batch_size : (number + 1) * self.batch_size]:
            try:
                data, label = self.store.read(index)
                image = decode_image(data, len(self.spec.mean), self.store.name(index))
            except (OSError, InputError) as error:
                corrupt.append((self.store.name(index), str(error)))
                continue
            out[len(labels)] = prepare(image, self.spec)
            labels.append(label)
        return labels, corrupt
