"""`bitfactor.adopt_`: the binary layers of others' code become ours, to train on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.result import Result, text_table
from bitfactor.decompositions import Dense
from bitfactor.exporter.adoption import Adoption
from bitfactor.exporter.follow import constants
from bitfactor.exporter.parity import expect_binary_findings
from bitfactor.exporter.trace import traced
from bitfactor.nn import BinaryConv1d, BinaryConv2d, BinaryConv3d, BinaryLayer, BinaryLinear
from bitfactor.nn.model import Call, Example, become, copied, watch_optimizers
from bitfactor.nn.scale import LearnedScale
from bitfactor.nn.sign import SignActivation

_SAMPLES = 32  # with which a layer is compared
_SAME = 1e-4  # of its largest output
_CONVOLUTIONS = {f"bitfactor.binary_conv{n}d.default": n for n in (1, 2, 3)}
_LAYERS: dict[int, Any] = {1: BinaryConv1d, 2: BinaryConv2d, 3: BinaryConv3d}


@dataclass(frozen=True)
class AdoptedLayer:
    """A layer of others' code: whether one of ours is in its place now, and why."""

    name: str
    replaced: bool
    why: str


@dataclass(frozen=True)
class Adopted(Result):
    """What `adopt_` did, layer by layer."""

    layers: tuple[AdoptedLayer, ...]

    def __str__(self) -> str:
        rows = [[one.name, "replaced" if one.replaced else "left", one.why] for one in self.layers]
        return text_table(["layer", "", "why"], rows)


@checked
def adopt_(model: nn.Module, example: Example) -> Adopted:
    """Put layers of `bitfactor.nn` in place of the layers that are binary by their authors' code.

    Each new layer has the old one's signs and, where a latent weight with these signs is in the model, its
    values. A learned alpha and a bias for each output make it compute what the old one did. A module is
    replaced where it is one binary convolution or linear layer, with whatever it does before and behind it.
    Others are left, and the result says why. `bitfactor.export` takes the network as it stands, before
    and after.

    Make the optimizer afterwards: one that was made before holds parameters that are gone, and raises
    InputError when it steps.

    Parameters
    ----------
    example
        A batch as the model takes it, (N, ...); a tuple of several inputs, or a dict.

    Raises
    ------
    InputError
        If no layer of the model is binary, or torch.export does not take the model.

    Example
    -------
    >>> print(bitfactor.adopt_(reactnet, torch.randn(2, 3, 224, 224)))
    """
    call = Call.of(example).mapped(lambda x: x[:2].detach().cpu())
    still = copied(model).cpu().eval()
    adoption = traced(still, call).adoption
    if adoption is None:
        raise InputError(
            type(model).__name__,
            expected="a network of others' layers",
            found="layers of bitfactor.nn",
            fix="call bitfactor.binarize_, which changes them",
        )
    expect_binary_findings(adoption, model)
    given = _inputs(still, call)
    before = {id(parameter): parameter for parameter in model.parameters()}
    layers = tuple(_adopted(model, still, adoption, node, given) for node in _products(adoption))
    for parameter in model.parameters():
        before.pop(id(parameter), None)
    watch_optimizers(before.values())
    return Adopted(layers)


def _products(adoption: Adoption) -> list[fx.Node]:
    """Return the nodes of binary layers."""
    found = adoption.findings
    return [n for n in adoption.module.graph.nodes if n.name in found and found[n.name].kind == "binary"]


def _inputs(model: nn.Module, call: Call) -> dict[str, Tensor]:
    """Return what each module that takes one tensor is given."""
    given: dict[str, Tensor] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Sequence[Any]) -> None:
            if len(args) == 1 and isinstance(args[0], Tensor):
                given[name] = args[0].detach()

        return hook

    handles = [module.register_forward_pre_hook(note(name)) for name, module in model.named_modules()]
    with torch.no_grad():
        call(model)
    for handle in handles:
        handle.remove()
    return given


def _adopted(
    model: nn.Module, still: nn.Module, adoption: Adoption, node: fx.Node, given: dict[str, Tensor]
) -> AdoptedLayer:
    name = adoption.findings[node.name].module
    several = Counter(adoption.findings[other.name].module for other in _products(adoption))[name] > 1
    if not name or several or name not in given:
        return AdoptedLayer(name or node.name, False, "its module does more than this layer")
    x = _like(given[name])
    layer = _layer(adoption, node, still.get_submodule(name))
    layer.sign_input = SignActivation("identity" if len(_values(x)) == 2 else "clipped")
    layer.name = name
    with torch.no_grad():
        expected, sums = still.get_submodule(name)(x), layer.eval()(x)
    if expected.shape != sums.shape or not _fitted(layer, sums, expected):
        return AdoptedLayer(
            name, False, "its module is no product of its input's signs, times alpha, plus a bias"
        )
    module = model.get_submodule(name)
    become(module, layer.to(next(module.parameters()).device).train(module.training))
    return AdoptedLayer(name, True, adoption.findings[node.name].why)


def _like(x: Tensor) -> Tensor:
    """Return drawn inputs, of the two values that x has, or real ones."""
    drawn = torch.randn(_SAMPLES, *x.shape[1:], generator=torch.Generator().manual_seed(0))
    values = _values(x)
    return torch.where(drawn > 0, values[1], values[0]) if len(values) == 2 else drawn


def _values(x: Tensor) -> Tensor:
    values: Tensor = torch.unique(x)
    return values


def _layer(adoption: Adoption, node: fx.Node, module: nn.Module) -> BinaryLayer:
    """Return a layer of ours with the signs of a binary node, an alpha of 1 and a bias of 0."""
    signs = constants(adoption.module)[node.args[1]]  # type: ignore[index]
    latent = Dense.from_weight(_latent(signs, module))
    scale, bias = LearnedScale(torch.ones(len(signs))), nn.Parameter(torch.zeros(len(signs)))
    n = _CONVOLUTIONS.get(str(node.target))
    if n is None:
        return BinaryLinear.of(latent, scale, bias=bias)
    geometry_of: tuple[Any, ...] = node.args[2:]
    stride, pads, dilation, groups, value = geometry_of
    sides = tuple(reversed(pads[::2]))
    geometry = {"stride": stride, "padding": sides, "dilation": dilation, "groups": groups}
    layer: BinaryLayer = _LAYERS[n].of(latent, scale, bias=bias, padding_value=value, **geometry)
    return layer


def _latent(signs: Tensor, module: nn.Module) -> Tensor:
    """Return real values with these signs: a parameter's own where it has them, else its magnitudes."""
    same = [p.detach().reshape(signs.shape) for p in module.parameters() if p.numel() == signs.numel()]
    values = same[0] if same else signs
    magnitude = values.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(values * signs > 0, values, magnitude * signs).float()


def _fitted(layer: BinaryLayer, sums: Tensor, expected: Tensor) -> bool:
    """Set alpha and bias so that the layer gives `expected` for the inputs that it gives `sums` for."""
    axis = -1 if isinstance(layer, BinaryLinear) else 1
    x, y = (v.movedim(axis, 0).flatten(1).double() for v in (sums, expected))
    centred = x - x.mean(1, keepdim=True)
    alpha = (centred * y).sum(1) / centred.square().sum(1).clamp_min(1e-12)
    bias = y.mean(1) - alpha * x.mean(1)
    difference = (alpha[:, None] * x + bias[:, None] - y).abs().max()
    assert isinstance(layer.scale, LearnedScale)
    assert layer.bias is not None
    layer.scale.alpha.data.copy_(alpha)
    layer.bias.data.copy_(bias)
    return bool(difference <= _SAME * y.abs().max())
