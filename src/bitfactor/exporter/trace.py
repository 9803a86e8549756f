"""What torch.export makes of a model whose binary layers are baked, and how the model is called."""

import itertools
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import TreeSpec, tree_leaves, tree_unflatten

from bitfactor.errors import InputError
from bitfactor.exporter.bake import Refused, bake
from bitfactor.exporter.obstacles import Obstacle, UnsupportedError
from bitfactor.exporter.operators import rule_of
from bitfactor.format import Signature, Value
from bitfactor.format.signature import Structure
from bitfactor.nn.example import Call


@dataclass(frozen=True)
class Trace:
    """A model as `module`, one operator behind the other, traced with a batch of `samples`.

    `inputs` are those of the graph, `given` what each placeholder of the module stands for: the name of an
    input, or a constant. `refused` are the binary layers that the file has no operation for.
    """

    module: fx.GraphModule
    inputs: tuple[Value, ...]
    samples: int
    given: Mapping[fx.Node, Any]
    signature: Signature
    refused: tuple[Obstacle, ...] = ()


def traced(model: nn.Module, call: Call) -> Trace:
    """Trace a model.

    Raises
    ------
    UnsupportedError
        If torch.export does not take it. An error of the model's own code passes through.
    """
    baked = bake(model)
    _expect_tensors(model, call)
    refused = tuple(module.obstacle for module in baked.modules() if isinstance(module, Refused))
    try:
        with torch.no_grad(), _quiet():
            program = _of_known(torch.export.export(baked, call.args, dict(call.kwargs)))
            module = program.module()
    except Exception as error:
        raise UnsupportedError(type(model).__name__, [*refused, _untraceable(model, error)]) from error
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
    )


def _of_known(program: ExportedProgram) -> ExportedProgram:
    """Return the program with torch's own decompositions of operators that the file has no rule for.

    Torch then also writes what changes a part of a value in place as an operator that gives a new one; so
    this is done where a program changes a value that others see. All else stays as it is.
    """
    for _ in range(_ROUNDS):
        unknown = {node.target for node in _computed(program) if rule_of(node.target) is None}
        table = torch.export.default_decompositions() if unknown else {}
        known = {operator: table[operator] for operator in unknown if operator in table}
        if not known and not any(map(_is_composite, unknown)) and not _changes_what_others_see(program.graph):
            break
        with warnings.catch_warnings(action="ignore"):
            program = program.run_decompositions(known)
    return program


def _is_composite(operator: object) -> bool:
    """Whether torch takes an operator apart by itself, such as a view by another name."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(operator, torch._ops.OpOverload) and operator.has_kernel_for_dispatch_key(composite)


_ROUNDS = 4  # one decomposition may need another


def _computed(program: ExportedProgram) -> list[fx.Node]:
    """Return the operators that depend on an input; others are constants of the file."""
    inputs, depends = {*program.graph_signature.user_inputs}, set[fx.Node]()
    for node in program.graph.nodes:
        if node.name in inputs or any(operand in depends for operand in node.all_input_nodes):
            depends.add(node)
    return [node for node in program.graph.nodes if node in depends and node.op == "call_function"]


def _changes_what_others_see(graph: fx.Graph) -> bool:
    """Whether an operator changes a value in place of which more is used than its result."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        changes = schema is not None and schema.is_mutable
        if changes and (not node.users or any(len(value.users) > 1 for value in _viewed(node.args[0]))):
            return True
    return False


def _viewed(node: Any) -> Iterator[fx.Node]:
    """Yield a value and those that it is a view of."""
    while isinstance(node, fx.Node):
        yield node
        schema = getattr(node.target, "_schema", None)
        aliases = schema is not None and any(value.alias_info is not None for value in schema.returns)
        node = node.args[0] if aliases and node.args else None


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
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return Obstacle(
        type(model).__name__,
        own_line(frames),
        "a model that torch.export can trace",
        f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}",
        "remove control flow that depends on values, and see the torch.export documentation",
    )


def _expect_tensors(model: nn.Module, call: Call) -> None:
    try:
        with torch.no_grad():
            outputs = call(model)
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in call.tensors)
        error.add_note(f"in {type(model).__name__}, run on the example of shape {shapes}")
        raise
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


def own_line(frames: Sequence[tuple[str, Any]]) -> str:
    """Return the innermost of places in files that is neither torch's nor of a binary layer, as file:line."""
    own = [(file, n) for file, n in frames if not any(Path(file).is_relative_to(room) for room in _OTHERS)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


_HERE = Path(__file__).parent
_OTHERS = (Path(torch.__file__).parent, _HERE, _HERE.parent / "nn")
