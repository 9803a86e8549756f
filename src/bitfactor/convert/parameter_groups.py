"""The parameters of a binary model by what they are, for an optimizer."""

from typing import Any

from torch import nn

from bitfactor.checks import checked
from bitfactor.decompositions import Latent
from bitfactor.nn import AnalyticScale, LearnedMapScale, LearnedScale, NoScale

_SCALES = (AnalyticScale, LearnedMapScale, LearnedScale, NoScale)
_NORMALISATIONS = (nn.PReLU, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


@checked
def parameter_groups(model: nn.Module, *, weight_decay: float = 0.0) -> list[dict[str, Any]]:
    """Return the parameters of a model as groups for a torch optimizer, each once and none left out.

    A group has a `name`: "latents" are the free weights and cores, "factors" what multiplies them, "alphas"
    the learned scales, "weights" those of full-precision layers, "rest" biases, slopes and normalisations.
    Decay is for latents, factors and weights alone, as in the paper's set-up. Empty groups are left out.

    Example
    -------
    >>> groups = bitfactor.parameter_groups(model, weight_decay=1e-7)
    >>> optimizer = torch.optim.Adam(groups, lr=1e-3)
    >>> [group["lr"] for group in groups if group["name"] == "factors"]
    """
    names: dict[str, list[nn.Parameter]] = {
        name: [] for name in ("latents", "factors", "alphas", "weights", "rest")
    }
    kinds = _kinds(model)
    for parameter in model.parameters():
        names[kinds[id(parameter)]].append(parameter)
    decayed = ("latents", "factors", "weights")
    return [
        {"name": name, "params": parameters, "weight_decay": weight_decay if name in decayed else 0.0}
        for name, parameters in names.items()
        if parameters
    ]


def _kinds(model: nn.Module) -> dict[int, str]:
    """Return what each parameter is, by its id."""
    kinds: dict[int, str] = {}
    for module in model.modules():
        of_scale, normalises = isinstance(module, _SCALES), isinstance(module, _NORMALISATIONS)
        for name, parameter in module.named_parameters(recurse=of_scale):
            if of_scale:
                kinds[id(parameter)] = "alphas"
            else:
                kinds.setdefault(id(parameter), "rest" if normalises or name == "bias" else "weights")
    for latent in model.modules():
        if isinstance(latent, Latent):
            carrier = max(latent.parameters(), key=lambda parameter: parameter.numel())
            kinds |= {id(p): "latents" if p is carrier else "factors" for p in latent.parameters()}
    return kinds
