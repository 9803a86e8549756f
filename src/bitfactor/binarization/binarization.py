"""The choices of a conversion, as plain values: stored as JSON, shown as flags."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from bitfactor.binarization.layers import names_matching
from bitfactor.common.checks import check_fields, shown
from bitfactor.common.errors import InputError, near_matches
from bitfactor.decompositions import JOINT, LAYERWISE, Rank, class_of, latent_name
from bitfactor.decompositions.latent import expect_rank
from bitfactor.nn.scale import LEARNED, MAPS, PER_CHANNEL, scale_name
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS, estimator_name
from bitfactor.nn.transform import transform_name

Named = str | tuple[str, ...]  # a name, or pattern=name for layers


@dataclass(frozen=True)
class Binarization:
    """How a model's convolutions and linear layers turn binary.

    In Python the defaults are the paper's best row: latent holistic. A layer that is alone, in no group or
    made by hand takes Tucker. A recipe has defaults of its own.

    `latent`, `rank`, `scale`, the estimators and `weight_transform` may differ by layer: a dict from names,
    globs or regular expressions, kept as words, ("layer4.*=window", "*=tucker"). The first pattern that fits
    a layer counts, a layer that none fits has the default, and a pattern that fits no layer is refused.

    Where a name is taken, an object may be given: a class of latents or scales, a slope, a module. It is
    registered under its own name.

    Example
    -------
    >>> dataclasses.asdict(Binarization(latent="tucker"))["scale"]
    'learned'
    """

    latent: Named = "holistic"
    """What the sign is taken of: a free weight, a decomposition of each layer, or one of several layers.
    With holistic, layers in no group get a Tucker decomposition of their own. One of
    `bitfactor.decompositions`: none, svd, tucker, holistic, tt, product, cosine, window, shared, or one
    that was registered there."""

    rank: int | float | tuple[int | float, ...] | tuple[str, ...] | None = None
    """Rank, or fraction of the full one, for all modes or per mode; the full rank if left out."""

    initialisation: Literal["factorised", "identity"] = "factorised"
    """Where the factors start: an exact factorisation of the first weight, or unit matrices around it."""

    start: Literal["weight", "he"] = "weight"
    """The first weight: the one the model has, or a fresh He-normal draw (fan out)."""

    groups: Literal["paper", "auto"] | None = None
    """Which layers holistic joins: the model's own preset, or every shape that occurs twice or more.
    Left out, the preset if the model has one."""

    scale: Named = "learned"
    """The factor on a layer's output: none, analytic (mean of the weight's magnitudes), or learned, one for
    each channel. XNOR-Net++'s shapes are learned_map, learned_channel_x_map and learned_channel_x_axes.
    `bitfactor.nn.register_scale` adds others."""

    detach_alpha: bool = False
    """Stop the gradient that flows to the weight through an analytic scale."""

    alpha_start: Literal["analytic", "ones"] = "analytic"
    """Where a learned scale starts: at the mean magnitude of a first filter, or at 1."""

    input_scale: bool = False
    """Multiply the output by the mean magnitude of the input in each window too: XNOR-Net's K, which the
    paper leaves out."""

    activation_estimator: Named = "clipped"
    """The gradient in place of the input sign's own: clipped, wide (to abs(x) < 3), polynomial,
    over_deviation, annealed (IR-Net), annealed_late (its ResNet-20) or identity. The gradient of
    over_deviation is polynomial, over each sample's deviation (ReCU). `bitfactor.nn.register_estimator` adds
    others."""

    weight_estimator: Named = "clipped"
    """The gradient in place of the weight sign's own: clipped to abs(W) <= 1, annealed (IR-Net),
    annealed_late (its ResNet-20), rms or identity. With rms it passes a normalisation of each filter. With
    identity, factors grow without bound. `bitfactor.nn.register_estimator` adds others."""

    weight_transform: Named = "none"
    """What is done to a weight before its sign: none, centred, standardised, clamped or periodic. Centred
    takes off each filter's mean, and standardised divides by its deviation too (IR-Net). Clamped then cuts
    at a quantile that rises (ReCU). Periodic takes the sine (BiPer). Their authors let the gradient through:
    the estimator clipped takes it from what is beyond 1 then, a third of a standardised filter. The analytic
    scale of the last three is 0.6 to 2.3, which is for blocks with a BatchNorm behind the product.
    `nn.register_weight_transform` adds others."""

    activations: bool = True
    """Binarize inputs; turn off for a stage of training with real ones."""

    weights: bool = True
    """Binarize weights; turn off for a stage of training with real ones, used at mean magnitude 1."""

    padding_value: Literal[-1, 0, 1] = 0
    """What padded taps hold after the sign."""

    real_ends: bool = True
    """Keep the layers that read the input, and those that give the output, real."""

    keep_real: tuple[str, ...] = ()
    """Layers that stay in full precision: names, modules' names, globs or regular expressions."""

    depthwise: bool = False
    """Binarize depthwise layers too, whose bits, padded to words of 64, take more than floats."""

    orthogonality: float = 0.0
    """Weight of `orthogonality_penalty` in the loss; the training loop adds it."""

    def __post_init__(self) -> None:
        for name in BY_LAYER:
            object.__setattr__(self, name, as_plain(name, getattr(self, name)))
        check_fields(self)
        if self.orthogonality < 0:
            raise InputError(
                "orthogonality", expected="0 or more", found=str(self.orthogonality), fix="0 turns it off"
            )
        takes = any("rank" in class_of(latent).takes for latent in self.every("latent"))
        self.expect_effect("rank", takes, "a latent with factors")
        scales = set(self.every("scale"))
        self.expect_effect("detach_alpha", "analytic" in scales, "scale 'analytic'")
        self.expect_effect("alpha_start", not scales.isdisjoint(LEARNED), "a learned scale")

    def every(self, name: str) -> list[Any]:
        """Return all values of an option that may differ by layer, in their order."""
        return every(name, getattr(self, name))

    def words(self, name: str) -> str:
        """Return an option that may differ by layer as the command line takes it."""
        value = getattr(self, name)
        return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    def choices(self, layers: Iterable[str]) -> dict[str, "Choice"]:
        """Return what is chosen for each layer that turns binary; the first pattern that fits counts."""
        names = list(layers)
        latents = self._chosen("latent", names)
        ranked = [name for name, latent in latents.items() if "rank" in class_of(latent).takes]
        ranks = dict.fromkeys(names) | self._chosen("rank", ranked)
        others = [self._chosen(name, names) for name in BY_LAYER[2:]]
        return {name: Choice(*(values[name] for values in (latents, ranks, *others))) for name in names}

    def _chosen(self, name: str, layers: Sequence[str]) -> dict[str, Any]:
        """Return what is chosen for each layer that has such a choice."""
        found: dict[str, Any] = {}
        for pattern, one in _by_pattern(name, getattr(self, name)).items():
            fitting = names_matching(pattern, layers)
            if found.keys() >= {*fitting} and pattern != "*":
                fix = "put it before the pattern that does" if fitting else near_matches(pattern, layers)
                raise InputError(
                    f"{name} {pattern!r}",
                    expected="a pattern of layers that turn binary" + (", with a rank" * (name == "rank")),
                    found="one whose layers another takes" if fitting else "one that matches none",
                    fix=fix,
                )
            found = dict.fromkeys(fitting, one) | found
        return {layer: found.get(layer, getattr(type(self), name)) for layer in layers}

    def expect_effect(self, name: str, has_effect: bool, needs: str) -> None:
        """Raise InputError where an option is not at its default and would do nothing."""
        if not has_effect and getattr(self, name) != getattr(type(self), name):
            raise InputError(
                name,
                expected=needs,
                found=f"latent {self.latent!r}, scale {self.scale!r}",
                fix=f"leave {name} out",
            )


@dataclass(frozen=True)
class Choice:
    """What of a `Binarization` may differ by layer, for one of them; the rank is None where it takes none."""

    latent: str
    rank: Rank
    scale: str
    activation_estimator: str
    weight_estimator: str
    weight_transform: str


BY_LAYER = tuple(field.name for field in fields(Choice))


def every(name: str, value: Any) -> list[Any]:
    """Return all values that an option which may differ by layer is given, in their order."""
    return [*_by_pattern(name, as_plain(name, value)).values()]


def _by_pattern(name: str, value: Any) -> dict[str, Any]:
    """Return the values of an option by the patterns of their layers."""
    if not _is_by_layer(value):
        return {"*": value}
    pairs = (word.rpartition("=") for word in value)
    return {pattern: _value(name, word) for pattern, _, word in pairs}


def _is_by_layer(value: Any) -> bool:
    """Whether these are words, pattern=value."""
    words = value if isinstance(value, list | tuple) else ()
    return len(words) > 0 and all(isinstance(word, str) and "=" in word for word in words)


def _value(name: str, word: str) -> Any:
    if name != "rank":
        return word
    try:
        ranks = tuple(int(one) if one.isdecimal() else float(one) for one in word.split(","))
    except ValueError:
        return None if word == "None" else word
    return ranks if len(ranks) > 1 else ranks[0]


def as_plain(name: str, value: Any) -> Any:
    """Return an option that may differ by layer as plain values: objects as their names, a dict as words."""
    if isinstance(value, str) and "=" in value:
        value = tuple(value.split())
    given = _by_pattern(name, value) if _is_by_layer(value) else value
    if not isinstance(given, Mapping):
        return _named(name, given)
    if not given or not all(isinstance(pattern, str) for pattern in given):
        found, fix = shown(given), "as in {'layer4.*': ..., '*': ...}"
        raise InputError(name, expected="a value for each pattern of layers", found=found, fix=fix)
    named = {pattern: _named(name, one) for pattern, one in given.items()}
    return tuple(f"{pattern}={_word(one)}" for pattern, one in named.items())


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _named(name: str, value: Any) -> Any:
    if name == "rank":
        expect_rank(value)
        return tuple(value) if isinstance(value, list) else value
    if name == "latent":
        return latent_name(value, [*LAYERWISE, *JOINT])
    if name == "scale":
        return scale_name(value, [*PER_CHANNEL, *MAPS])
    if name == "weight_transform":
        return transform_name(value)
    known = ACTIVATION_ESTIMATORS if name == "activation_estimator" else WEIGHT_ESTIMATORS
    return estimator_name(name, value, known)
