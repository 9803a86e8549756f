"""Does the graph do what torch does? Each operation by itself, on the values that torch has there.

Comparing outputs alone would not do: a real-valued convolution is rounded differently in torch, a value next
to zero may then change its sign, and after many layers nobody can tell that from a mistake. So the model and
its trace, both in torch, must give the same outputs; then each operation of the graph takes torch's own
values of the trace and must give torch's next value: signs and sums exactly, real numbers within `TOLERANCE`
of the largest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from bitfactor.common.arrays import relative_difference
from bitfactor.common.errors import InputError
from bitfactor.exporter.adoption import Adoption, Signs
from bitfactor.exporter.follow import module_path
from bitfactor.exporter.lower import Lowered
from bitfactor.format import Graph, Node
from bitfactor.format.low_precision import TOLERANCE, Real, is_real_layer
from bitfactor.format.operations import OPERATIONS
from bitfactor.nn.model import Call

Values = dict[str, NDArray[Any]]

_KINDS = {"float32": np.float32, "int32": np.int32, "bit": np.int8}


class _Recorder(fx.Interpreter):
    """Runs a traced module and keeps what each of its nodes gives, before others change it in place."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.results: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        self.results[n.name] = result.clone() if isinstance(result, Tensor) else result
        return result


def check_trace(model: nn.Module, lowered: Lowered, call: Call) -> None:
    """Compare the model's outputs with those of its trace, where binary layers are signs and scales alone."""
    trace = lowered.trace if lowered.adoption is None else lowered.adoption.original
    with torch.no_grad():
        expected, found = tensors_of(call(model)), tensors_of(call(trace))
    for y, z in zip(expected, found, strict=True):
        difference = relative_difference(z.numpy(), y.numpy())
        if difference > TOLERANCE["float32"]:
            raise InputError(
                type(model).__name__,
                expected=f"a trace that gives the model's outputs within {TOLERANCE['float32']}",
                found=f"{difference:.1e}",
                fix="remove what differs from call to call (random numbers, state), or report this model",
            )


def check_adoption(adoption: Adoption, call: Call) -> None:
    """Compare each layer that was found binary with what it was, on torch's own values there."""
    recorder = _Recorder(adoption.original)
    with torch.no_grad():
        recorder.run(*call.values(), enable_io_processing=False)
        _Forced(adoption, recorder.results).run(*call.values(), enable_io_processing=False)


class _Forced(fx.Interpreter):
    """Runs an adopted trace, node by node, on the values of the original one."""

    def __init__(self, adoption: Adoption, original: Mapping[str, Any]) -> None:
        super().__init__(adoption.module)
        self.extra_traceback = False  # its errors say where they are
        self.adoption, self.original = adoption, original

    def run_node(self, n: fx.Node) -> Any:
        result, adoption = super().run_node(n), self.adoption
        if n.name in adoption.signs:
            self._expect_signs(n, adoption.signs[n.name], self.original.get(n.name, result))
        name = adoption.layers.get(n.name, n.name)
        expected = self.original.get(name, result)
        if n.op == "call_function" and isinstance(expected, Tensor) and expected.is_floating_point():
            difference = relative_difference(result.numpy(), expected.numpy())
            if not difference <= TOLERANCE["float32"]:
                raise _differs(
                    n, f"torch's values within {TOLERANCE['float32']}", f"{difference:.1e}", _REPORT
                )
        return expected

    def _expect_signs(self, n: fx.Node, signs: Signs, found: Tensor) -> None:
        expected = self.original[signs.stands_for]
        off = (torch.where(found > 0, signs.high, signs.low) - expected).abs() > _OFF * abs(
            signs.high - signs.low
        )
        if off.any():
            other = expected[off].flatten()[0].item()
            raise _differs(
                n,
                f"an input of two values, {signs.low:g} and {signs.high:g}",
                f"{other:g} as well, {int(off.sum())} times",
                "torch.sign(0) is 0: take torch.where(x > 0, 1.0, -1.0) instead",
            )


def _differs(n: fx.Node, expected: str, found: str, fix: str) -> InputError:
    return InputError(module_path(n) or n.name, expected=expected, found=found, fix=fix)


_OFF = 1e-3  # of the distance of two values; straight-through gradients leave a rounding error
_REPORT = "please report this model"


def torch_values(lowered: Lowered, call: Call) -> Values:
    """Return what torch gives for the values of the lowered graph, on a batch.

    The signs before a binary layer, and casts, which torch has no node for, come from their definition.
    """
    recorder = _Recorder(lowered.trace)
    with torch.no_grad():
        recorder.run(*call.values(), enable_io_processing=False)
    values: Values = {}
    for name, value in lowered.graph.values.items():
        if name in lowered.origins:
            node_name, view = lowered.origins[name]
            arranged = view.arrange(recorder.results[node_name].detach())
            channels, *pixels = value.shape
            result = np.moveaxis(arranged.numpy().reshape(-1, *pixels, channels), -1, 1)
            values[name] = np.ascontiguousarray(result.astype(_KINDS[value.dtype]))
        else:
            node = next(node for node in lowered.graph.nodes if node.name == name)
            values[name] = _run(node, values)
    return values


def check(graph: Graph, values: Values, stands_for: Mapping[str, str], real: Real = "float32") -> float:
    """Compare each operation of a folded graph with `values`, those of the lowered one.

    `stands_for` maps names of the folded graph to the lowered name with the same value, where they differ;
    `real` is how weights of real-valued layers are stored.

    Returns
    -------
    The largest difference of a real-valued layer, as a fraction of its largest output.

    Raises
    ------
    InputError
        If one differs; the first is named.
    """
    values = values | {name: values[original] for name, original in stands_for.items()}
    worst = 0.0
    for node in graph.nodes:
        found, expected = _run(node, values), values[node.name]
        if np.isnan(expected).any():
            raise InputError(
                f"node {node.name!r} ({node.op})",
                expected="numbers in torch, on the example and on noise",
                found="NaN",
                fix="look for a division by 0, a root or logarithm of less than 0, or a softmax over what is "
                "masked throughout",
            )
        if expected.dtype != np.float32:
            wrong = int((found != expected).sum())
            _expect(node, wrong == 0, "torch's values exactly", f"{wrong} of {expected.size} that differ")
        else:
            layer = is_real_layer(node)
            bound = TOLERANCE[real if layer else "float32"]
            difference = relative_difference(found, expected)
            _expect(node, difference <= bound, f"torch's values within {bound}", f"{difference:.1e}")
            worst = max(worst, difference if layer else 0.0)
    return worst


def tensors_of(result: Any) -> list[Tensor]:
    """Return the outputs of a model, whatever it returns them in."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def _run(node: Node, values: Values) -> NDArray[Any]:
    return OPERATIONS[node.op].reference(node, *(values[name] for name in node.inputs))


def _expect(node: Node, holds: bool, expected: str, found: str) -> None:
    if not holds:
        raise InputError(
            f"node {node.name!r} ({node.op})",
            expected=expected,
            found=found,
            fix="avoid operators that change a part of a value in place, or else please report this model",
        )
