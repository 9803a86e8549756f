"""The latency of an exported file: each layer's, and beside other engines in turns."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common import __version__
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.machine import cpu_name
from bitfactor.common.result import Result, text_table
from bitfactor.engines import Engine, Run, engines_of, networks_of, peak_memory
from bitfactor.runtime import Precision, Profile, Session
from bitfactor.runtime.hub import located
from bitfactor.runtime.zoo import locate


def interleaved(
    engines: Mapping[str, Callable[[], object]], runs: int, pause: float = 0.0, warm_up: int = 10
) -> list[dict[str, Any]]:
    """Return name, minimum_ms and median_ms of each engine over `runs` runs, taken one of each in turn.

    Each round has another order, and each timed run follows one that is not. So what the engine before has
    left in the caches is no engine's gain or loss. `pause`, in seconds, is for engines of several threads.
    Those of the one before go on waiting for work, and would keep cores from the next.
    """
    for run in engines.values():
        for _ in range(warm_up):
            run()
    times: dict[str, list[float]] = {name: [] for name in engines}
    order = np.random.default_rng(0)
    for _ in range(runs):
        for name in order.permutation(list(engines)):
            run = engines[name]
            time.sleep(pause)
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return [
        {"name": name, "minimum_ms": 1e3 * min(t), "median_ms": 1e3 * float(np.median(t))}
        for name, t in times.items()
    ]


@dataclass(frozen=True)
class BenchReport(Result):
    """Latencies at batch 1: `name`, `minimum_ms` and `median_ms` of each engine, ours first; our layers'.

    Of an engine that runs a file also its `bytes` and the peak `memory` of a process that loads it and runs
    one sample. With `data`, its `accuracy` too.
    """

    machine: str
    threads: int
    runs: int
    bitfactor: str
    engines: tuple[Mapping[str, Any], ...]
    layers: Profile

    @property
    def caption(self) -> str:
        """What the figures were taken on."""
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.machine}, {threads}, batch 1, {self.runs} interleaved runs"

    def to_dict(self) -> dict[str, Any]:
        layers = [{**asdict(layer), "macs_per_second": layer.rate} for layer in self.layers.layers]
        return {**super().to_dict(), "layers": layers}

    def __str__(self) -> str:
        shown = [name for name in _FIGURES if any(engine.get(name) is not None for engine in self.engines)]
        head = ["engine", "minimum ms", "median ms", "times ours", "by median"]
        rows = [_row(engine, self.engines[0], shown) for engine in self.engines]
        titles = [_FIGURES[name][0] for name in shown]
        table = text_table([*head, *titles], rows, right=range(1, 5 + len(shown)))
        return "\n".join([f"{self.layers}\n\n{table}\n{self.caption}", *self.warnings])

    @property
    def warnings(self) -> list[str]:
        """What is to be said of engines that other work on the machine has slowed."""
        slowed = [one["name"] for one in self.engines if _slowed(one)]
        said = "warning: the median is twice the minimum or more, as other work slowed"
        return [f"{said} {', '.join(slowed)}; repeat it on a quiet machine"] if slowed else []


@checked
def bench(
    model: str | os.PathLike[str] | Session,
    others: Sequence[str | os.PathLike[str]] = (),
    *,
    data: str | os.PathLike[str] | None = None,
    against: Engine | Sequence[Engine] = (),
    runs: int = 200,
    threads: int | None = None,
    isa: str | None = None,
    precision: Precision | Sequence[Precision] | None = None,
    chart: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> BenchReport:
    """Time an exported network, one image at a time, layer by layer; other engines run interleaved with it.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`; in Python also a session, which is timed as it is.
    others
        Other files to time beside it: exported ones, and .onnx, which OpenVINO and ONNX Runtime run.
    data
        Also tell the accuracy of each file on these images; ONNX files get what the first file prescribes.
    against
        Also time its full-precision baseline (float32, bfloat16, int8) in: torch, onnxruntime, openvino.
    runs
        Timed runs of each.
    threads
        Threads of each engine; 1 if left out.
    isa
        Instruction set to force; the best one otherwise.
    precision
        Of full-precision layers, see `Session`. Of several, the first is what others are compared with.
    chart
        Also draw the engines' latencies, as .png or .svg.
    overwrite
        Replace a chart that is there already.

    Raises
    ------
    InputError
        If an argument is not one of these, an engine is not installed, or as `Session`.

    Example
    -------
    >>> bench("digits", against="torch").engines[0]["name"]
    'bitfactor (avx512)'
    """
    if runs < 1:
        raise InputError("runs", expected="1 or more", found=str(runs), fix="time at least one")
    if chart is not None:
        expect_output(chart, [".png", ".svg"], overwrite=overwrite, flag="--chart")
        imported("matplotlib", "--chart", "cli")
    names = [against] if isinstance(against, str) else list(against)
    place = None if isinstance(model, Session) else Path(located(locate(str(model))))
    if place is None and data is not None:
        raise InputError("data", expected="None, with a session", found=repr(data), fix="pass the file")
    sessions = _sessions(model, threads, isa, precision)
    first = sessions[0]
    first.model.expect_one_input("bench")
    x = _noise(first.input_shape)
    files = [_File(_name(one), "bitfactor", place, one, one.input_shape, one.precision) for one in sessions]
    files += [file for other in others for file in _files(Path(os.fspath(other)), first)]
    engines: dict[str, Run] = {one.name: partial(one.call, _noise(one.shape)) for one in files}
    with _threads_of_torch_kept(needed="torch" in names):
        for name in dict.fromkeys(names):
            engines |= engines_of(name, first.model.graph, x, first.threads)
        found = {one.name: one.figures(first.threads, place, data) for one in files}
        report = BenchReport(
            machine=cpu_name(),
            threads=first.threads,
            runs=runs,
            bitfactor=__version__,
            layers=first.profile(runs=runs),
            engines=tuple({**one, **found.get(one["name"], {})} for one in interleaved(engines, runs)),
        )
    if chart is not None:
        _draw(report, Path(chart))
    return report


@contextmanager
def _threads_of_torch_kept(*, needed: bool) -> Iterator[None]:
    """Give torch back the threads that it had, for what its user does next."""
    if not needed:
        yield
        return
    torch = imported("torch", "--against torch", "bench")
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _sessions(
    model: str | os.PathLike[str] | Session,
    threads: int | None,
    isa: str | None,
    precision: Precision | Sequence[Precision] | None,
) -> list[Session]:
    """Return a session for each precision."""
    if isinstance(model, Session):
        given = {"threads": threads, "isa": isa, "precision": precision}
        for name, value in given.items():
            if value is not None:
                raise InputError(
                    name,
                    expected="None, as a session has its own",
                    found=repr(value),
                    fix="pass it to Session, or pass the file",
                )
        return [model]
    precisions = [precision] if isinstance(precision, str) else list(precision or ("highest",))
    return [
        Session(locate(str(model)), threads=1 if threads is None else threads, isa=isa, precision=one)
        for one in dict.fromkeys(precisions)
    ]


def _name(session: Session) -> str:
    exact = session.precision == "highest"
    return f"bitfactor ({session.isa}{'' if exact else f', {session.precision}'})"


@dataclass(frozen=True)
class _File:
    """A file in an engine, and a call of it for one sample, (1, *shape)."""

    name: str
    engine: str
    path: Path | None
    call: Callable[..., Any]
    shape: tuple[int, ...]
    precision: str = ""

    def figures(
        self, threads: int, first: Path | None, data: str | os.PathLike[str] | None
    ) -> dict[str, Any]:
        """Return its bytes, memory and accuracy; images are prepared as the network at `first` says."""
        if self.path is None or first is None:
            return {}
        return {
            "bytes": self.path.stat().st_size,
            "memory": peak_memory(self.engine, self.path, self.shape, threads, self.precision),
            "accuracy": None if data is None else self._accuracy(first, data),
        }

    def _accuracy(self, first: Path, data: str | os.PathLike[str]) -> float:
        from bitfactor.api.evaluate import classify, images_of  # here, as a latency needs no OpenCV
        from bitfactor.api.network import network_at

        network = network_at(self.path if self.path and self.engine == "bitfactor" else first)
        taken = network.input_spec and (len(network.input_spec.mean), *network.input_spec.size)
        if taken and taken != self.shape:
            raise InputError(
                str(self.path),
                expected=f"an input of {taken}, as the images are prepared for {first}",
                found=str(self.shape),
                fix="leave out --data, or name a file of that size",
            )
        outputs = partial(one_by_one, self.call)
        return classify(replace(network, outputs=outputs), images_of(network, data)).accuracy


def one_by_one(call: Callable[..., Any], inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a call for one sample returns for several."""
    from bitfactor.api.network import first_of

    return np.concatenate([first_of(call(inputs[i : i + 1])) for i in range(len(inputs))])


def _files(path: Path, first: Session) -> list[_File]:
    """Return another file in each engine that runs it."""
    if path.suffix.lower() != ".onnx":
        given, path = path, Path(located(locate(str(path))))
        session = Session(path, threads=first.threads, isa=first.isa, precision=first.precision)
        session.model.expect_one_input("bench")
        name = f"{given}: {_name(session)}"
        return [_File(name, "bitfactor", path, session, session.input_shape, session.precision)]
    shape, networks = networks_of(path, first.threads)
    return [_File(f"{path}: {engine}", engine, path, call, shape) for engine, call in networks.items()]


def _noise(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((1, *shape), np.float32)


_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "accuracy": ("accuracy", lambda value: f"{value:.2%}"),
    "bytes": ("bytes", lambda value: f"{value:,}"),
    "memory": ("MB of memory", lambda value: f"{value / 1e6:,.0f}"),
}


def _slowed(engine: Mapping[str, Any]) -> bool:
    return bool(engine["median_ms"] >= 2 * engine["minimum_ms"])


def _row(engine: Mapping[str, Any], ours: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Return the cells of an engine; `~` marks a median that other work has slowed."""
    figures = [engine.get(name) for name in shown]
    return [
        engine["name"],
        f"{engine['minimum_ms']:.3f}",
        f"{'~' if _slowed(engine) else ''}{engine['median_ms']:.3f}",
        *(f"{engine[figure] / ours[figure]:.2f}" for figure in ("minimum_ms", "median_ms")),
        *(
            "" if value is None else _FIGURES[name][1](value)
            for name, value in zip(shown, figures, strict=True)
        ),
    ]


_OURS, _OTHERS = "#2563eb", "#9ca3af"


def _draw(report: BenchReport, path: Path) -> None:
    """Draw the minimum time of each engine, ours first, as bars with the ratio to ours."""
    from matplotlib.figure import Figure

    engines = report.engines
    times = [engine["minimum_ms"] for engine in engines]
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(engines)), layout="constrained")
    axes = figure.subplots()
    colours = [_OURS] + [_OTHERS] * (len(engines) - 1)
    bars = axes.barh([engine["name"] for engine in engines], times, color=colours)
    labels = [f" {one:.2f} ms" for one in times[:1]]
    labels += [f" {one:.2f} ms, {one / times[0]:.1f}x ours" for one in times[1:]]
    axes.bar_label(bars, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.5 * max(times))
    axes.set_xlabel("milliseconds, minimum")
    axes.set_title(report.caption, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
