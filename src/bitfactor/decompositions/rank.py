"""A rank as the user writes it, and the rank of each mode that it means."""

from collections.abc import Sequence

from bitfactor.decompositions.latent import Rank
from bitfactor.errors import InputError


def resolve_rank(rank: Rank, full: Sequence[int]) -> tuple[int, ...]:
    """Return the rank of each mode.

    None is the full rank, an int a rank (the full one where that is smaller), a float in (0, 1] a fraction
    of the full one; a sequence gives these per mode.

    Raises
    ------
    InputError
        If a rank is not positive, a fraction is above 1, or a sequence has not one entry per mode.

    Example
    -------
    >>> resolve_rank(0.5, full=(64, 32, 3, 3))
    (32, 16, 2, 2)
    """
    per_mode = (rank,) * len(full) if rank is None or isinstance(rank, int | float) else tuple(rank)
    if len(per_mode) != len(full):
        raise InputError(
            f"rank {rank}",
            expected=f"{len(full)} numbers, one per mode",
            found=str(len(per_mode)),
            fix=f"give one number for all modes, or one each for the full ranks {tuple(full)}",
        )
    return tuple(_one(r, limit) for r, limit in zip(per_mode, full, strict=True))


def _one(rank: int | float | None, full: int) -> int:
    if rank is None:
        return full
    if rank <= 0 or (isinstance(rank, float) and rank > 1):
        raise InputError(
            f"rank {rank}",
            expected="an int of 1 or more, or a fraction in (0, 1]",
            found=repr(rank),
            fix="write 16 for a rank of 16, 0.25 for a quarter of the full rank",
        )
    return max(1, round(rank * full)) if isinstance(rank, float) else min(rank, full)


def expect_full(ranks: Sequence[int], full: Sequence[int]) -> None:
    """Raise InputError unless the ranks are full: what the identity initialisation needs."""
    if tuple(ranks) != tuple(full):
        raise InputError(
            "initialisation 'identity'",
            expected=f"the full rank {tuple(full)}",
            found=f"rank {tuple(ranks)}",
            fix="leave rank out, or take initialisation='factorised'",
        )
