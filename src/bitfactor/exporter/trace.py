"""What torch.export makes of a model whose binary layers are baked: signs stay, what made them goes.

A baked layer calls one custom operator: a trace shows it as one node, not the arithmetic of its weight.
"""

import copy
import itertools
import logging
import operator
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, is_dataclass
from functools import cache
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn import functional as F
from torch.utils._pytree import TreeSpec, tree_leaves, tree_unflatten

from bitfactor.common.errors import InputError
from bitfactor.exporter.adoption import Adoption, adopt
from bitfactor.exporter.follow import follow_, inline_regions
from bitfactor.exporter.operators import rule_of
from bitfactor.exporter.report import Obstacle, UnsupportedError
from bitfactor.format import Signature, Value
from bitfactor.format.signature import Structure
from bitfactor.nn import (
    BinaryConv,
    BinaryConvTranspose,
    BinaryLayer,
    BinaryLinear,
    LearnedMapScale,
    SignActivation,
    open_attention_,
    sign,
)
from bitfactor.nn.conv_transpose import CONVOLUTIONS as TRANSPOSED
from bitfactor.nn.conv_transpose import spread_magnitude
from bitfactor.nn.model import Call, become, is_watched, line_of
from bitfactor.nn.scale import CONVOLUTIONS, over_channels


def _binary_conv(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_value: int,
) -> Tensor:
    """sign(x) (N, C, ...) convolved with weight in {-1, +1} (O, C / groups, ...): exact sums as float32.

    `padding` is that of torch.nn.functional.pad, filled with `pad_value` after the sign.
    """
    padded = F.pad(sign(x), padding, value=float(pad_value))
    return CONVOLUTIONS[x.ndim - 2](padded, weight.to(x.dtype), None, stride, 0, dilation, groups)


def _binary_conv_transpose(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """sign(x) (N, C, ...) by weight in {-1, +1} (C, O / groups, ...), as torch's: exact sums as float32."""
    geometry = stride, padding, output_padding, groups, dilation
    return TRANSPOSED[x.ndim - 2](sign(x), weight.to(x.dtype), None, *geometry)


def _binary_linear(x: Tensor, weight: Tensor) -> Tensor:
    """sign(x) (N, F) times weight in {-1, +1} (O, F): exact sums as float32, (N, O)."""
    return F.linear(sign(x), weight.to(x.dtype))


def _operator(name: str, compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function as one node of a trace, which finds the shape by the function itself."""
    made = torch.library.custom_op(f"bitfactor::{name}", compute, mutates_args=())
    made.register_fake(compute)
    return made


binary_conv = {n: _operator(f"binary_conv{n}d", _binary_conv) for n in CONVOLUTIONS}
binary_conv_transpose = {
    n: _operator(f"binary_conv_transpose{n}d", _binary_conv_transpose) for n in TRANSPOSED
}
binary_linear = _operator("binary_linear", _binary_linear)


class _Baked(nn.Module):
    """What is left of a binary layer: its weight; scale and bias, shaped to broadcast over its output."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str

    def __init__(self, layer: BinaryLayer, weight: Tensor) -> None:
        super().__init__()
        of = layer.scale
        scale = of.gamma() if isinstance(of, LearnedMapScale) else over_channels(layer.alpha(), weight)
        bias = None if layer.bias is None else over_channels(layer.bias, weight).detach().clone()
        self.before = _before(layer.sign_input)
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("scale", scale.detach().clone())
        self.register_buffer("bias", bias)
        for name in _GEOMETRY:  # for models that look at it
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))


_GEOMETRY = (
    *("in_channels", "out_channels", "in_features", "out_features", "kernel_size", "stride", "padding"),
    *("output_padding", "padding_mode", "dilation", "groups"),
)


class _BakedLayer(_Baked, ABC):
    """A layer of signs alone, with its K."""

    def __init__(self, layer: BinaryLayer) -> None:
        super().__init__(layer, layer.binary_weight().to(torch.int8))
        self.input_scale, self.magnitude_of = layer.input_scale, layer.magnitude

    def forward(self, input: Tensor) -> Tensor:
        y = self.product(input if self.before is None else self.before(input)) * self.scale
        if self.input_scale:
            y = y * self.magnitude(input)
        return y if self.bias is None else y + self.bias

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """Return sign(x) times the signs of the weight."""

    def magnitude(self, x: Tensor) -> Tensor:
        """Return the layer's K, as `BinaryLayer.magnitude`."""
        return self.magnitude_of(x)


def _before(sign_input: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """Return what comes before the sign of an input, None where that is the input itself."""
    is_known = type(sign_input) is SignActivation and not is_watched(sign_input)
    before: Any = sign_input.surrogate if is_known else sign_input
    return copy.deepcopy(before).eval() if isinstance(before, nn.Module) else before


class _BakedConv(_BakedLayer):
    def __init__(self, layer: BinaryConv) -> None:
        super().__init__(layer)
        self.convolve = binary_conv[layer.dimensions]
        self.pad_value = layer.padding_value
        self.sides_of = layer.padding_of_sides

    def product(self, x: Tensor) -> Tensor:
        sides = self.sides_of(x)
        if self.padding_mode != "zeros":  # of values or of their signs is the same
            x, sides = F.pad(x, sides, mode=self.padding_mode), [0] * len(sides)
        geometry = list(self.stride), sides, list(self.dilation), self.groups, self.pad_value
        return self.convolve(x, self.weight, *geometry)


class _BakedConvTranspose(_BakedLayer):
    def __init__(self, layer: BinaryConvTranspose) -> None:
        super().__init__(layer)
        self.convolve = binary_conv_transpose[layer.dimensions]
        self.geometry = layer.geometry

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        own = self.geometry
        if output_size is not None:
            self.geometry = own.giving(output_size, input.shape, self.kernel_size)
        try:
            return super().forward(input)
        finally:
            self.geometry = own

    def product(self, x: Tensor) -> Tensor:
        return self.convolve(x, self.weight, *self.geometry)

    def magnitude(self, x: Tensor) -> Tensor:
        return spread_magnitude(x, self.out_channels, self.kernel_size, self.geometry)


class _BakedLinear(_BakedLayer):
    def product(self, x: Tensor) -> Tensor:
        return binary_linear(x, self.weight)


class _BakedHalf(_Baked):
    """A layer whose weights alone are signs, or whose inputs alone are, as a real-valued one."""

    def __init__(self, layer: BinaryLayer) -> None:
        weight = layer.binary_weight() if layer.binary_weights else layer.unit_weight()
        super().__init__(layer, layer.filters(weight, layer.groups))
        self.layer = copy.deepcopy(layer).eval()

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        if isinstance(self.layer, BinaryConvTranspose):
            with self.layer.giving(output_size, input.shape):
                return self.product(input)
        return self.product(input)

    def product(self, x: Tensor) -> Tensor:
        """Return the product of one real and one binary factor, with scale and bias."""
        layer, signs = self.layer, self.layer.binary_activations
        before = x if self.before is None or not signs else self.before(x)
        y: Tensor = layer.apply_weight(sign(before) if signs else x, self.weight) * self.scale
        y = y * layer.magnitude(x) if signs and layer.input_scale else y
        return y if self.bias is None else y + self.bias


def bake(model: nn.Module) -> nn.Module:
    """Return a copy of `model`, in evaluation mode, whose binary layers are signs and scales alone.

    Those of a kind that the file has no operation for are `Refused`.
    """
    if isinstance(model, BinaryLayer):
        return _baked("", model).eval()
    baked = copy.deepcopy(model).eval()
    open_attention_(baked)
    for name, layer in model.named_modules():
        if isinstance(layer, BinaryLayer):
            become(baked.get_submodule(name), _baked(name, layer))
    return baked


class Refused(nn.Module):
    """A binary layer as it was, that the file has no operation for."""

    def __init__(self, name: str, layer: BinaryLayer, found: str, fix: str) -> None:
        super().__init__()
        expected = "a binary linear layer or convolution"
        self.obstacle = Obstacle(name, "", expected, found, fix)
        self.layer = copy.deepcopy(layer).eval()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        y: Tensor = self.layer(*args, **kwargs)
        return y


def _baked(name: str, layer: BinaryLayer) -> nn.Module:
    kind = next((kind for kind in _FORMS if isinstance(layer, kind)), None)
    if kind is None:
        return Refused(name, layer, type(layer).__name__, "keep this layer real")
    for method in ("forward", "apply_weight", "magnitude"):
        if method in vars(layer) or getattr(type(layer), method) is not getattr(kind, method):
            found = f"{type(layer).__name__}, whose {method}() is its own"
            return Refused(name, layer, found, "do what it adds in a module beside the layer")
    if not layer.scale.fits_file():
        found = f"a scale {type(layer.scale).__name__} that a hook or a forward() of its own changes"
        return Refused(name, layer, found, "define alpha_of() alone")
    both = layer.binary_activations and layer.binary_weights
    baked = _FORMS[kind](layer) if both else _BakedHalf(layer)
    for hooks in _HOOKS:
        setattr(baked, hooks, getattr(layer, hooks))
    return baked


_HOOKS = tuple(f"_forward_{of}" for of in ("hooks", "hooks_with_kwargs", "hooks_always_called"))
_HOOKS += tuple(f"_forward_pre_{of}" for of in ("hooks", "hooks_with_kwargs"))

_FORMS: dict[type[BinaryLayer], Callable[[Any], nn.Module]] = {
    BinaryConv: _BakedConv,
    BinaryConvTranspose: _BakedConvTranspose,
    BinaryLinear: _BakedLinear,
}


@dataclass(frozen=True)
class Trace:
    """A model as `module`, one operator behind the other, traced with a batch of `samples`.

    `inputs` are those of the graph, `given` what each placeholder of the module stands for: the name of an
    input, or a constant. `refused` are the binary layers that the file has no operation for. `adoption` tells
    which layers of a model that has none of ours are binary.
    """

    module: fx.GraphModule
    inputs: tuple[Value, ...]
    samples: int
    given: Mapping[fx.Node, Any]
    signature: Signature
    refused: tuple[Obstacle, ...] = ()
    adoption: Adoption | None = None


def traced(model: nn.Module, call: Call) -> Trace:
    """Trace a model."""
    baked = bake(model)
    _expect_tensors(model, call)
    refused = tuple(module.obstacle for module in baked.modules() if isinstance(module, Refused))
    foreign = not any(isinstance(module, BinaryLayer) for module in model.modules())
    if foreign:
        follow_(baked, call)
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(baked, call.args, dict(call.kwargs))
            inline_regions(program.graph_module)
            program = _of_known(program, pure=foreign)
            module = program.module()
            adoption = adopt(module) if foreign else None
    except Exception as error:
        raise UnsupportedError(type(model).__name__, [*refused, _untraceable(model, error)]) from error
    module = module if adoption is None else adoption.module
    names, types = input_names(model, call), [type_of(x) for x in call.tensors]
    shapes = [tuple(x.shape[1:]) or (1,) for x in call.tensors]
    inputs = [Value(name, shape, "float32") for name, shape in zip(names, shapes, strict=True)]
    left = iter(names)
    given = [next(left) if isinstance(value, Tensor) else value for value in call.values()]
    return Trace(
        module,
        tuple(inputs),
        len(call.tensors[0]),
        dict(zip(placeholders(module), given, strict=True)),
        Signature(
            tuple(types),
            _structure(program.call_spec.out_spec, module),
            scalar_inputs=tuple(i for i, x in enumerate(call.tensors) if x.dim() == 1),
        ),
        refused,
        adoption,
    )


def _of_known(program: ExportedProgram, *, pure: bool = False) -> ExportedProgram:
    """Return the program with torch's own decompositions of operators that the file has no rule for.

    Torch then also writes what changes a part of a value in place as an operator that gives a new one; so
    this is done where a program changes a value that others see, or `pure` asks for a program that changes
    none. All else stays as it is.
    """
    for _ in range(_ROUNDS):
        unknown = {node.target for node in _computed(program) if rule_of(node.target) is None}
        table = _decompositions() if unknown else {}
        changes = any(map(_changes, program.graph.nodes)) if pure else _changes_what_others_see(program.graph)
        known = not unknown.isdisjoint(table)
        if not known and not any(map(_is_composite, unknown)) and not changes:
            break
        with warnings.catch_warnings(action="ignore"):
            program = program.run_decompositions(table if known else {})
    return program


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's own decompositions of all operators that the file has no rule for."""
    table = torch.export.default_decompositions().items()  # type: ignore[no-untyped-call]
    return {one: parts for one, parts in table if rule_of(one) is None}


def _is_composite(one: object) -> bool:
    """Whether torch takes an operator apart by itself, such as a view by another name."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(one, torch._ops.OpOverload) and one.has_kernel_for_dispatch_key(composite)


_ROUNDS = 4  # one decomposition may need another


def _computed(program: ExportedProgram) -> list[fx.Node]:
    """Return the operators that depend on an input; others are constants of the file."""
    inputs, depends = {*program.graph_signature.user_inputs}, set[fx.Node]()
    for node in program.graph.nodes:
        if node.name in inputs or any(operand in depends for operand in node.all_input_nodes):
            depends.add(node)
    return [node for node in program.graph.nodes if node in depends and node.op == "call_function"]


def _changes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _changes_what_others_see(graph: fx.Graph) -> bool:
    """Whether an operator changes a value in place, and more than its result is used."""
    for node in graph.nodes:
        if _changes(node) and (not node.users or any(map(_is_seen_by_others, _viewed(node.args[0])))):
            return True
    return False


def _is_seen_by_others(value: fx.Node) -> bool:
    """Whether a value has several users, other than those that take parts of it, which are apart."""
    return len(value.users) > 1 and any(user.target is not operator.getitem for user in value.users)


def _viewed(node: Any) -> Iterator[fx.Node]:
    """Yield a value and those that it is a view of, or may be."""
    while isinstance(node, fx.Node):
        yield node
        schema = getattr(node.target, "_schema", None)
        aliases = schema is not None and any(value.alias_info is not None for value in schema.returns)
        given = aliases or node.target is operator.getitem or "dropout" in str(node.target)
        node = node.args[0] if given and node.args else None


def placeholders(module: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes that stand for what the module takes."""
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def leaves(module: fx.GraphModule) -> tuple[Any, ...]:
    """Return what a module gives, one behind the other: nodes, or constants."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return tuple(output.args[0]) if isinstance(output.args[0], tuple | list) else (output.args[0],)


def input_names(model: nn.Module, call: Call) -> list[str]:
    """Return the names of a model's inputs in the file: a single one of real numbers is "input"."""
    if len(call.tensors) == 1 and call.tensors[0].is_floating_point():
        return ["input"]
    return call.names(model)


def type_of(x: Tensor) -> str:
    """Return the type of an input or output as a signature has it."""
    if x.is_floating_point():
        return "float32"
    return "bool" if x.dtype == torch.bool else "int64"


def _structure(spec: TreeSpec, module: fx.GraphModule) -> Structure:
    """Return in what the outputs come, with the number of each in its place."""
    count = itertools.count()
    return _plain(tree_unflatten([None if leaf is None else next(count) for leaf in leaves(module)], spec))


def _plain(structure: Any) -> Structure:
    if is_dataclass(structure) and not isinstance(structure, Mapping):
        structure = vars(structure)
    if isinstance(structure, Mapping):
        return {_key(name): _plain(part) for name, part in structure.items()}
    if isinstance(structure, list):
        return [_plain(part) for part in structure]
    return tuple(map(_plain, structure)) if isinstance(structure, tuple) else structure


def _key(name: Any) -> str | float | None:
    if name is None or isinstance(name, str | int | float):
        return name
    raise InputError(
        "the outputs",
        expected="a dict whose keys are strings or numbers",
        found=f"the key {name!r}",
        fix="return them by other keys",
    )


def _untraceable(model: nn.Module, error: Exception) -> Obstacle:
    return Obstacle(
        type(model).__name__,
        line_of(error),
        "a model that torch.export can trace",
        f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}",
        "remove control flow that depends on values, and see the torch.export documentation",
    )


def _expect_tensors(model: nn.Module, call: Call) -> None:
    with torch.no_grad():
        outputs = call.tried(model)
    found = [leaf for leaf in tree_leaves(outputs) if leaf is not None]
    if not found or not all(isinstance(output, Tensor) for output in found):
        raise InputError(
            type(model).__name__,
            expected="a tensor as output, or several in a tuple, list or dict",
            found=type(
                next((output for output in found if not isinstance(output, Tensor)), outputs)
            ).__name__,
            fix="export a model that returns tensors",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch prints of a failing trace, dozens of lines, off the screen; the error is one."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)
