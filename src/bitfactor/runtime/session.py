"""A model file, ready to run."""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import checked, shown
from bitfactor.errors import InputError, near_matches
from bitfactor.format.file import ModelFile, golden_input, load
from bitfactor.format.graph import Graph, run
from bitfactor.format.low_precision import low_precision
from bitfactor.runtime import _native
from bitfactor.runtime.cores import default_threads
from bitfactor.runtime.prediction import (
    Classification,
    Image,
    Pose,
    as_list,
    looks_unprepared,
    predictor,
)
from bitfactor.runtime.profile import Profile, profile_of
from bitfactor.runtime.program import program_of

ISA_VARIABLE = "BITFACTOR_ISA"
MOST_THREADS = 1024
REFERENCE = "reference"
_Outputs = tuple[NDArray[Any], ...]
Runner = Callable[[NDArray[np.float32]], _Outputs]
Precision = Literal["highest", "high", "medium", "low"]


def instruction_sets() -> list[str]:
    """Return the names of the instruction sets that this machine runs, best first."""
    return _native.instruction_sets()


class Session:
    """The network in the model file at `path`, ready to run on this machine's CPU.

    `threads` share out the samples of a batch, and the work within a single one; the result does not depend
    on their number. By default they are the physical cores that the process may use, and 1 for a tiny
    network, which would not gain. `isa` is one of `instruction_sets()`, or "reference" for plain numpy (slow,
    for checks); by default what the environment variable BITFACTOR_ISA says, else the best. Results are the
    same bits whichever it is. A session may be called from several Python threads at once.

    `precision` is that of real-valued convolutions and linear layers, as of
    torch.set_float32_matmul_precision: "highest" is float32; with "high" a number may be the sum of two
    bfloat16, where that is faster (amx), and with "medium" a single one. Sums then are within 2^-16, or
    2^-7, of the sum of the products' magnitudes, and some of the signs behind them are others. "low" is 8-bit
    integers, for files that were exported with calibration samples; results again are the same bits on every
    instruction set, "reference" included.

    Attributes
    ----------
    model : the ModelFile: graph, input specification, golden values
    input_shape : shape of one sample, (C, H, W)
    input_shapes : all shapes that a sample may have; most files take one
    labels : names of the output's entries
    isa, threads, precision : as in use

    Raises
    ------
    InputError
        If the file is no model file, `isa` is not known or this machine lacks it, `threads` is below 1, or
        `precision` is not known, or "low" for a file without ranges.

    Example
    -------
    >>> session = Session("net.safetensors")
    >>> session(np.zeros((1, 3, 224, 224), np.float32)).shape
    (1, 1000)
    >>> print(session.predict("photo.jpg"))
    """

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int | None = None,
        isa: str | None = None,
        precision: Precision = "highest",
    ) -> None:
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            expected = f"1 to {MOST_THREADS}"
            raise InputError("threads", expected=expected, found=str(threads), fix="pass threads=1")
        self.precision: Precision = precision
        self.isa = chosen_isa(isa)
        self.model: ModelFile = load(path)
        self.threads = threads or default_threads(self.model.graph)
        self.input_shape = self.model.graph.input.shape
        self.input_shapes = (self.input_shape, *self.model.other_shapes)
        self.labels = self.model.labels
        self._looks_left = _LOOKS
        self._runners: dict[tuple[int, ...], Runner] = {}
        self._runner(self.input_shape)

    def __call__(self, x: NDArray[Any]) -> NDArray[Any] | _Outputs:
        """Return the output for x (N, *input_shape), or a tuple where the network has several.

        x is float32, or of a type that float32 holds exactly. Outputs are (N, ...), shaped as in torch;
        float32, or int32 and int8 where an output is a sum or signs. N may be 0.

        Raises
        ------
        InputError
            If x has another shape or type, or holds NaN or infinity.
        """
        self._warn_of_unprepared(x)
        outputs = self._run(x)
        return outputs if len(outputs) > 1 else outputs[0]

    @checked
    def predict(
        self,
        images: Image | Iterable[Image],
        *,
        top: int = 5,
        box: tuple[float, float, float, float] | None = None,
    ) -> Classification | Pose | list[Classification | Pose]:
        """Say what is in an image, or in each of several: decoded and prepared as the file says.

        Parameters
        ----------
        images
            A path, uint8 values of 0 to 255 shaped (H, W, 3), RGB, or (H, W); or a list of these.
        top
            How many classes to tell.
        box
            Of a pose network: left, top, width and height of the person; the whole image if left out.

        Raises
        ------
        InputError
            If an image cannot be read or is none, `top` is below 1, there is a box for a network that
            classifies, or the file does not say how images are prepared.

        Example
        -------
        >>> print(Session("net.safetensors").predict("photo.jpg"))
        photo.jpg: tabby 61.2%, tiger cat 30.1%, lynx 4.0%, ...
        """
        of_one = predictor(self.model, lambda x: self._run(x)[0], top, box)
        several = as_list(images)
        return of_one(images) if several is None else [of_one(image) for image in several]  # type: ignore[arg-type]

    def _warn_of_unprepared(self, x: NDArray[Any]) -> None:
        """Warn, once, if one of the first inputs cannot have been prepared as the file states."""
        if not self._looks_left or self.model.input_spec is None:
            return
        self._looks_left -= 1
        array = _array(x)
        if array.ndim == 4 and array.dtype.kind in "fui":
            what = looks_unprepared(array, self.model.input_spec)
            if what:
                self._looks_left = 0
                warnings.warn(
                    f"the input looks like {what}, but this network takes (x / 255 - mean) / std: "
                    "session.predict(image) prepares an image as the file says",
                    UserWarning,
                    stacklevel=3,
                )

    def _run(self, x: NDArray[Any]) -> _Outputs:
        x = _checked(x, self.input_shapes)
        return self._runner(x.shape[1:])(x)

    def _runner(self, shape: tuple[int, ...]) -> Runner:
        if shape not in self._runners:
            self._runners[shape] = runner(self.model.graph_for(shape), self.isa, self.threads, self.precision)
        return self._runners[shape]

    @checked
    def profile(self, x: NDArray[Any] | None = None, runs: int = 100) -> Profile:
        """Return the time of each layer, over `runs` runs of a sample x (1, *input_shape); noise by default.

        Raises
        ------
        InputError
            If x is none of the session's inputs or not one sample, or the session runs in plain numpy.

        Example
        -------
        >>> print(Session("net.safetensors", threads=1).profile())
        """
        x = _checked(golden_input(self.input_shape)[:1] if x is None else x, self.input_shapes)
        if len(x) != 1:
            raise InputError("x", expected="one sample", found=str(len(x)), fix="pass x[:1]")
        if runs < 1:
            raise InputError("runs", expected="1 or more", found=str(runs), fix="change it")
        native = self._runner(x.shape[1:])
        if not isinstance(native, NativeRunner):
            raise InputError("isa", expected="an instruction set", found=self.isa, fix="pass another isa")
        return native.profile(_finite(x), runs)

    def verify(self) -> None:
        """Run the golden input of the file; the outputs must equal the golden outputs, bit for bit.

        That is at the highest precision, whatever the session's.

        Raises
        ------
        InputError
            If one does not.
        """
        exact = self.precision == "highest"
        run = self._run if exact else runner(self.model.graph, self.isa, self.threads)
        outputs = run(self.model.golden_input)
        for i, (found, expected) in enumerate(zip(outputs, self.model.golden_outputs, strict=True)):
            if not np.array_equal(found, expected):
                raise InputError(
                    f"output {self.model.graph.outputs[i]!r}",
                    expected="the golden output of the file, exactly",
                    found=_difference(found, expected),
                    fix="export the model again, and report it if that does not help",
                )


def chosen_isa(isa: str | None = None) -> str:
    """Return the instruction set that is asked for: by name, by the environment, or else the best.

    Raises
    ------
    InputError
        If it is unknown, or this machine lacks it.
    """
    where = "isa" if isa is not None else ISA_VARIABLE
    isa = isa if isa is not None else os.environ.get(ISA_VARIABLE)
    available = [*instruction_sets(), REFERENCE]
    if not isa:
        return available[0]
    if isa not in available:
        expected = f"an instruction set of this machine ({', '.join(available)})"
        raise InputError(where, expected=expected, found=repr(isa), fix=near_matches(isa, available))
    return isa


def runner(graph: Graph, isa: str, threads: int = 1, precision: Precision = "highest") -> Runner:
    """Return a function from x (N, *shape of the input) to the outputs of `graph`, one array each."""
    if precision == "low":
        graph = low_precision(graph)
    if isa == REFERENCE:
        return lambda x: run(graph, _finite(x))
    return NativeRunner(graph, isa, threads, precision)


class NativeRunner:
    """Runs `graph` in the compiled core."""

    def __init__(self, graph: Graph, isa: str, threads: int, precision: Precision = "highest") -> None:
        self.graph, self.isa, self.threads = graph, isa, threads
        program = program_of(graph)
        self._layers = program.layers
        self._program, self._phases = program.compile(isa, threads, bfloat16_parts=_PARTS[precision])
        self._values = [graph.values[name] for name in graph.outputs]

    def __call__(self, x: NDArray[np.float32]) -> _Outputs:
        outs = self._outputs(len(x))
        if not self._program.run(x=self._flat(x), outs=outs):
            raise _not_finite(x)
        return tuple(
            out.reshape(len(x), *value.shape).astype(_DTYPES[value.dtype], copy=False)
            for out, value in zip(outs, self._values, strict=True)
        )

    def profile(self, x: NDArray[np.float32], runs: int) -> Profile:
        """Time the layers over `runs` runs of one sample, after a few that warm up."""
        kernels, outs = self._program.phases(), self._outputs(1)
        for count in (_WARM_UP, runs):
            ns = np.empty((count, len(kernels)))
            self._program.profile(x=self._flat(x), outs=outs, ns=ns)
        return profile_of(
            self.graph, self._layers, self._phases, kernels, ns, isa=self.isa, threads=self.threads
        )

    def _flat(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x.reshape(len(x), math.prod(self.graph.input.shape))

    def _outputs(self, samples: int) -> list[NDArray[np.float32]]:
        return [np.empty((samples, math.prod(value.shape)), np.float32) for value in self._values]


_PARTS: dict[Precision, int] = {"highest": 0, "high": 2, "medium": 1, "low": 0}  # of a number, in bfloat16
_WARM_UP = 3
_LOOKS = 10  # the first input may be zeros that warm up
_DTYPES = {"float32": np.float32, "int32": np.int32, "bit": np.int8}


def _checked(x: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
    x = _array(x)
    if x.ndim < 1 or x.shape[1:] not in shapes:
        expected = "shape " + " or ".join(f"(N, {', '.join(map(str, shape))})" for shape in shapes)
        raise InputError("x", expected=expected, found=str(x.shape), fix=_fix_of_shape(x.shape, shapes))
    if not np.can_cast(x.dtype, np.float32):
        expected = "float32, or a type it holds exactly"
        raise InputError("x", expected=expected, found=str(x.dtype), fix="use x.astype(numpy.float32)")
    return np.ascontiguousarray(x, np.float32)


def _array(x: object) -> NDArray[Any]:
    """Return what is like an array of values as one."""
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:  # rows that differ, or a tensor that must stay
        found = f"a {type(x).__name__} that is none ({' '.join(str(error).split())[:120]})"
        raise InputError(
            "x", expected="an array", found=found, fix="make one, as numpy.asarray does"
        ) from error
    if array.dtype.kind in "biufc":
        return array
    path = isinstance(x, str | os.PathLike)
    raise InputError(
        "x",
        expected="an array of values",
        found=shown(x),
        fix="session.predict(image) takes a path" if path else "pass a batch, as session.input_shape says",
    )


def _fix_of_shape(found: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> str:
    channels = {shape[0] for shape in shapes}
    if len(found) > 2 and found[-1] in channels and found[-3] not in channels:
        return "put the channels first, as in x.transpose(0, 3, 1, 2); session.predict(image) takes them last"
    return "add the batch dimension, x[None]" if found in shapes else "resize, and add the batch dimension"


def _finite(x: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(x).all():
        raise _not_finite(x)
    return x


def _not_finite(x: NDArray[np.float32]) -> InputError:
    places = np.argwhere(~np.isfinite(x)).tolist()
    found = f"{x[tuple(places[0])]} at {places[0]}" if places else "one that was changed during the run"
    return InputError("x", expected="finite numbers", found=found, fix="clean the input")


def _difference(found: NDArray[Any], expected: NDArray[Any]) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    differing = int((found != expected).sum())
    most = np.abs(found.astype(np.float64) - expected).max()
    return f"{differing} of {expected.size} numbers differing, by {most:.3g} at most"
