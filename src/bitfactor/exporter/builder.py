"""A Graph in the making."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.common.errors import InputError
from bitfactor.exporter.view import Axes, Axis, View, common, grouped, one_sample, size
from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import infer
from bitfactor.format.operations.operation import Shape

_SUFFIX = {"threshold": "sign", "scale": "alpha"}
_SUFFIX |= {op: op for op in ("add", "multiply", "concat", "flatten", "rearrange", "slice")}


class Unknown:
    """Stands for what the graph has no value for."""


class Builder:
    """Collects nodes while the operators of the model are visited in order.

    `module` is the path of the module being visited, and `where` that and the line of the user's code.
    `result` is the shape that torch gives there, with the batch, and `given` what torch has for the operands.
    `modules` names the module in which each node stands. What an operator takes and gives are views of
    values, see `bitfactor.exporter.view`.
    """

    def __init__(self, inputs: Sequence[Value], batch: int) -> None:
        self.inputs, self.batch = inputs, Axis(batch, batch=True)
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {value.name: value for value in inputs}
        self.modules: dict[str, str] = {}
        self.module, self.where = "", ""
        self.result: Shape = ()
        self.given: Sequence[Any] = ()

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: dict[str, Any] | None = None,
        **tensors: NDArray[Any],
    ) -> str:
        """Append a node and return the name of its value."""
        node = Node(self._name(op), op, tuple(inputs), attributes or {}, tensors)
        try:
            self.values[node.name] = infer(node, self.values)
        except InputError as error:
            raise self.refused(error.expected, error.found, "express that part in another way") from error
        self.nodes.append(node)
        self.modules[node.name] = self.module
        return node.name

    def stand_in(self, val: object) -> Any:
        """Return a value for what torch gives where it cannot be lowered, as another input of the graph."""
        if isinstance(val, tuple | list):
            return [self.stand_in(part) for part in val]
        if not isinstance(val, Tensor) or not val.is_floating_point():
            return Unknown()
        batch, *shape = val.shape if val.dim() > 1 else (0,)
        if batch != self.batch.length or min(shape) < 1:
            return Unknown()
        value = Value(self._name("missing"), tuple(shape), "float32")
        self.values[value.name] = value
        return self.view(value.name)

    def graph(self, outputs: Sequence[str]) -> Graph:
        """Return the nodes so far as a Graph."""
        first, *others = self.inputs
        return Graph(first, tuple(self.nodes), tuple(outputs), tuple(others))

    def shape(self, name: str) -> Shape:
        """Return the shape that a value has in the graph."""
        return self.values[name].shape

    def view(self, name: str) -> View:
        """Return a value as the tensor (N, *its shape in the graph)."""
        return View.of(name, self.shape(name), self.batch)

    def alike(self, op: str, x: View, attributes: dict[str, Any] | None = None, **tensors: Any) -> View:
        """Append an operation on each number by itself, or on each pixel, that changes no shape."""
        return x.named(self.emit(op, [self.real(x).name], attributes, **tensors))

    def real(self, x: View) -> View:
        """Return the value as real numbers: the sums of a binary layer are cast (times an alpha of one)."""
        if self.values[x.name].dtype == "float32":
            return x
        return x.named(self.emit("scale", [x.name], alpha=np.ones(self.shape(x.name)[0], np.float32)))

    def arranged(self, x: View, *groups: Iterable[Axis]) -> str:
        """Return the value, of real numbers, in another order of memory: a node is added if it must move.

        Its shape is that of the last group, the channels, and then of the others. All of what `x` has in
        memory is in one of them; what is not is repeated.
        """
        wanted = tuple(tuple(group) for group in groups)
        order = tuple(axis for group in wanted for axis in group)
        shape = (size(wanted[-1]), *map(size, wanted[:-1]))
        if order == x.memory and shape == self.shape(x.name):
            return x.name
        if any(axis.batch for axis in order) or not set(x.memory) <= set(order):
            fix = "leave it out; a squeeze() without a dimension drops a batch of one: take flatten(1)"
            raise self.refused("operations on each sample by itself", "one over the batch", fix)
        x = self.real(x)
        if len(wanted) == 1 and order == self._row_major(x):
            return self.emit("flatten", [x.name])
        repeated = [axis for axis in order if axis not in x.memory]
        place = {axis: i for i, axis in enumerate((*x.memory, *repeated))}
        attributes = {
            "split": tuple(length for group in self.groups_of(x) for length in _left_open(group)),
            "parts": tuple(len(group) for group in self.groups_of(x)),
            "repeats": tuple(axis.length for axis in repeated),
            "groups": tuple(tuple(place[axis] for axis in group) for group in wanted),
        }
        return self.emit("rearrange", [x.name], attributes)

    def pixels(self, x: View, channels: Axes) -> tuple[str, View]:
        """Put `channels` side by side, and all else into pixels.

        Returns
        -------
        The value (channels, ...), and the view of x whose value it is.
        """
        left = tuple(axis for axis in x.memory if axis not in channels)
        order = (*left, *channels)
        if order == x.memory and self.shape(x.name)[0] == size(channels):
            return x.name, x
        name = self.arranged(x, left, channels) if left else self.arranged(x, channels)
        return name, View(name, order, x.dims)

    def layered(self, x: View, dim: int, name: str) -> View:
        """Return `x` with the channels of the value `name` in place of a dimension, pixels as they are."""
        channels = (Axis(self.shape(name)[0]),) if self.shape(name)[0] > 1 else ()
        memory = (*(axis for axis in x.memory if axis not in x.dim(dim)), *channels)
        return View(name, memory, x.with_dim(dim, channels).dims)

    def maps(self, x: View, sides: int) -> str:
        """Return x (N, C, *sides) as maps (C, H, W), a single side being the width.

        With more in the first dimension than the batch, they are (C, M, H, W): M maps, each by itself.
        """
        if len(x.dims) != sides + 2:
            raise self.refused(f"a batch of maps, {sides + 2} dimensions", str(x.shape), "use unsqueeze")
        outer = tuple(axis for axis in x.dims[0] if axis is not self.batch)
        spread = (*((),) * (2 - sides), *x.dims[2:])
        return self.arranged(x, *((outer,) if outer else ()), *spread, x.dims[1])

    def of_maps(self, x: View, name: str, sides: int) -> View:
        """Return the result of an operation on what `maps` gave for x as torch has it."""
        channels, *pixels = self.shape(name)
        axes = [Axis(length) for length in (*pixels[-sides:], channels)]
        outer = tuple(axis for axis in x.dims[0] if axis is not self.batch)
        memory = (*outer, *(axis for axis in axes if axis.length > 1))
        dims = [(axis,) if axis.length > 1 else () for axis in (axes[-1], *axes[:-1])]
        return View(name, memory, (x.dims[0], *dims))

    def on_maps(
        self, op: str, x: View, sides: int, attributes: dict[str, Any] | None = None, **tensors: Any
    ) -> View:
        """Append an operation on what `maps` gives for x, as real numbers, and return its result."""
        name = self.emit(op, [self.maps(self.real(x), sides)], attributes, **tensors)
        return self.of_maps(x, name, sides)

    def isolated(self, x: View, dim: int) -> tuple[str, int, View]:
        """Return the value with a dimension as an axis of its shape, which axis, and the view of it."""
        own, groups = x.dim(dim), self.groups_of(x)
        if own and own in groups:
            return x.name, (groups.index(own) + 1) % len(groups), x
        rest = [axis for axis in x.memory if axis not in own]
        place = min((x.memory.index(axis) for axis in own if axis in x.memory), default=0)
        before = tuple(axis for axis in rest if x.memory.index(axis) < place)
        after = tuple(axis for axis in rest if x.memory.index(axis) >= place)
        channels = groups[-1]
        if not set(channels) <= set(after) or not channels:
            channels = after
        middle = after[: len(after) - len(channels)]
        apart = [*([before] if before else []), own, *([middle] if middle else [])]
        apart = [*apart, channels] if after else apart
        name = self.arranged(x, *apart)
        axis = apart.index(own) + 1 if after else 0
        return name, axis, View(name, (*before, *own, *after), x.dims)

    def resized(self, x: View, dim: int, name: str, axis: int) -> View:
        """Return an isolated view whose dimension has the length that it has in the value `name`."""
        new = (Axis(self.shape(name)[axis]),) if self.shape(name)[axis] > 1 else ()
        own = x.dim(dim)
        place = x.memory.index(own[0]) if own else 0
        memory = (*x.memory[:place], *new, *x.memory[place + len(own) :])
        return View(name, memory, x.with_dim(dim, new).dims)

    def reshaped(self, x: View, shape: Sequence[int]) -> View:
        """Return x in another shape of as many elements."""
        view = x.reshaped(shape)
        if view is not None:
            return view
        whole = [axis for dim in x.dims for axis in dim if not axis.batch]
        one = Axis(size(whole))
        name = self.arranged(x, whole)
        view = View(name, (one,), ((self.batch, one),)).reshaped(shape)
        if view is None:
            raise self.refused(
                "operations that keep the samples of a batch apart",
                f"{x.shape} reshaped to {tuple(shape)}",
                "use flatten(1), or reshape to (N, ...)",
            )
        return view

    def as_torch(self, x: View) -> str:
        """Return the value as real numbers in the shape that it has in torch, (N, ...); of (N,) as (N, 1)."""
        if not x.dims or x.dims[0] != (self.batch,):
            raise self.refused(
                "the batch as the first dimension",
                f"a result shaped {x.shape} for {self.batch.length} samples",
                "use flatten(1), or reshape to (N, ...)",
            )
        channels, *pixels = x.dims[1:] or ((),)
        return self.arranged(self.real(x), *pixels, channels)

    def together(self, x: View, y: View) -> tuple[View, View]:
        """Return two views as one shape, broadcast against each other, whose values lie alike in memory."""
        count = max(len(x.dims), len(y.dims))
        x, y = (replace(v, dims=((),) * (count - len(v.dims)) + v.dims) for v in (x, y.apart()))
        matched = common(x, y)
        if matched is None:
            raise self.refused("shapes that broadcast", f"{x.shape} and {y.shape}", "reshape one of them")
        x, y, pairs = matched
        y = y.with_axes(pairs)
        dims = tuple(a or b for a, b in zip(x.dims, y.dims, strict=True))
        if len(y.memory) > len(x.memory):
            order = (*(axis for axis in x.memory if axis not in y.memory), *y.memory)
        else:
            order = (*(axis for axis in y.memory if axis not in x.memory), *x.memory)
        x, y = self.real(x), self.real(y)
        first = next((v for v in (x, y) if v.memory == order), None)
        groups = self.groups_of(first) if first else (order,) if len(order) < 2 else (order[:-1], order[-1:])
        as_first, as_second = (self._spread(v, order, groups) for v in (x, y))
        return View(as_first, order, dims), View(as_second, order, dims)

    def constant(self, x: View, tensor: Tensor) -> tuple[View, NDArray[np.float32]]:
        """Return x and a constant that broadcasts against it as they lie in memory: (C, ...), or (C,).

        (C,) where the constant is the same for all pixels.
        """
        tensor = tensor.float()
        shape = np.broadcast_shapes(x.shape, tuple(tensor.shape))
        if shape != x.shape:
            x = self.expanded(x, shape)
            new = [axis for dim in x.dims for axis in dim if x.is_repeated(axis)]
            channels = self.groups_of(x)[-1]
            order = (*new, *x.memory)
            left = order[: len(order) - len(channels)]
            name = self.arranged(x, left, channels) if left else self.arranged(x, channels)
            x = View(name, order, x.dims)
        arranged = x.arrange(tensor)
        sample = one_sample(arranged)
        if sample is None:
            raise self.refused("constants that are the same for all samples", "others", "use buffers")
        channels_first = torch.movedim(self._shaped(x, sample), -1, 0)
        first = channels_first.reshape(len(channels_first), -1)[:, :1]
        if bool((channels_first.reshape(len(channels_first), -1) == first).all()):
            channels_first = first[:, 0]
        return x, floats(channels_first)

    def stored(self, tensor: Tensor, kept: int | None = None) -> View:
        """Return a constant as a value of the graph.

        Dimensions along which it does not change, the batch too, have a length of 1 and broadcast. The last
        two keep their lengths, or only that of `kept`.
        """
        free = range(tensor.ndim - 2) if kept is None else set(range(tensor.ndim)) - {kept}
        for dim in free:
            first = tensor.narrow(dim, 0, 1)
            tensor = first if bool((tensor == first).all()) else tensor
        axes = [Axis(length) for length in tensor.shape if length > 1]
        left = iter(axes)
        dims = tuple((next(left),) if length > 1 else () for length in tensor.shape)
        flat = tensor.reshape(-1, axes[-1].length if axes else 1).T
        value = flat if len(axes) > 1 else flat[:, 0]
        return View(self.emit("constant", [], value=floats(value)), tuple(axes), dims)

    def expanded(self, x: View, shape: Sequence[int]) -> View:
        """Return x with dimensions of length 1, and new ones in front, repeated."""
        dims = [*((),) * (len(shape) - len(x.dims)), *x.dims]
        for i, length in enumerate(shape):
            if size(dims[i]) != length and length != -1:
                dims[i] = (Axis(length),)
        return replace(x, dims=tuple(dims))

    def expanded_to(self, x: View | Tensor, shape: Sequence[int]) -> View | Tensor:
        """Return a value or a constant in a shape that it broadcasts to."""
        return x.expand(tuple(shape)) if isinstance(x, Tensor) else self.expanded(x, shape)

    def sign(self, name: str) -> str:
        """Return the signs of a value."""
        channels = self.shape(name)[0]
        return self.emit(
            "threshold",
            [name],
            threshold=np.zeros(channels, np.float32),
            direction=np.ones(channels, np.int8),
        )

    def refused(self, expected: str, found: str, fix: str) -> InputError:
        """Return the error that says what of the model the file cannot hold, and where it stands."""
        return InputError(self.where or "the model", expected=expected, found=found, fix=fix)

    def groups_of(self, x: View) -> tuple[Axes, ...]:
        """Return the axes of memory as the value's shape has them, channels last."""
        channels, *pixels = self.shape(x.name)
        return tuple(grouped(x.memory, [*pixels, channels]))

    def _row_major(self, x: View) -> Axes:
        *pixels, channels = self.groups_of(x)
        return (*channels, *(axis for group in pixels for axis in group))

    def _shaped(self, x: View, sample: Tensor) -> Tensor:
        channels, *pixels = self.shape(x.name)
        return sample.reshape(*pixels, channels)

    def _spread(self, x: View, order: Axes, groups: Sequence[Axes]) -> str:
        """Return the value in that order; one number per channel, or map, is spread by the operation."""
        if x.memory == groups[-1] and len(groups) > 1:
            return self.arranged(x, *((),) * (len(groups) - 1), groups[-1])
        return self.arranged(x, *groups)

    def _name(self, op: str) -> str:
        base = ".".join(part for part in (self.module, _SUFFIX.get(op, "")) if part) or op
        name, count = base, 1
        while name in self.values:
            count += 1
            name = f"{base}.{count}"
        return name


def _left_open(axes: Axes) -> tuple[int, ...]:
    """Return the lengths; the first is what is left, so that a file is not bound to it."""
    return (-1, *(axis.length for axis in axes[1:])) if axes else ()


def floats(tensor: Tensor) -> NDArray[np.float32]:
    """Return a constant of the model as float32."""
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())
