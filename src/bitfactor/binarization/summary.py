"""What a model costs: multiply-accumulates by bit width, and bytes in float, in training, exported."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bitfactor.binarization.ends import Shapes, leaves, record_calls, zeros
from bitfactor.binarization.layers import weight_shape
from bitfactor.binarization.plan import packed_bytes
from bitfactor.common.checks import checked
from bitfactor.common.result import text_table
from bitfactor.nn import BinaryConvTranspose, BinaryLayer, LearnedMapScale, NoScale
from bitfactor.nn.model import Call, Example

FLOAT_BYTES = 4
_OF_ONE_WEIGHT = (BinaryLayer, nn.modules.conv._ConvNd, nn.Linear)


@dataclass(frozen=True)
class SummaryRow:
    """One module. Counts are for the given input. Bytes are for the module as a float network, as it is
    trained, and as it is exported. A bank counts in the layer that owns it.
    """

    name: str
    kind: str
    weight_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    binary_macs: int
    real_macs: int
    float_bytes: int
    trained_bytes: int
    exported_bytes: int


@dataclass(frozen=True)
class Summary:
    """The rows and their totals. `print` shows a table."""

    rows: tuple[SummaryRow, ...]

    def _total(self, count: Callable[[SummaryRow], int]) -> int:
        return sum(count(row) for row in self.rows)

    @property
    def binary_macs(self) -> int:
        return self._total(lambda row: row.binary_macs)

    @property
    def real_macs(self) -> int:
        return self._total(lambda row: row.real_macs)

    @property
    def binary_fraction(self) -> float:
        """Share of the multiply-accumulates that are of one bit by one bit."""
        return self.binary_macs / max(self.binary_macs + self.real_macs, 1)

    @property
    def float_bytes(self) -> int:
        return self._total(lambda row: row.float_bytes)

    @property
    def trained_bytes(self) -> int:
        return self._total(lambda row: row.trained_bytes)

    @property
    def exported_bytes(self) -> int:
        return self._total(lambda row: row.exported_bytes)

    @property
    def compression(self) -> float:
        """How many times smaller the exported network is than the float one."""
        return self.float_bytes / max(self.exported_bytes, 1)

    def to_dict(self) -> dict[str, Any]:
        totals = ["binary_macs", "real_macs", "binary_fraction"]
        totals += ["float_bytes", "trained_bytes", "exported_bytes", "compression"]
        return asdict(self) | {name: getattr(self, name) for name in totals}

    def __str__(self) -> str:
        head = ["layer", "kind", "weight", "output", "1-bit MACs", "32-bit MACs"]
        head += ["float bytes", "trained bytes", "exported bytes"]
        rows = [_cells(row) for row in self.rows]
        rows.append(["total", "", "", "", *_counts(self)])
        table = text_table(head, rows, right=range(4, 9))
        return (
            f"{table}\n\nbinary MACs {self.binary_fraction:.1%}, "
            f"exported {self.compression:.1f} times smaller than in float"
        )


def _cells(row: SummaryRow) -> list[str]:
    shapes = ("x".join(map(str, shape)) for shape in (row.weight_shape, row.output_shape))
    return [row.name, row.kind, *shapes, *_counts(row)]


def _counts(row: SummaryRow | Summary) -> list[str]:
    counts = (row.binary_macs, row.real_macs, row.float_bytes, row.trained_bytes, row.exported_bytes)
    return [f"{count:,}" for count in counts]


@checked
def summary(model: nn.Module, input_shape: Sequence[int] | Example) -> Summary:
    """Count what a forward pass of this input costs, module by module; those that hold nothing are left out.

    In place of a shape, an example may be given: a batch, a tuple of several inputs, or a dict by name.

    Exported bytes: a binary weight takes one bit, its channels padded to 64-bit words. Scales, biases and
    real weights take 4 bytes a number, a BatchNorm two numbers per channel. Where a layer's inputs are still
    real, its weight takes one bit without a gap, and its multiply-accumulates are real. Others' own layers
    count as torch runs them, in float; `bitfactor.check` tells what a file holds of them.

    Example
    -------
    >>> summary(resnet18(num_classes=10), (1, 3, 32, 32)).compression
    1.0
    """
    shape = isinstance(input_shape, Sequence) and all(isinstance(n, int) for n in input_shape)
    call = zeros(model, input_shape) if shape else Call.of(input_shape)  # type: ignore[arg-type]
    with _products(model) as products:
        calls = record_calls(model, call)
    seen: set[int] = set()
    rows = (_row(name, module, calls[name], products.macs[name], seen) for name, module in leaves(model))
    return Summary(tuple(row for row in rows if row.float_bytes or row.real_macs or row.binary_macs))


def _row(name: str, module: nn.Module, calls: list[Shapes], products: int, seen: set[int]) -> SummaryRow:
    shape = weight_shape(module) if isinstance(module, _OF_ONE_WEIGHT) else ()
    macs = sum(_macs(module, shape, call) for call in calls) if shape else products
    binary = isinstance(module, BinaryLayer) and module.binary_activations and module.binary_weights
    return SummaryRow(
        name=name,
        kind=_kind(module),
        weight_shape=shape,
        output_shape=calls[-1].output if calls else (),
        binary_macs=macs if binary else 0,
        real_macs=0 if binary else macs,
        float_bytes=_float_bytes(module),
        trained_bytes=_bytes(_own(module), seen),
        exported_bytes=_exported_bytes(module),
    )


def _kind(module: nn.Module) -> str:
    name = type(module).__name__.lower()
    if not isinstance(module, BinaryLayer):
        return name
    halves = {(True, True): "binary", (True, False): "binary weights", (False, True): "binary inputs"}
    half = halves.get((module.binary_weights, module.binary_activations), "real")
    return f"{half} {name.removeprefix('binary')}"


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the multiply-accumulates of what torch runs, for the innermost module that is running."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs, self.running = Counter[str](), list[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        operations = flop_registry.get(function.overloadpacket)
        if operations and self.running:
            self.macs[self.running[-1]] += operations(*args, **(kwargs or {}), out_val=result) // 2
        return result


@contextmanager
def _products(model: nn.Module) -> Iterator[_Products]:
    """Count, while the model runs, what its modules compute."""
    products = _Products()
    with ExitStack() as hooks, products:
        for name, module in leaves(model):

            def begin(*_: object, name: str = name) -> None:
                products.running.append(name)

            def end(*_: object) -> None:
                products.running.pop()

            hooks.enter_context(module.register_forward_pre_hook(begin))
            hooks.enter_context(module.register_forward_hook(end, always_call=True))
        yield products


def _macs(module: nn.Module, weight: tuple[int, ...], call: Shapes) -> int:
    if not weight:
        return 0
    # A transposed convolution spreads every input value over its kernel.
    spreads = isinstance(module, nn.modules.conv._ConvTransposeNd | BinaryConvTranspose)
    values = call.input if spreads else call.output
    return prod(values) * prod(weight[1:])


def _bytes(parameters: Iterable[Tensor], seen: set[int]) -> int:
    """Return the bytes of the parameters that were not counted before."""
    new = {id(parameter): parameter for parameter in parameters if id(parameter) not in seen}
    seen.update(new)
    return sum(parameter.numel() * parameter.element_size() for parameter in new.values())


def _own(module: nn.Module) -> Iterator[nn.Parameter]:
    """Return the parameters that no other row is of."""
    return module.parameters(recurse=isinstance(module, BinaryLayer))


def _float_bytes(module: nn.Module) -> int:
    if not isinstance(module, BinaryLayer):
        return FLOAT_BYTES * sum(parameter.numel() for parameter in _own(module))
    bias = 0 if module.bias is None else module.bias.numel()
    return FLOAT_BYTES * (prod(module.latent.shape) + bias)


def _exported_bytes(module: nn.Module) -> int:
    if not isinstance(module, BinaryLayer):
        return _float_bytes(module)
    O = module.alpha().numel()
    scale = module.scale.gamma().numel() if isinstance(module.scale, LearnedMapScale) else O
    if not module.binary_weights:
        return _float_bytes(module) + FLOAT_BYTES * scale * (not isinstance(module.scale, NoScale))
    bias = 0 if module.bias is None else O
    packed = packed_bytes(module, real_inputs=not module.binary_activations)
    return packed + FLOAT_BYTES * (scale + bias)
