"""One line of a plan."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedLayer:
    """One layer's fate.

    `bank` and `place` say where in which bank its weight stands, `rank` the rank of each mode. Bytes: of the
    weight in float32; of what it is made of in training, for a bank at the first of its layers; of its signs
    in the file.
    """

    name: str
    shape: tuple[int, ...]
    binary: bool
    reason: str
    latent: str = ""
    rank: tuple[int, ...] = ()
    bank: str = ""
    place: tuple[int, ...] = ()
    scale: str = ""
    weight_bytes: int = 0
    latent_bytes: int | None = None
    packed_bytes: int = 0
