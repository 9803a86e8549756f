"""What a model file holds: a graph, how its inputs are prepared, what its outputs mean, golden values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import check_fields, expect, expect_text, expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec, Skeleton
from bitfactor.format.graph import Graph, total
from bitfactor.format.operations.operation import Shape
from bitfactor.format.signature import FreeSizes, Signature, plain


@dataclass(frozen=True)
class ModelFile:
    """All that a model file holds.

    `golden_outputs`, one (1, ...) per graph output, were computed at export from `golden_input`. A classifier
    has `labels`, a pose network a `skeleton`. `other_shapes` are shapes of the input, beside the graph's own,
    that the network also takes; `report` is what export said of its layers and checks. `signature` says how
    the network is called, where it is not with float32 and does not return one output or a tuple of them.
    `golden_integers` are the golden inputs of integers, by the number of the input: no rule can make them.
    `free` says which sizes of the inputs may be others. `ranges` are the largest magnitudes of its values on
    calibration samples, for precision `integer`. `integer_outputs` are its golden outputs.

    Raises
    ------
    InputError
        If one of them is not that.
    """

    graph: Graph
    golden_outputs: tuple[NDArray[np.float32], ...]
    input_spec: InputSpec | None = None
    labels: tuple[str, ...] = ()
    skeleton: Skeleton | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    other_shapes: tuple[Shape, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    signature: Signature | None = None
    golden_integers: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    free: FreeSizes | None = None
    ranges: Mapping[str, float] = field(default_factory=dict)
    integer_outputs: tuple[NDArray[np.float32], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "model file: ")
        for name, r in self.ranges.items():
            where = f"model file: range of {name!r}"
            expect(where, r, float)
            expect_that(isfinite(r) and r >= 0, where, expected="a magnitude", found=r)
        for word in self.labels if self.skeleton is None else self.skeleton.keypoints:
            expect_text("model file: label", word)
        spec, own = self.input_spec, self.graph.input.shape
        if spec is not None and len(own) == 3 and (len(spec.mean), *spec.size) != own:
            raise InputError(
                "model file: input specification",
                expected=f"one of the graph's input, (channels, height, width) = {own}",
                found=f"{(len(spec.mean), *spec.size)}",
                fix="give the sizes that the network was exported for",
            )
        scores = self.graph.values[self.graph.outputs[0]].shape
        if self.labels and self.skeleton is None and len(scores) == 1 and len(self.labels) != scores[0]:
            raise InputError(
                "model file: labels",
                expected=f"{scores[0]} names, one for each class",
                found=f"{len(self.labels)}",
                fix="give all of them, or none",
            )
        for name, text in self.provenance.items():
            expect(f"model file: provenance {name!r}", text, str)
        if self.signature is not None:
            self.signature.expect_of(self.graph)
        if self.free is not None:
            self.free.expect_of(self.graph)

    def graph_for(self, *shapes: Shape) -> Graph:
        """Return the graph for inputs of other shapes.

        Raises
        ------
        InputError
            If its operations cannot run on them.
        """
        return (self.free or FreeSizes(())).graph_for(self.graph, shapes)

    @cached_property
    def image_spec(self) -> InputSpec | None:
        """How an image becomes the input; all of it, without a margin, where keypoints are found in it."""
        return self.input_spec.whole if self.input_spec and self.skeleton else self.input_spec

    @cached_property
    def called(self) -> Signature:
        """How the network is called."""
        return self.signature or plain(len(self.graph.inputs), len(self.graph.outputs))

    def expect_one_input(self, where: object) -> None:
        """Raise InputError unless the network has one input, of real numbers."""
        names = [value.name for value in self.graph.inputs]
        if self.called.types != ("float32",):
            found = ", ".join(f"{name} ({kind})" for name, kind in zip(names, self.called.types, strict=True))
            raise InputError(
                where,
                expected="a network with one input, of real numbers",
                found=found,
                fix="call it with a Session, which takes any inputs",
            )

    @property
    def golden_input(self) -> NDArray[np.float32]:
        """The first of `golden_inputs`."""
        return self.golden_inputs[0]

    @property
    def golden_inputs(self) -> tuple[NDArray[np.float32], ...]:
        """The inputs that `golden_outputs` belong to, each (1, *shape of the input)."""
        return golden_inputs(self.graph, self.golden_integers)

    def tensor_bytes(self) -> dict[str, int]:
        """Return the bytes of the weights: {"binary": packed signs, "real": everything else}."""
        spent = total(self.graph)
        return {"binary": spent.binary_bytes, "real": spent.real_bytes}


def golden_inputs(
    graph: Graph, integers: Mapping[int, NDArray[np.float32]]
) -> tuple[NDArray[np.float32], ...]:
    """Return the golden inputs of a graph; those of integers are given."""
    return tuple(integers.get(i, golden_input(value.shape)) for i, value in enumerate(graph.inputs))


def golden_input(shape: Shape) -> NDArray[np.float32]:
    """Return numbers from -2 to 2 that look random and are the same everywhere, (1, *shape).

    The number at index i is a hash of i: multiplications modulo 2^64 with a shift between, the upper 24 bits.
    """
    odd = np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    mixed = odd * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(40)
    return (mixed.astype(np.float32) / np.float32(1 << 22) - np.float32(2)).reshape(1, *shape)
