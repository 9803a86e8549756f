"""How a torch tensor lies in a value of the graph: reshapes and transpositions move nothing until they must.

A value of the graph is (C, ...), in memory (..., C): its channels side by side, pixel by pixel. A view says
of each dimension of a torch tensor which axes of that memory it consists of, outermost first. So a transposed
tensor is the same value seen in another way. A sequence (N, L, F) can be the map (F, L) to a linear layer,
which takes each pixel.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of memory, or of a tensor that repeats what is there; each is itself, whatever its length."""

    length: int
    batch: bool = False


Axes = tuple[Axis, ...]


def size(axes: Iterable[Axis]) -> int:
    """Return the product of the lengths."""
    return math.prod(axis.length for axis in axes)


@dataclass(frozen=True)
class View:
    """The value `name`, whose sample is `memory`, as a tensor of `dims`.

    An axis of a dimension that is neither the batch nor in memory repeats what is there.
    """

    name: str
    memory: Axes
    dims: tuple[Axes, ...]

    @classmethod
    def of(cls, name: str, shape: Shape, batch: Axis) -> "View":
        """Return the view (N, *shape) of a value of the graph that has this shape."""
        axes = [Axis(length) for length in shape]
        dims = [(axis,) if axis.length > 1 else () for axis in axes]
        memory = tuple(axis for axis in (*axes[1:], *axes[:1]) if axis.length > 1)
        return cls(name, memory, ((batch,), *dims))

    @property
    def shape(self) -> Shape:
        """The shape in torch, with the batch."""
        return tuple(map(size, self.dims))

    def named(self, name: str) -> "View":
        """Return the same view of another value."""
        return replace(self, name=name)

    def apart(self) -> "View":
        """Return the same view with axes of its own, for what takes a value twice in different ways."""
        return self.with_axes({axis: Axis(axis.length) for axis in _flat(self) if not axis.batch})

    def with_axes(self, instead: Mapping[Axis, Axis]) -> "View":
        """Return the view with other axes of the same lengths in place of some."""

        def changed(axes: Axes) -> Axes:
            return tuple(instead.get(axis, axis) for axis in axes)

        return View(self.name, changed(self.memory), tuple(map(changed, self.dims)))

    def dim(self, number: int) -> Axes:
        return self.dims[number % len(self.dims)]

    def is_repeated(self, axis: Axis) -> bool:
        return not axis.batch and axis not in self.memory

    def with_dim(self, number: int, *dims: Axes) -> "View":
        """Return the view with other dimensions, or none, in place of one."""
        number %= len(self.dims)
        return replace(self, dims=(*self.dims[:number], *dims, *self.dims[number + 1 :]))

    def split(self, axis: Axis, outer: int) -> "View":
        """Return the view with an axis as two, the outer of the given length."""
        parts = (Axis(outer), Axis(axis.length // outer))

        def cut(axes: Axes) -> Axes:
            return tuple(part for each in axes for part in (parts if each is axis else (each,)))

        return View(self.name, cut(self.memory), tuple(map(cut, self.dims)))

    def reshaped(self, shape: Sequence[int]) -> "View | None":
        """Return the view in another shape of as many elements; None where an axis cannot be cut for it."""
        view, dims, at = self, list[Axes](), 0
        for length in shape:
            dim: list[Axis] = []
            while size(dim) < length or _batch_is_next(view, at, dim):
                axis = _flat(view)[at]
                left = length // size(dim)
                if axis.length > left:
                    if axis.batch or axis.length % left or length % size(dim):
                        return None
                    view = view.split(axis, left)
                    axis = _flat(view)[at]
                dim.append(axis)
                at += 1
            if size(dim) != length:
                return None
            dims.append(tuple(dim))
        return replace(view, dims=tuple(dims))

    def arrange(self, tensor: Tensor) -> Tensor:
        """Return a tensor that broadcasts to the shape as it lies in memory: (N, *memory).

        N is 1 where no dimension has the batch.
        """
        flat = _flat(self)
        whole = tensor.expand(self.shape).reshape([axis.length for axis in flat])
        for i, axis in enumerate(flat):
            if self.is_repeated(axis):
                whole = whole.narrow(i, 0, 1)
        batch = [i for i, axis in enumerate(flat) if axis.batch]
        places = [flat.index(axis) for axis in self.memory]
        repeated = [i for i, axis in enumerate(flat) if self.is_repeated(axis)]
        ordered = whole.permute(*batch, *places, *repeated)
        return ordered.reshape(ordered.shape[0] if batch else 1, *(axis.length for axis in self.memory))


def _flat(view: View) -> list[Axis]:
    return [axis for dim in view.dims for axis in dim]


def _batch_is_next(view: View, at: int, dim: Sequence[Axis]) -> bool:
    """Whether a batch of one sample begins the dimension: nothing else says where it belongs."""
    flat = _flat(view)
    return not dim and at < len(flat) and flat[at].batch and flat[at].length == 1


def grouped(axes: Axes, lengths: Sequence[int]) -> Iterator[Axes]:
    """Yield the axes in groups of the given sizes."""
    left = list(axes)
    for length in lengths:
        group: list[Axis] = []
        while size(group) < length:
            group.append(left.pop(0))
        yield tuple(group)


def common(x: View, y: View) -> tuple[View, View, dict[Axis, Axis]] | None:
    """Cut the axes of two views of as many dimensions until they match.

    Returns
    -------
    Both, and axis of y -> axis of x, where a dimension has both; or None where they cannot be cut alike.
    """
    pairs: dict[Axis, Axis] = {}
    for number in range(len(x.dims)):
        i = j = 0
        while x.dims[number] and y.dims[number] and i < len(x.dims[number]):
            a, b = x.dims[number][i], y.dims[number][j]
            if a.length > b.length and a.length % b.length == 0 and not a.batch:
                x = x.split(a, b.length)
            elif b.length > a.length and b.length % a.length == 0 and not b.batch:
                y = y.split(b, a.length)
            elif a.length != b.length or a.batch != b.batch:
                return None
            else:
                pairs[b] = a
                i, j = i + 1, j + 1
    return x, y, pairs


def one_sample(arranged: Tensor) -> Tensor | None:
    """(N, ...) -> (...), where all samples are alike."""
    first = arranged[0]
    return first if bool(torch.equal(arranged, first.expand_as(arranged))) else None
