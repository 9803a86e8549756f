"""A rank as the user writes it, and the rank of each mode that it means."""

from collections.abc import Sequence

from bitfactor.decompositions.latent import Rank
from bitfactor.errors import InputError


def resolve_rank(rank: Rank, full: Sequence[int]) -> tuple[int, ...]:
    """Return the rank of each mode.

    None is the full rank, an int a rank (the full one in modes that are smaller), a float in (0, 1) a
    fraction of the full one; a sequence gives these per mode.

    Raises
    ------
    InputError
        If a rank is not positive, not below 1 as a fraction, above what its mode has (one int: above what any
        mode has), or a sequence has not one entry per mode.

    Example
    -------
    >>> resolve_rank(0.5, full=(64, 32, 3, 3))
    (32, 16, 2, 2)
    """
    expect_rank(rank)
    if rank is None:
        return tuple(full)
    if not isinstance(rank, Sequence):
        if isinstance(rank, int) and rank > max(full):
            raise _too_large(rank, full)
        return tuple(rank_of_mode(rank, limit) for limit in full)
    if len(rank) != len(full):
        raise InputError(
            f"rank {rank}",
            expected=f"{len(full)} entries, one per mode",
            found=str(len(rank)),
            fix=f"give one rank for all modes, or one each for the full ranks {tuple(full)}",
        )
    for r, limit in zip(rank, full, strict=True):
        if isinstance(r, int) and r > limit:
            raise _too_large(rank, full)
    return tuple(map(rank_of_mode, rank, full))


def expect_rank(rank: object) -> None:
    """Raise InputError unless `rank` is None, an int of 1 or more, a fraction, or a sequence of these."""
    entries = rank if isinstance(rank, Sequence) and not isinstance(rank, str) else (rank,)
    for entry in entries:
        whole = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 1
        fraction = isinstance(entry, float) and 0 < entry < 1
        if not (whole or fraction or rank is None):
            full = isinstance(entry, float) and entry == 1
            raise InputError(
                f"rank {rank!r}",
                expected="an int of 1 or more, or a fraction between 0 and 1",
                found=repr(entry),
                fix="leave rank out for the full rank; 1 is rank one"
                if full
                else "write 16 for a rank of 16, 0.25 for a quarter of the full rank",
            )


def rank_of_mode(rank: Rank, full: int) -> int:
    """Return what one rank for all modes means for one of them."""
    if isinstance(rank, float):
        return max(1, round(rank * full))
    return min(rank, full) if isinstance(rank, int) else full


def _too_large(rank: Rank, full: Sequence[int]) -> InputError:
    return InputError(
        f"rank {rank}",
        expected=f"at most the full ranks {tuple(full)}",
        found="more",
        fix="leave rank out for the full rank, or take a fraction, which fits every layer",
    )


def expect_full(ranks: Sequence[int], full: Sequence[int]) -> None:
    """Raise InputError unless the ranks are full: what the identity initialisation needs."""
    if tuple(ranks) != tuple(full):
        raise InputError(
            "initialisation 'identity'",
            expected=f"the full rank {tuple(full)}",
            found=f"rank {tuple(ranks)}",
            fix="leave rank out, or take initialisation='factorised'",
        )


def expect_no_rank(rank: Rank, latent: str) -> None:
    """Raise InputError if a rank is given."""
    if rank is not None:
        raise InputError(
            f"rank {rank}",
            expected=f"no rank with latent {latent!r}",
            found=repr(rank),
            fix="leave it out, or take another latent",
        )
