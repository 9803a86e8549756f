"""Does the graph do what torch does? Each operation by itself, on the values that torch has there.

Comparing outputs alone would not do. A real-valued convolution is rounded differently in torch, and a value
next to zero may then change its sign. After many layers nobody can tell that from a mistake. So the model and
its trace, both in torch, must give the same outputs. Then each operation of the graph takes torch's own
values of the trace and must give torch's next value. Signs and sums must be exact, real numbers within
`TOLERANCE` of the largest. What `export` asks of what it is given, before it begins, stands here too.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from bitfactor.common.arrays import relative_difference
from bitfactor.common.errors import InputError
from bitfactor.exporter.adoption import Adoption, Signs
from bitfactor.exporter.builder import floats
from bitfactor.exporter.follow import module_path
from bitfactor.exporter.lower import Lowered, lower
from bitfactor.exporter.view import View
from bitfactor.format import Graph, InputSpec, Node, Skeleton
from bitfactor.format.graph import ARRAYS
from bitfactor.format.low_precision import TOLERANCE, Real, is_real_layer
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.operation import bad
from bitfactor.nn import binary_layers
from bitfactor.nn.model import Call

Values = dict[str, NDArray[Any]]


class _Recorder(fx.Interpreter):
    """Runs a traced module and keeps what each of its nodes gives, before others change it in place."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.results: dict[str, Any] = {}

    def outputs(self, call: Call) -> list[Tensor]:
        """Run the module, and return its outputs, as what is changed in place is at the end."""
        own = call.mapped(torch.clone)
        return tensors_of(self.run(*own.values(), enable_io_processing=False))

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
        recorder.outputs(call)
        own = call.mapped(torch.clone)
        _Forced(adoption, recorder.results).run(*own.values(), enable_io_processing=False)


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
_NAN = (
    "look for a division by 0, a root or logarithm of less than 0, or a softmax over what is masked "
    "throughout"
)
_DIFFERS = "replace this operation by others, or report this model; parts changed in place can be the cause"


def torch_values(lowered: Lowered, call: Call) -> Values:
    """Return what torch gives for the values of the lowered graph, on a batch.

    The signs before a binary layer, and casts, which torch has no node for, come from their definition.

    Raises
    ------
    InputError
        If a value that is an output of the graph is not what the trace gives in the end.
    """
    recorder, graph = _Recorder(lowered.trace), lowered.graph
    with torch.no_grad():
        outputs = recorder.outputs(call)
    values, nodes = values_of(graph, lowered.origins, recorder.results), {n.name: n for n in graph.nodes}
    for name, y in zip(graph.outputs, outputs, strict=True):
        found, expected = (np.nan_to_num(x.ravel(), nan=0.0) for x in (values[name], floats(y)))
        bound = TOLERANCE["float16"]  # to which a model may round what it returns
        same = found.size == expected.size and relative_difference(found, expected) <= bound
        if name in nodes:
            _expect(nodes[name], same, "what torch returns in its place", "another value")
    return values


def values_of(graph: Graph, origins: Mapping[str, tuple[str, View]], known: Mapping[str, Any]) -> Values:
    """Return what is known of the values of a graph, by their origins; else what their definition gives."""
    values: Values = {}
    nodes = {node.name: node for node in graph.nodes}
    for name, value in graph.values.items():
        origin, view = origins.get(name, ("", None))
        if view is not None and origin in known:
            arranged = view.arrange(known[origin].detach()).numpy()
            channels, *pixels = value.shape
            moved = np.moveaxis(arranged.reshape(-1, *pixels, channels), -1, 1)
            values[name] = np.ascontiguousarray(moved.astype(ARRAYS[value.dtype]))
        else:
            values[name] = _run(nodes[name], values)
    return values


def check(graph: Graph, values: Values, stands_for: Mapping[str, str], real: Real = "float32") -> float:
    """Compare each operation of a folded graph with `values`, those of the lowered one.

    `stands_for` maps names of the folded graph to the lowered name with the same value, where they differ.
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
            raise bad(node, "numbers in torch, on the example and on noise", "NaN", _NAN)
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
        raise bad(node, expected, found, _DIFFERS)


def expect_model(model: object) -> None:
    """Raise InputError unless this is a binary network of finite float32 numbers, in evaluation mode."""
    if not isinstance(model, nn.Module):
        raise InputError(
            "model", expected="a torch module", found=type(model).__name__, fix="pass the network itself"
        )
    where = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        fix = "pass the module that it was made of"
        raise InputError("model", expected="a module in Python", found="a ScriptModule", fix=fix)
    training = next((name for name, module in model.named_modules() if module.training), None)
    if training is not None:
        raise InputError(
            f"{where}{f', module {training}' if training else ''}",
            expected="evaluation mode, in which BatchNorm uses its running statistics",
            found="training mode",
            fix="call model.eval() first",
        )
    for name, tensor in model.state_dict().items():
        _expect_numbers(f"{where}, {name}", tensor, "go back to an earlier checkpoint")


def _expect_numbers(where: str, tensor: Tensor, fix: str) -> None:
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        raise InputError(where, expected="float32", found=str(tensor.dtype), fix="call .float() first")
    if not tensor.isfinite().all():
        raise InputError(where, expected="finite values", found="NaN or infinity", fix=fix)


def expect_examples(examples: Sequence[Any]) -> list[Call]:
    """Return the calls of the examples, or raise InputError unless each is batches of finite numbers."""
    if not examples:
        raise InputError("example_input", expected="a batch", found="none", fix="pass what the model takes")
    calls = [Call.of(example) for example in examples]
    for call in calls:
        for value in call.values():
            if isinstance(value, Tensor):
                _expect_batch(value, call)
            elif not isinstance(value, bool | int | float | str | None):
                raise _no_example(type(value).__name__)
        if not call.tensors:
            raise _no_example("no tensor")
    return calls


def _expect_batch(x: Tensor, call: Call) -> None:
    # One value a sample, (N,), may stand beside others; alone it is a sample without its batch.
    if x.ndim < 1 or not len(x) or all(y.ndim < 2 for y in call.tensors):
        raise _no_example(f"shape {tuple(x.shape)}")
    if len(x) != len(call.tensors[0]):
        raise _no_example(f"inputs of {len(call.tensors[0])} and {len(x)} samples")
    _expect_numbers("example_input", x, "look at how the example is made")


def _no_example(found: str) -> InputError:
    return InputError(
        "example_input",
        expected="a tensor of samples, (N, ...); a tuple or a dict of several; or a list of examples",
        found=found,
        fix="pass what the model takes",
    )


def expect_calibration(calibration: Tensor | Sequence[Tensor] | None, call: Call) -> Tensor | None:
    """Return the samples as one batch, or raise InputError unless they fit the example and vary."""
    if calibration is None:
        return None
    example, *others = call.tensors
    if others or not example.is_floating_point():
        raise _bad_samples("none, of a network whose input is not one of real numbers", "samples")
    batches = [calibration] if isinstance(calibration, Tensor) else list(calibration)
    if not batches:
        raise _bad_samples("a tensor of samples, (N, ...), or several", "no batch")
    for batch in batches:
        if batch.shape[1:] != example.shape[1:] or not len(batch):
            expected = f"samples shaped (N, {', '.join(map(str, example.shape[1:]))})"
            raise _bad_samples(expected, f"shape {tuple(batch.shape)}")
        _expect_numbers("calibration", batch, "look at how the samples are made")
    samples = torch.cat([batch.detach().cpu() for batch in batches])
    if samples.min() == samples.max():
        raise _bad_samples("samples that vary", f"{float(samples.min()):g} everywhere")
    return samples


def _bad_samples(expected: str, found: str) -> InputError:
    return InputError(
        "calibration", expected=expected, found=found, fix="pass images as the network will see them"
    )


def expect_binary(lowered: Lowered, model: nn.Module) -> None:
    """Raise InputError unless a binary layer is on the way from the input to an output."""
    adoption = lowered.adoption
    if adoption is not None:
        expect_binary_findings(adoption, model)
    layers = binary_layers(model).values()
    half = any(layer.binary_weights != layer.binary_activations for layer in layers)
    signs = any(node.op.startswith("binary") for node in lowered.graph.nodes)
    if adoption is None and not half and not signs:
        raise InputError(
            type(model).__name__,
            expected="outputs that binary layers take part in",
            found="none that do",
            fix="export the part of the model that has them",
        )


def expect_binary_findings(adoption: Adoption, model: nn.Module) -> None:
    """Raise InputError, which says why each layer is not, unless a layer of others' code is binary."""
    if any(found.kind != "real" for found in adoption.findings.values()):
        return
    whys = [f"{found.module or node}: {found.why}" for node, found in adoption.findings.items()]
    raise InputError(
        type(model).__name__,
        expected="a model with binary layers",
        found="; ".join(["none", *whys[:_SHOWN], *["..."][: len(whys) - _SHOWN]]),
        fix="call bitfactor.binarize_(model) and train it",
    )


_SHOWN = 4  # layers of which the message says why they are real


def expect_description(
    graph: Graph,
    input_spec: InputSpec | None,
    labels: Sequence[str],
    skeleton: Skeleton | None,
    provenance: Mapping[str, str],
) -> None:
    """Raise InputError unless what is stored with the network fits its input and its first output."""
    output = graph.values[graph.outputs[0]].shape[0]
    if isinstance(labels, str) or (labels and len(labels) != output):
        found = repr(labels) if isinstance(labels, str) else str(len(labels))
        raise InputError(
            "labels", expected=f"{output} names, one per class", found=found, fix="pass them all"
        )
    if skeleton is not None and len(skeleton.keypoints) != output:
        raise InputError(
            "skeleton",
            expected=f"{output} keypoints, one per map",
            found=str(len(skeleton.keypoints)),
            fix="pass the skeleton that the network was trained with",
        )
    if input_spec is not None and graph.input.shape != (len(input_spec.mean), *input_spec.size):
        raise InputError(
            "input_spec",
            expected=f"images shaped {graph.input.shape}, as the first example",
            found=str((len(input_spec.mean), *input_spec.size)),
            fix="pass an example of the size that images are prepared to",
        )
    if not all(isinstance(text, str) for pair in provenance.items() for text in pair):
        raise InputError("provenance", expected="texts", found=repr(dict(provenance))[:80], fix="use str()")


def expect_any_batch(model: nn.Module, call: Call, lowered: Lowered) -> None:
    """Raise InputError unless a model does the same for another number of samples than the call's."""
    other = lower(model, call.mapped(lambda x: x[:1] if len(x) > 1 else x.repeat_interleave(2, 0)))
    expect_same_operations(lowered.graph, other.graph, "number of samples")


def expect_same_operations(graph: Graph, other: Graph, cause: str) -> None:
    """Raise InputError unless two graphs do the same; `cause` says in what their inputs differ."""
    pairs = zip_longest(graph.nodes, other.nodes)
    first = next((a or b for a, b in pairs if a is None or b is None or not _same(a, b)), None)
    if first is not None or graph.outputs != other.outputs:
        raise InputError(
            f"node {first.name!r} ({first.op})" if first is not None else "the outputs",
            expected=f"the same operations for each {cause}",
            found="others",
            fix="replace what is computed from shapes by a layer that is not, or export one size a file",
        )


def _same(a: Node, b: Node) -> bool:
    if (a.name, a.op, a.inputs, a.attributes) != (b.name, b.op, b.inputs, b.attributes):
        return False
    return all(np.array_equal(a.tensors[role], b.tensors[role]) for role in a.tensors)
