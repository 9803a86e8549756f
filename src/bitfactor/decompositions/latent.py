"""What every latent is: a module that gives the real-valued weight W of one layer; and what a rank means."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.decompositions.precision import bfloat16_training

Rank = int | float | Sequence[int | float] | None
Initialisation = Literal["factorised", "identity"]

WITH_FACTORS = ("rank", "initialisation", "factor_rate")
"""The options of a latent with factors."""


class Unlaid(nn.Module):
    """A module whose parameters are no operands of a convolution: memory formats pass them by.

    So `model.to(memory_format=torch.channels_last)` leaves a core of five modes alone; torch would fail.

    Attributes
    ----------
    held
        What was made of the parameters within `once`, in a list that is empty before; None outside.
    """

    held: list[Any] | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Of one mode, as `fn` sees a parameter, it has no format to change.
        flat = lambda x: fn(x.reshape(-1)).view(x.shape)  # noqa: E731
        return super()._apply(flat, recurse)  # type: ignore[no-any-return, no-untyped-call]


class Latent(Unlaid, ABC):
    """Interface of the decompositions: `latent()` is W = ReconstructWeights(Theta_0, ..., Theta_N).

    A latent does not know that W will be signed. W is float32, or float64 where the parameters are, also
    inside autocast and whatever precision `torch.backends` allows for products. Its strides are those of
    `torch.empty(shape)`: torch's CPU kernels corrupt memory over others where a size is 1.

    Attributes
    ----------
    shape
        W's shape, that of the float layer's weight: (O, C / groups, *kernel) or (O, F).
    takes
        The options that have an effect on a latent of this class: those of `WITH_FACTORS`, and
        `orthogonality` where factors start orthonormal. The others are refused.
    look
        The colour and mark that figures draw it with.
    """

    shape: tuple[int, ...]
    takes: ClassVar[tuple[str, ...]] = ()
    look: ClassVar[tuple[str, str]] = ("#6b7280", "o")

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(_derive)  # type: ignore[no-untyped-call]

    @classmethod
    def full_ranks(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the full rank of each mode of a weight of this shape; none, for a latent without ranks."""
        return ()

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        """Return the latent of W, in float64, of these ranks; see `from_weight`."""
        raise TypeError(f"{cls.__name__} has neither factorise() nor a from_weight() of its own")

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Factorise a weight, at full rank exactly within rounding.

        Raises
        ------
        InputError
            If the rank is no rank of this weight (see `resolve_rank`), or below full with `identity`.
        """
        full = cls.full_ranks(tuple(weight.shape))
        if not full:
            expect_no_rank(rank, cls.__name__)
        ranks = resolve_rank(rank, full) if full else ()
        if initialisation == "identity":
            expect_full(ranks, full)
        return cls.factorise(weight.detach().double(), ranks, initialisation).to(weight.dtype)

    @abstractmethod
    def reconstruct(self) -> Tensor:
        """Return W from the parameters; called by `forward`, outside autocast."""

    def orthonormal(self) -> dict[str, Tensor]:
        """Return the factors whose columns start out orthonormal, by name, each (D, R) with R <= D."""
        return {}

    def matrices(self) -> dict[str, Tensor]:
        """Return the factors, by name, as matrices whose rank and condition can be measured."""
        return self.orthonormal()

    def factor_ranks(self) -> dict[str, int]:
        """Return the rank R of each parameter that multiplies what carries W, by name: W sums up R of it."""
        return {}

    def _beside_the_largest(self) -> dict[str, Tensor]:
        """Return the parameters by name, without the largest, which carries W."""
        carrier = max(self.parameters(), key=lambda parameter: parameter.numel())
        return {name: p for name, p in self.named_parameters() if p is not carrier}

    def derive(self) -> None:
        """Make anew what follows from the parameters' shapes and device, after these have come or changed."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.derive()
        return self

    def _device(self) -> str:
        return next(self.parameters()).device.type

    def forward(self) -> Tensor:
        if self.held is None:
            return self._made()
        learns = torch.is_grad_enabled()
        if not self.held or self.held[1] < learns:  # made without gradients, as in a checkpointed part
            self.held[:] = [self._made(), learns]
        W: Tensor = self.held[0]
        return W

    def _made(self) -> Tensor:
        device = self._device()
        if not torch.is_autocast_enabled(device):
            return self._weight()
        bfloat16 = torch.get_autocast_dtype(device) == torch.bfloat16
        rough = bfloat16 and not torch.compiler.is_compiling()
        with torch.autocast(device, enabled=False), bfloat16_training(device) if rough else nullcontext():
            return self._weight()

    def _weight(self) -> Tensor:
        return self.reconstruct().reshape(-1).view(self.shape)


class OfFactors(Latent):
    """A latent of factors (D, R) that start orthonormal and have the rank R each."""

    takes = (*WITH_FACTORS, "orthogonality")

    def factor_ranks(self) -> dict[str, int]:
        return {name: factor.shape[1] for name, factor in self.orthonormal().items()}


def _derive(latent: Latent, keys: Any) -> None:
    latent.derive()


@contextmanager
def once(model: nn.Module) -> Iterator[None]:
    """Let each latent of a model make its weight once, and hold it until the end of the block.

    That is around one forward pass, or around an evaluation; no parameter may change within. In training the
    weights of a bank are made together, in one product for each mode. Where gradients are off each is made by
    itself, with the bits of an exported one.

    Example
    -------
    >>> with once(model):
    ...     loss = criterion(model(x), y)
    >>> loss.backward()
    """
    makers = [module for module in model.modules() if isinstance(module, Unlaid)]
    for maker in makers:
        maker.held = []
    try:
        yield
    finally:
        for maker in makers:
            maker.held = None


@contextmanager
def once_for_all(model: nn.Module) -> Iterator[None]:
    """As `once`, around several forward and backward passes whose gradients add up to those of one step.

    They stop at the weights. At the end of the block their sum passes on to the parameters once, unless the
    block ends in an error. Unscale gradients, clip them and step after it, not within.

    Example
    -------
    >>> with once_for_all(model):
    ...     for x, y in parts:
    ...         criterion(model(x), y).backward()
    """
    latents = [module for module in model.modules() if isinstance(module, Latent)]
    with once(model):
        made = [latent.forward() for latent in latents]  # hooks are for the calls within
        for latent, W in zip(latents, made, strict=True):
            latent.held = [W.detach().requires_grad_(W.requires_grad), True]
        yield
        reached = [(W, latent.held[0].grad) for latent, W in zip(latents, made, strict=True) if latent.held]
        pairs = [(W, gradient) for W, gradient in reached if gradient is not None]
        torch.autograd.backward([W for W, _ in pairs], [gradient for _, gradient in pairs])


@checked
def orthogonality_penalty(model: nn.Module) -> Tensor:
    """Return the sum over all factors F (D, R) of the squared Frobenius norm of F^T F - I.

    A factor that several layers share counts once. Add the result, times a weight, to the loss.

    Example
    -------
    >>> loss = loss + 1e-4 * orthogonality_penalty(model)
    """
    factors: dict[tuple[int, int], Tensor] = {}
    for latent in model.modules():
        if isinstance(latent, Latent):
            factors |= {(f.data_ptr(), f.shape[1]): f for f in latent.orthonormal().values()}
    terms = [
        (f.mT @ f - torch.eye(f.shape[1], dtype=f.dtype, device=f.device)).square().sum()
        for f in factors.values()
    ]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def resolve_rank(rank: Rank, full: Sequence[int]) -> tuple[int, ...]:
    """Return the rank of each mode.

    None is the full rank. An int is a rank (the full one in modes that are smaller), a float in (0, 1) a
    fraction of the full one. A sequence gives these per mode.
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
            expected=f"no rank with the latent {latent}",
            found=repr(rank),
            fix="leave it out, or take another latent",
        )
