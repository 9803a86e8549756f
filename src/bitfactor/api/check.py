"""`bitfactor.check`: will a network become binary, and run from a file? Said before training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bitfactor.api.bench import interleaved
from bitfactor.binarization import Plan, Summary, binarize_, summary
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.machine import chosen_isa
from bitfactor.common.result import Result, text_table
from bitfactor.exporter.adoption import Finding
from bitfactor.exporter.fold import fold
from bitfactor.exporter.lower import lower, lower_trace
from bitfactor.exporter.parity import expect_any_batch
from bitfactor.exporter.report import (
    LayerReport,
    Obstacle,
    UnsupportedError,
    grouped,
    layer_reports,
    layers_table,
    macs_line,
)
from bitfactor.exporter.trace import traced
from bitfactor.format import Graph
from bitfactor.format.low_precision import quantise
from bitfactor.nn.model import Call, Example, copied
from bitfactor.runtime.runner import runner


@dataclass(frozen=True)
class Check(Result):
    """What `check` found.

    `plan` says what becomes of each layer, `sizes` what it costs. `obstacles` are all places that keep the
    binary network from being exported. Of a network that is binary by its authors' own code there is no plan.
    `layers` then say what each is and why, and `stored`, if it can be exported, what the file holds of each.
    `price` is what 1 bit gives on this machine, of a network that can be exported and takes one tensor.
    """

    plan: Plan | None
    sizes: Summary | None
    obstacles: tuple[Obstacle, ...]
    layers: tuple[Finding, ...] = ()
    stored: tuple[LayerReport, ...] = ()
    price: "Price | None" = None

    def __str__(self) -> str:
        sizes = self.sizes
        places = "\n".join(["cannot be exported:", *grouped(self.obstacles)])
        verdict = places if self.obstacles else "can be exported"
        if self.stored:
            table = layers_table(self.stored)
            return f"{table}\n\n{macs_line(self.stored)}\nbinary as it stands, {verdict}"
        if sizes is None:
            rows = [[layer.module, layer.kind, layer.why] for layer in self.layers]
            return f"{text_table(['layer', 'kind', 'why'], rows)}\n\nbinary as it stands, {verdict}"
        return (
            f"{self.plan}\n\n{sizes.binary_fraction:.1%} of the multiply-adds are binary, the file is about "
            f"{sizes.compression:.1f} times smaller\n{verdict}" + (f"\n{self.price}" if self.price else "")
        )


@dataclass(frozen=True)
class Price(Result):
    """Milliseconds of one sample on one thread of this machine, and bytes of weights.

    `float_` is the network as it is, in torch; `binary_` the same at 1 bit, untrained, in the runtime.
    """

    float_ms: float
    float_bytes: int
    binary_ms: float
    binary_bytes: int

    def __str__(self) -> str:
        return (
            f"1 bit: {self.binary_ms:.2f} ms and {self.binary_bytes / 1e6:.2f} MB here; float32 in torch: "
            f"{self.float_ms:.2f} ms and {self.float_bytes / 1e6:.2f} MB; `bitfactor compare` measures what "
            "it costs in accuracy, and what int8 would give"
        )


@checked
@torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]  # a file is of float32
def check(
    model: nn.Module,
    example: Example,
    *,
    keep_real: str | nn.Module | Sequence[str | nn.Module] = (),
    **options: Any,
) -> Check:
    """Say what would become of a network, on a copy of it; or what it is, if it is binary as it stands.

    Parameters
    ----------
    example
        A batch as the model takes it, (N, ...), of two samples or more; a tuple of several inputs, or a dict.
    keep_real
        As of `binarize_`.
    options
        As of `binarize_`, such as the latent.

    Raises
    ------
    InputError
        If nothing would turn binary, an option is unknown, or the model does not run on the example.

    Example
    -------
    >>> print(bitfactor.check(model, torch.randn(2, 3, 224, 224), latent="tucker"))
    """
    standing = None if keep_real or options else _as_it_stands(model, Call.of(example))
    if standing is not None:
        return standing
    plan = binarize_(model, keep_real=keep_real, example=example, dry_run=True, **options)
    real = [layer.name for layer in plan.layers if not layer.binary]
    # A free weight is made in no time, and what can be exported does not depend on the decomposition.
    free = {name: value for name, value in options.items() if name not in _OF_LATENTS}
    binary = copied(model).eval()
    binarize_(binary, latent="none", keep_real=real, example=example, **free)
    sizes = summary(binary, example)
    try:
        lowered = lower(binary, example)
        expect_any_batch(binary, Call.of(example), lowered)
    except InputError as error:
        return Check(plan, sizes, _obstacles(error))
    return Check(plan, sizes, (), price=_price(model, example, quantise(fold(lowered.graph)[0], "float32")))


def _price(model: nn.Module, example: Example, graph: Graph) -> Price | None:
    """Time one sample in torch and at 1 bit, in turns."""
    if not isinstance(example, torch.Tensor) or not example.is_floating_point():
        return None
    plain, x = copied(model).cpu().eval(), example[:1].detach().cpu().float()
    threads = torch.get_num_threads()
    binary, array = runner(graph, chosen_isa()), x.numpy()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            found = interleaved(
                {"float": lambda: plain(x), "binary": lambda: binary(array)}, _RUNS, warm_up=1
            )
    finally:
        torch.set_num_threads(threads)
    return Price(
        float_ms=found[0]["minimum_ms"],
        float_bytes=sum(one.nbytes for one in plain.state_dict().values()),
        binary_ms=found[1]["minimum_ms"],
        binary_bytes=sum(one.nbytes for node in graph.nodes for one in node.tensors.values()),
    )


def _as_it_stands(model: nn.Module, call: Call) -> Check | None:
    """Return what is known of a network with binary layers of others' code, None of any other."""
    own, two = copied(model).cpu().eval(), call.mapped(lambda x: x[:2].detach().cpu())
    try:
        trace = traced(own, two)
    except UnsupportedError:
        return None
    found = trace.adoption.findings.values() if trace.adoption is not None else ()
    if all(finding.kind == "real" for finding in found):
        return None
    try:
        lowered = lower_trace(trace, type(model).__name__)
        expect_any_batch(own, two, lowered)
    except InputError as error:
        return Check(None, None, _obstacles(error), tuple(found))
    graph = quantise(fold(lowered.graph)[0], "float32")
    return Check(None, None, (), tuple(found), layer_reports(graph, lowered, model))


def _obstacles(error: InputError) -> tuple[Obstacle, ...]:
    if isinstance(error, UnsupportedError):
        return error.obstacles
    return (Obstacle("", error.where, error.expected, error.found, error.fix),)


_RUNS = 5
_OF_LATENTS = ("latent", "rank", "initialisation", "groups", "orthogonality")
