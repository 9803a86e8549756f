"""Images as they lie on a disk: encoded, each read when it is wanted."""

from typing import Protocol

import numpy as np

from bitfactor.data.split import Indices


class Store(Protocol):
    """Encoded images with their classes, numbered from 0."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class.

        Raises
        ------
        OSError
            If it cannot be read.
        """
        ...

    def name(self, index: int) -> str:
        """Return what a message calls the image."""
        ...

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices in a random order that suits how the images lie."""
        ...

    def digest(self) -> str:
        """Return 16 hexadecimal digits that tell these images from others, wherever they lie."""
        ...
