"""Binary layers of others' code: found in the traced graph, whatever classes the model is made of.

A layer is binary where both hold:

- Each filter of its weight, computed from the model's parameters, has two values: -a and +a, or c - a and
  c + a. Then y = a B + c S, where B is the product of signs and S the sum of the inputs, which is one too.
- Its input has two values, low and high: a sign, a comparison or what is computed from one. Then it is
  m + h s with a sign s; what m adds is a constant.

Such a layer becomes the operator that a layer of `bitfactor.nn` is exported as, times a, plus constants. All
else stays as torch traced it. Where the input alone has two values the layer stays real and reads the signs.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from bitfactor.exporter.fold import ANY, Levels, Steps, bounds_of, combined, stepped
from bitfactor.exporter.follow import (
    constants,
    module_path,
    name_of,
    products_as_linear,
    remove_unused,
    simplify,
)
from bitfactor.exporter.operators.convolutions import last_first, numbers, sides_of
from bitfactor.nn.scale import CONVOLUTIONS

_ATEN = torch.ops.aten
_SAME = 1e-6  # of a filter's values: they differ by rounding
_COMPARED = ("gt", "ge", "lt", "le", "eq", "ne")
_STEPPED = (*_COMPARED, "sign", "sgn", "heaviside", "round", "floor", "ceil", "trunc", "isnan")
_FILLED = {"ones_like": 1.0, "zeros_like": 0.0}
_MOVING = (
    "view", "reshape", "flatten", "permute", "transpose", "unsqueeze", "squeeze", "expand", "slice",
    "select", "t", "flip", "roll", "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d",
    "index", "index_select",
)  # fmt: skip
_CONVOLUTIONS = {
    getattr(getattr(_ATEN, f"conv{n}d"), overload): n
    for n in (1, 2, 3)
    for overload in ("default", "padding")
}


@dataclass(frozen=True)
class TwoValued:
    """A weight (O, ...) as centre + alpha * signs; centre and alpha are (O,)."""

    signs: Tensor
    alpha: Tensor
    centre: Tensor

    def exact(self) -> Tensor:
        """Return alpha * signs, the weight where its centre is 0."""
        return self.signs * self.alpha.reshape(-1, *[1] * (self.signs.dim() - 1))


def two_valued(weight: Tensor) -> TwoValued | None:
    """Return a weight as two values for each filter; None if one has more, or too few elements to tell."""
    rows = weight.flatten(1)
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    scale = torch.maximum(low.abs(), high.abs())
    centre, alpha = (high + low) / 2, (high - low) / 2
    one = alpha <= _SAME * scale  # one value, whose sign may be either
    symmetric = centre.abs() <= _SAME * scale
    alpha, centre = (
        torch.where(one | symmetric, torch.where(one, centre, alpha), alpha),
        centre * ~(one | symmetric),
    )
    signs = torch.where(one | (rows > centre), 1, -1)
    found = bool(((centre + alpha * signs - rows).abs() <= 2 * _SAME * scale).all())
    if not found or rows.shape[1] < (3 if bool(centre.any()) else 2):
        return None
    return TwoValued(signs.reshape(weight.shape).to(torch.int8), alpha.flatten(), centre.flatten())


def _moves(node: fx.Node) -> bool:
    """Return whether each element of the value of a node is one of its operand's."""
    repeats = name_of(node) == "pad" and _operand(node, 2) in ("circular", "reflect", "replicate")
    return repeats or name_of(node) in _MOVING


@dataclass(frozen=True)
class Product:
    """A convolution or linear layer of a graph: `take(x, weight, pads)` computes it without bias.

    `pads` are those of torch.nn.functional.pad, `signed` the operator on signs with its arguments.
    """

    take: Callable[..., Tensor]
    pads: tuple[int, ...]
    signed: Callable[[int], tuple[Any, tuple[Any, ...]]]
    groups: int = 1

    def over(self, values: Tensor) -> Tensor:
        """(O,) -> what broadcasts against the output: (1, O, 1, ...) of a convolution."""
        return values.reshape(1, -1, *[1] * (len(self.pads) // 2)) if self.pads else values


def product_of(node: fx.Node, weight: Tensor) -> Product | None:
    """Return a layer of a graph as a product, None if it is none."""
    if node.target is _ATEN.linear.default:
        return Product(
            lambda x, w, pads: F.linear(x, w), (), lambda _: (torch.ops.bitfactor.binary_linear.default, ())
        )
    n = _CONVOLUTIONS.get(node.target)
    if n is None:
        return None
    given: dict[str, Any] = (
        dict(zip(("stride", "padding", "dilation", "groups"), node.args[3:], strict=False)) | node.kwargs
    )
    stride, dilation = (numbers(given.get(name, 1), n) for name in ("stride", "dilation"))
    pads = tuple(last_first(*sides_of(given.get("padding", 0), weight.shape[2:], dilation)))
    groups = given.get("groups", 1)
    operator = getattr(torch.ops.bitfactor, f"binary_conv{n}d").default
    return Product(
        lambda x, w, pads: CONVOLUTIONS[n](
            F.pad(x, pads) if any(pads) else x, w, None, stride, 0, dilation, groups
        ),
        pads,
        lambda value: (operator, (stride, [*pads], dilation, groups, value)),
        groups,
    )


@dataclass(frozen=True)
class Finding:
    """What a layer is, and why: its `kind` is binary, binary weights, binary inputs or real.

    `module` is the path of the module whose code it is.
    """

    kind: str
    why: str
    module: str = ""


_OF_INPUTS = "the sum of a binary layer's inputs: the two values of its filters are no -a and +a"
MADE_OF_OTHERS = Finding("real", "part of an operation that is made of others")


@dataclass(frozen=True)
class Signs(Levels):
    """Two values of a graph by the sign of another: `high` where that is above 0, else `low`.

    `stands_for` is the node of the original that has them.
    """

    stands_for: str


@dataclass
class Adoption:
    """A trace whose binary layers are operators on signs, and the trace as it was.

    `findings` are those of layers, by the name of their node. `layers` maps nodes that give a layer's output
    to those of the original. `signs` says what the signs of a node stand for.
    """

    original: fx.GraphModule
    module: fx.GraphModule
    findings: dict[str, Finding] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)
    signs: dict[str, Signs] = field(default_factory=dict)


def adopt(module: fx.GraphModule) -> Adoption:
    """Find the binary layers of a traced module, without effects, in a copy of it."""
    adoption = Adoption(module, copy.deepcopy(module))
    simplify(adoption.module.graph)
    products_as_linear(adoption.module)
    walk = _Walk(adoption)
    for node in [*adoption.module.graph.nodes]:
        if node.op == "call_function" and node not in walk.constants:
            walk.visit(node)
    remove_unused(adoption.module.graph)
    adoption.module.recompile()
    return adoption


@dataclass(frozen=True)
class _Padded:
    """What a layer reads: the value, how it is padded, and with what."""

    value: fx.Node
    pads: tuple[int, ...]
    fill: float = 0.0


@dataclass(frozen=True)
class _SignLayer(Levels):
    """A binary layer: its node and weight, and what its input is: low or high, by the sign of `signs`."""

    node: fx.Node
    weight: Tensor
    form: TwoValued
    read: _Padded
    product: Product
    signs: fx.Node

    @property
    def sign_of_pad(self) -> int:
        """The sign that stands for a pad, 0 where it is neither low nor high."""
        return -1 if self.read.fill == self.low else 1 if self.read.fill == self.high else 0

    @property
    def of_pad(self) -> float:
        """What a pad is beside its sign, as `middle` is of the other inputs."""
        return self.read.fill - self.half * self.sign_of_pad if any(self.read.pads) else self.middle


class _Walk:
    """Goes over the nodes in their order. `known` are single numbers, and Steps."""

    def __init__(self, adoption: Adoption) -> None:
        self.adoption, self.module, self.graph = adoption, adoption.module, adoption.module.graph
        self.constants = constants(self.module)
        self.known: dict[fx.Node, Any] = {
            node: value.flatten()[0]
            for node, value in self.constants.items()
            if isinstance(value, Tensor) and _is_one_number(value)
        }

    def visit(self, node: fx.Node) -> None:
        weight = self.constants.get(_operand(node, 1))
        product = product_of(node, weight) if isinstance(weight, Tensor) else None
        if product is not None and weight is not None:
            self._layer(node, weight, product)
            return
        filled = _FILLED.get(name_of(node), node.args[1] if name_of(node) == "full_like" else None)
        found = self._steps(node) if filled is None else torch.tensor(filled, dtype=node.meta["val"].dtype)
        if found is not None:
            self.known[node] = found

    def _steps(self, node: fx.Node) -> Steps | None:
        moving = [operand for operand in node.all_input_nodes if operand not in self.constants]
        stepped_already = bool(moving) and all(operand in self.known for operand in moving)
        if stepped_already and name_of(node) == "cat":
            return self._joined(node, [*_operand(node, 0)])
        if stepped_already and _moves(node) and len(moving) == 1:
            return self._moved(node, self.known[moving[0]])
        if not all(operand in self.known for operand in node.all_input_nodes if operand in self.constants):
            return self._compared(node, moving) if name_of(node) in _COMPARED else None
        if stepped_already and _is_pointwise(node):
            return combined(node, self.known)
        if len(moving) == 1 and name_of(node) in _STEPPED and _is_float(moving[0]):
            function, bounds = self._function(node, moving[0]), bounds_of(moving[0], self.known)
            return stepped(moving[0], function, bounds, self._monotone(node))
        return self._compared(node, moving) if name_of(node) in _COMPARED else None

    def _function(self, node: fx.Node, x: fx.Node) -> Callable[[Tensor], Tensor]:
        def function(value: Tensor) -> Tensor:
            operands = {each: self.known[each].reshape(()) for each in node.all_input_nodes if each is not x}
            args, kwargs = fx.map_arg((node.args, node.kwargs), (operands | {x: value}).__getitem__)
            result: Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
            return result

        return function

    def _monotone(self, node: fx.Node) -> tuple[Callable[[Tensor], Tensor], ...]:
        """Return functions with the cuts of one that is not monotone: being the same as a number."""
        if name_of(node) not in ("eq", "ne"):
            return ()
        other: Any = _operand(node, 1)
        other = self.known[other] if isinstance(other, fx.Node) else other
        return (lambda x: x >= other, lambda x: x > other)

    def _compared(self, node: fx.Node, moving: list[fx.Node]) -> Steps | None:
        """Return a comparison of two values as one of their difference, 0 for equals alone, with 0."""
        if not moving or not all(isinstance(x, fx.Node) and _is_float(x) for x in node.args[:2]):
            return None
        difference = self._put(node, _ATEN.sub.Tensor, (node.args[0], node.args[1]), _like_float(node))
        zero = torch.zeros(())
        monotone = (lambda x: x >= zero, lambda x: x > zero)
        return stepped(difference, lambda x: node.target(x, zero), ANY, monotone)  # type: ignore[operator]

    def _moved(self, node: fx.Node, steps: Steps) -> Steps | None:
        """Return steps whose elements are moved, or the largest of some, as those of their source."""
        rising = bool((steps.values[1:].float() >= steps.values[:-1].float()).all())
        given = _operand(node, 0).meta["val"]
        if steps.source.meta["val"].shape != given.shape or ("max" in name_of(node) and not rising):
            return None
        source = self._put(node, node.target, (steps.source, *node.args[1:]), _like_float(node), node.kwargs)
        return Steps(source, steps.cuts, steps.values)

    def _joined(self, node: fx.Node, parts: list[fx.Node]) -> Steps | None:
        """Return several values of the same two numbers, side by side, as one."""
        forms = [self._two(part) for part in parts]
        if any(form is None for form in forms) or len({form[1:] for form in forms if form}) > 1:
            return None
        above = []
        for part, form in zip(parts, forms, strict=True):
            above.append(self._above(node, self.known[part].source, form[0]))  # type: ignore[index]
        joined = self._put(node, node.target, (above, *node.args[1:]), _like_float(node), node.kwargs)
        steps = stepped(joined, lambda x: x > 0, ANY)
        return steps and Steps(joined, steps.cuts, torch.tensor(forms[0][1:]))  # type: ignore[index]

    def _two(self, node: fx.Node) -> tuple[float, float, float] | None:
        """Return the threshold and the two values of Steps, None where they are more or none."""
        steps = self.known.get(node)
        if not isinstance(steps, Steps) or steps.source.meta["val"].shape != node.meta["val"].shape:
            return None
        if len(steps.values) != 2 and not steps.apart_at_zero():
            return None
        return steps.thresholds()[-1], float(steps.values[0]), float(steps.values[-1])

    def _above(self, node: fx.Node, source: fx.Node, threshold: float) -> fx.Node:
        """Return a source less a threshold: above 0 where, and only where, the source is above it."""
        if threshold == 0:
            return source
        return self._put(node, _ATEN.sub.Tensor, (source, threshold), source.meta["val"])

    def _layer(self, node: fx.Node, weight: Tensor, product: Product) -> None:
        form, read = two_valued(weight), self._padded(node, product)
        two = self._two(read.value)
        name = node.name
        if two is None:
            kind, why = (
                ("binary weights", "each filter has two values, its input") if form else ("real", "its input")
            )
            why = f"{why} {self._why_not(read.value)}"
            if form is None:
                why += f"; a filter has {_most_values(weight)} values"
            elif not form.centre.any():
                node.update_arg(1, self._stored(node, form.exact()))
        elif form is None:
            kind, why = (
                "binary inputs",
                f"its input is {two[1]:g} or {two[2]:g}; a filter has {_most_values(weight)} values",
            )
        else:
            kind, why = "binary", f"its input is {two[1]:g} or {two[2]:g}, each filter has two values"
            signs = self._above(read.value, self.known[read.value].source, two[0])
            self.adoption.signs[signs.name] = Signs(*two[1:], read.value.name)
            name = self._binary(_SignLayer(*two[1:], node, weight, form, read, product, signs))
        self.adoption.findings[name] = Finding(kind, why, module_path(node))

    def _why_not(self, node: fx.Node) -> str:
        steps = self.known.get(node)
        return f"has {len(steps.values)} values" if isinstance(steps, Steps) else "is real-valued"

    def _padded(self, node: fx.Node, product: Product) -> _Padded:
        """Return what a layer reads, with a pad by a constant in front of it as its own."""
        x: Any = node.args[0]
        if name_of(x) in ("pad", "constant_pad_nd") and product.pads and not any(product.pads):
            pads, *rest = x.args[1:]
            mode, fill = ("constant", *rest)[-2:] if name_of(x) != "pad" else (*rest, "constant", None)[:2]
            count, empty = len(product.pads), [0] * len(product.pads)
            own = tuple((*pads, *empty)[:count])
            if mode == "constant" and not any(pads[count:]) and min(own) >= 0:
                return _Padded(x.args[0], own, float(fill or 0))
        return _Padded(x, product.pads)

    def _binary(self, layer: "_SignLayer") -> str:
        node, like, form = layer.node, layer.node.meta["val"], layer.form
        sums = self._sums(layer, form.signs, like)
        alpha = self._stored(node, layer.product.over(form.alpha * layer.half))
        y = self._put(node, _ATEN.mul.Tensor, (sums, alpha), like)
        if bool(form.centre.any()):
            y = self._put(node, _ATEN.add.Tensor, (y, self._centre(layer)), like)
        constant = self._constant(layer)
        if constant is not None:
            y = self._put(node, _ATEN.add.Tensor, (y, self._stored(node, constant)), like)
        node.replace_all_uses_with(y)
        self.adoption.layers[y.name] = node.name
        return sums.name

    def _sums(self, layer: "_SignLayer", weight: Tensor, like: Any) -> fx.Node:
        """Return the product of the signs with others."""
        operator, geometry = layer.product.signed(layer.sign_of_pad)
        if geometry:
            geometry = (geometry[0], [*layer.read.pads], *geometry[2:])
        return self._put(
            layer.node, operator, (layer.signs, self._stored(layer.node, weight), *geometry), like
        )

    def _centre(self, layer: "_SignLayer") -> fx.Node:
        """Return the centre of each filter times the sum of the inputs that it reads."""
        node, product, like = layer.node, layer.product, layer.node.meta["val"]
        total = like[:, : product.groups] if product.pads else like[..., :1]
        sums = self._sums(layer, torch.ones_like(layer.form.signs[: product.groups]), total)
        self.adoption.findings[sums.name] = Finding("binary", _OF_INPUTS, module_path(node))
        of_inputs = self._put(node, _ATEN.mul.Tensor, (sums, 1.0), total)
        factor, n = layer.form.centre * layer.half, len(product.pads) // 2
        if not n:
            weight = self._stored(node, factor[:, None])
            made = self._put(node, _ATEN.linear.default, (of_inputs, weight), like)
        else:
            weight = self._stored(node, factor.reshape(-1, 1, *[1] * n))
            geometry = [1] * n, [0] * n, [1] * n, product.groups
            convolve = getattr(_ATEN, f"conv{n}d").default
            made = self._put(node, convolve, (of_inputs, weight, None, *geometry), like)
        self.adoption.findings[made.name] = Finding("real", _OF_INPUTS, module_path(node))
        return made

    def _constant(self, layer: "_SignLayer") -> Tensor | None:
        """Return what the layer adds whatever the signs are: for each output, or place if pads differ."""
        bias = self.constants.get(_operand(layer.node, 2))
        given = torch.zeros(len(layer.weight)) if bias is None else bias
        if layer.middle == layer.of_pad:
            given = given + layer.middle * layer.weight.double().flatten(1).sum(1).float()
            return layer.product.over(given) if bool(given.any()) else None
        inputs = torch.full((1, *layer.read.value.meta["val"].shape[1:]), layer.middle)
        inputs = F.pad(inputs, layer.read.pads, value=layer.of_pad)
        return layer.product.take(inputs, layer.weight, (0,)) + layer.product.over(given)

    def _stored(self, node: fx.Node, value: Tensor) -> fx.Node:
        name = f"_adopted_{sum(1 for _ in self.module.buffers())}"
        self.module.register_buffer(name, value.detach().clone())
        with self.graph.inserting_before(node):
            made = self.graph.get_attr(name)
        made.meta["val"] = value
        return made

    def _put(self, node: fx.Node, target: Any, args: Any, like: Any, kwargs: Any = None) -> fx.Node:
        """Add an operator before a node, of whose module and line it is."""
        with self.graph.inserting_before(node):
            made = self.graph.call_function(target, args, kwargs)
        made.meta = {**node.meta, "val": like}
        return made


def _operand(node: fx.Node, number: int) -> Any:
    return node.args[number] if len(node.args) > number else None


def _is_one_number(value: Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def _is_pointwise(node: fx.Node) -> bool:
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return pointwise or name_of(node) in ("_to_copy", "to", "where", "hardtanh", "type_as")


def _is_float(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.meta["val"].dtype == torch.float32


def _like_float(node: fx.Node) -> Any:
    return node.meta["val"].float()


def _most_values(weight: Tensor) -> int:
    """Return how many values the filter of most values has."""
    return max(len(row.unique()) for row in weight.flatten(1))
