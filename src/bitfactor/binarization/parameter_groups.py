"""The parameters of a binary model by what they are, for an optimizer."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from torch import nn

from bitfactor.common.checks import checked, expect, expect_one_of, expect_that
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Latent
from bitfactor.nn import Scale

_NORMALISATIONS = (nn.PReLU, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
Kind = Literal["latents", "factors", "alphas", "weights", "rest"]
_KINDS = get_args(Kind)
DECAYED: tuple[Kind, ...] = ("latents", "factors", "weights")
_RATED = tuple(kind for kind in _KINDS if kind != "factors")  # whose rate is a fraction of the latents'


@checked
def parameter_groups(
    model: nn.Module,
    *,
    lr: float | None = None,
    weight_decay: float = 0.0,
    factor_rate: float | Literal["1/rank"] = 1.0,
    rates: Mapping[str, float] | None = None,
    decayed: tuple[Kind, ...] = DECAYED,
) -> list[dict[str, Any]]:
    """Return the parameters of a model as groups for a torch optimizer, each once and none left out.

    A group has a `name`. "latents" are the free weights and cores, "factors" what multiplies them. "alphas"
    are the learned scales, "weights" those of full-precision layers. "rest" is biases, slopes and
    normalisations. Decay is for those that are `decayed`, latents, factors and weights, as in the paper's
    set-up. Empty groups are left out.

    A group's `rate` is its fraction of the learning rate `lr`, and its "lr" is the product. `rates` has the
    fractions by name of group, 1 for one that is left out. Parameters at 0 stand still. A factor's rate is
    that of "latents" times `factor_rate`. An entry of W is a sum over the rank R of a factor. So a step of
    Adam moves W up to R times as far by a factor as by the core. "1/rank" takes that back: 1 / R for each
    factor, as its latent's `factor_ranks` has it.

    Raises
    ------
    InputError
        If a number is below 0, or a rate is not 1 and there is no `lr` for it to be a fraction of. If `rates`
        names another group, or factors.

    Example
    -------
    >>> groups = bitfactor.parameter_groups(model, lr=1e-3, weight_decay=1e-7, factor_rate="1/rank")
    >>> optimizer = torch.optim.Adam(groups)
    >>> slower = bitfactor.parameter_groups(model, lr=1e-3, rates={"weights": 0.5, "alphas": 0.0})
    """
    rates = rates or {}
    for kind, rate in rates.items():
        expect_one_of("parameter_groups(rates)", kind, _RATED)
        expect(f"rates[{kind!r}]", rate, float)
        expect_that(rate >= 0, f"rates[{kind!r}]", expected="0 or more", found=rate)
    for name, value in {"lr": lr or 0.0, "weight_decay": weight_decay, "factor_rate": factor_rate}.items():
        expect_that(value == "1/rank" or value >= 0, name, expected="0 or more", found=value)
    if lr is None and any(rate != 1 for rate in (factor_rate, *rates.values())):
        given = f"factor_rate={factor_rate!r}" if factor_rate != 1 else f"rates={dict(rates)!r}"
        expected, fix = "the learning rate that rates are fractions of", f"pass lr=1e-3, say, with {given}"
        raise InputError("lr", expected=expected, found="none", fix=fix)
    kinds, ranks = _kinds(model), _ranks(model)
    groups: dict[tuple[str, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        kind = kinds[id(parameter)]
        rate = rates.get(kind, 1.0)
        if id(parameter) in ranks:
            kind = "factors"
            rate *= 1.0 / ranks[id(parameter)] if factor_rate == "1/rank" else factor_rate
        groups.setdefault((kind, rate), []).append(parameter)
    return [
        {
            "name": kind,
            "params": parameters,
            "rate": rate,
            "weight_decay": weight_decay * (kind in decayed),
            **({} if lr is None else {"lr": lr * rate}),
        }
        for (kind, rate), parameters in sorted(groups.items(), key=lambda group: _KINDS.index(group[0][0]))
    ]


def _kinds(model: nn.Module) -> dict[int, str]:
    """Return what each parameter is, by its id; of a latent all are "latents"."""
    kinds: dict[int, str] = {}
    for module in model.modules():
        of_scale, normalises = isinstance(module, Scale), isinstance(module, _NORMALISATIONS)
        for name, parameter in module.named_parameters(recurse=of_scale):
            if of_scale:
                kinds[id(parameter)] = "alphas"
            else:
                rest = normalises or parameter.dim() < 2 or "bias" in name
                kinds.setdefault(id(parameter), "rest" if rest else "weights")
    for latent in model.modules():
        if isinstance(latent, Latent):
            kinds |= dict.fromkeys(map(id, latent.parameters()), "latents")
    return kinds


def _ranks(model: nn.Module) -> dict[int, int]:
    """Return the rank of each factor of a latent, by its id."""
    ranks: dict[int, int] = {}
    for latent in model.modules():
        if isinstance(latent, Latent):
            own = dict(latent.named_parameters(remove_duplicate=False))
            ranks |= {id(own[name]): rank for name, rank in latent.factor_ranks().items()}
    return ranks
