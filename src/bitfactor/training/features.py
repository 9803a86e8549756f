"""A teacher of features: where a network's maps are large is learned from another network's maps."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError, near_matches
from bitfactor.nn import BinaryLayer
from bitfactor.training.tasks import Teacher

_Size = tuple[int, ...]
_Sizes = Mapping[str, _Size]
_Stages = Mapping[_Size, str]


def attention(maps: Tensor) -> Tensor:
    """Return where maps are large, (N, C, H, W) to (N, H W): the mean of squares over channels, norm 1."""
    return F.normalize(maps.float().square().mean(1).flatten(1), dim=1)


class AttentionTransfer:
    """A distance between the maps of a network and those of its teacher, at the end of each stage.

    S. Zagoruyko and N. Komodakis, ICLR 2017, arXiv 1612.03928. For binary networks: B. Martinez et al.,
    "Training binary neural networks with real-to-binary convolutions", ICLR 2020, arXiv 2003.11535. With
    Q the mean over channels of the squares of a map, flattened, the distance is the sum over stages of
    || Q / ||Q|| - Q' / ||Q'|| ||^2, in the mean over images. Channels may differ.

    A stage is the last module with maps of one size, in both networks. `layers` names others: OURS, or
    OURS=THEIRS. Both networks then run once before each `distance`.

    Raises
    ------
    InputError
        If no maps of the two networks have the same size, or one of `layers` gives no map, or another size.
    """

    def __init__(self, network: nn.Module, teacher: nn.Module, x: Tensor, layers: Sequence[str] = ()) -> None:
        inner = teacher.network if isinstance(teacher, Teacher) else teacher
        ours, theirs = _sizes(network, lambda: network(x)), _sizes(inner, lambda: teacher(x))
        stages, others = _stages(network, ours), _stages(inner, theirs)
        named = [_named(word, (ours, stages), (theirs, others)) for word in layers]
        self.pairs = named or _fitting(stages, others)
        self._learned = [f"{one} from {other} ({_shown([ours[one]])})" for one, other in self.pairs]
        self._ours = _watched(network, {one for one, _ in self.pairs})
        self._theirs = _watched(inner, {other for _, other in self.pairs})

    def __str__(self) -> str:
        return f"features are learned too: {', '.join(self._learned)}"

    def distance(self) -> Tensor:
        """Return the distance of the maps that the last run of each network gave."""
        found = [self._ours[one] - self._theirs[other] for one, other in self.pairs]
        return torch.stack([one.square().sum(1).mean() for one in found]).sum()


def _watched(network: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """Return what will hold the attention of these modules once the network has run."""
    found: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        found[name] = attention(output)

    for name in names:
        network.get_submodule(name).register_forward_hook(partial(keep, name))
    return found


@torch.no_grad()
def _sizes(network: nn.Module, run: Callable[[], object]) -> _Sizes:
    """Return the modules that give maps of more than one cell, in the order of their end, and the sizes."""
    found: dict[str, _Size] = {}
    inside = tuple(f"{name}." for name, module in network.named_modules() if isinstance(module, BinaryLayer))

    def look(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and output[0, 0].numel() > 1:
            found.pop(name, None)
            found[name] = tuple(output.shape[2:])

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if name and not name.startswith(inside):
                hooks.enter_context(module.register_forward_hook(partial(look, name)))
        run()
    return found


def _stages(network: nn.Module, sizes: _Sizes) -> _Stages:
    """Return the last of the outermost modules with maps of each size."""
    stages = {*_outermost(network, "", sizes)}
    return {size: name for name, size in sizes.items() if name in stages}


def _outermost(network: nn.Module, prefix: str, sizes: _Sizes) -> Iterator[str]:
    """Yield the parts that give a map; of one that holds several stages, their own."""
    for name, module in _parts(network, prefix):
        inner = {sizes.get(one) for one, _ in _parts(module, f"{name}.")} - {None}
        if name in sizes and len(inner) < 2:
            yield name
        else:
            yield from _outermost(module, f"{name}.", sizes)


def _parts(network: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """Return the modules within a network that are more than a layer."""
    return [
        (prefix + name, module)
        for name, module in network.named_children()
        if not isinstance(module, BinaryLayer) and any(True for _ in module.children())
    ]


def _fitting(ours: _Stages, theirs: _Stages) -> list[tuple[str, str]]:
    pairs = [(name, theirs[size]) for size, name in ours.items() if size in theirs]
    if not pairs:
        raise InputError(
            "--feature-weight",
            expected="stages with maps of the same size in the network and its teacher",
            found=f"{_shown(ours)} and {_shown(theirs)}",
            fix="name modules whose maps fit: --feature-layers OURS=THEIRS",
        )
    return pairs


def _shown(sizes: Iterable[_Size]) -> str:
    return ", ".join("x".join(map(str, size)) for size in sizes) or "none"


def _named(word: str, ours: tuple[_Sizes, _Stages], theirs: tuple[_Sizes, _Stages]) -> tuple[str, str]:
    """Return the two modules that OURS or OURS=THEIRS names."""
    name, _, other = word.partition("=")
    other = other or name
    where = f"--feature-layers {word}"
    for one, (sizes, stages), whose in ((name, ours, "network"), (other, theirs, "teacher")):
        if one not in sizes:
            raise InputError(
                where,
                expected=f"a module of the {whose} that gives maps of more than one cell",
                found=repr(one),
                fix=near_matches(one, stages.values() or sizes),
            )
    size, found = ours[0][name], theirs[0][other]
    expected = f"maps of {_shown([size])}, as {name} has"
    others = f"{_shown([found])} in the teacher's {other}"
    expect_that(size == found, where, expected=expected, found=others, fix="name one with as large maps")
    return name, other
