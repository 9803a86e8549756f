"""A model file, ready to run."""

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked, expect_that, expect_within
from bitfactor.common.errors import InputError
from bitfactor.common.machine import REFERENCE, chosen_isa
from bitfactor.format.file import Source, content_of, load
from bitfactor.format.graph import Graph
from bitfactor.format.model import ModelFile
from bitfactor.runtime.hub import located
from bitfactor.runtime.inputs import (
    Rows,
    array_of,
    by_name,
    checked_inputs,
    expect_numbers,
    expect_rows,
    rows_of,
)
from bitfactor.runtime.prediction import (
    Classification,
    Image,
    Pose,
    as_list,
    expect_prepared,
    looks_unprepared,
    predictor,
)
from bitfactor.runtime.program import Profile
from bitfactor.runtime.runner import (
    NativeRunner,
    Outputs,
    Precision,
    Runner,
    Shapes,
    default_threads,
    runner,
    unfit,
)

MOST_THREADS = 1024


class Session:
    """The network in the model file at `path`, ready to run on this machine's CPU.

    `path` may also be the bytes of a model file, or a file that is open for reading them. It may be a
    directory of `bitfactor.save_pretrained`, or a repository of the Hugging Face Hub: owner/name, or
    owner/name@revision.

    `max_bytes` is for files from strangers: InputError, before it is allocated, where the network would take
    more. That is the file, its weights as numpy and the kernels hold them, and the memory of the samples
    under way. The arrays that a call takes and returns are not counted. Each size of input, and each
    precision, may take as much.

    `threads` share out the samples of a batch, and the work within a single one; the result does not depend
    on their number. By default they are the physical cores that the process may use, and 1 for a tiny
    network, which would not gain. `isa` is one of `instruction_sets()`, or "reference" for plain numpy (slow,
    for checks); by default what the environment variable BITFACTOR_ISA says, else the best. Results are the
    same bits whichever it is. A session may be called from several Python threads at once.

    `precision` is that of real-valued convolutions and linear layers, as of
    torch.set_float32_matmul_precision. "highest" is float32. With "high" a number may be the sum of two
    bfloat16, where that is faster (amx). With "medium" it is a single one (amx, and avx512 on AMD's CPUs with
    AVX512_BF16). Sums then are within 2^-16, or 2^-7, of the sum of the products' magnitudes, and some of the
    signs behind them are others. "low" is 8-bit integers, for files that were exported with calibration
    samples; results again are the same bits on every instruction set, "reference" included. "integer" has no
    real number from the first pixel to the class. It gives the same bits on every machine, in C99 and in a
    web page. Outputs are what its integers stand for.

    A network of images takes them prepared, as (x / 255 - mean) / std of RGB: `predict` does it, a call does
    not. OpenCV's own arrays are BGR: `image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)` comes first. No check
    can tell one from the other.

    Attributes
    ----------
    model : the ModelFile: graph, input specification, golden values
    input_names : names of the inputs, in the order in which a call gives them
    input_shape : shape of one sample of the first, (C, H, W)
    input_shapes : all shapes that a sample of it may have; most files take one. A file whose sizes are free
        (`export(..., dynamic_size=True)`) takes others too: each is planned at its first call, and kept
    labels : names of the output's entries
    isa, threads, precision : as in use

    Raises
    ------
    InputError
        If the file is no model file, `isa` is not known or this machine lacks it, `threads` is below 1, or
        `precision` is not known. Also if the file has no ranges for "low", or the network an operation
        without integers for "integer". The message names the layer.

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
        path: Source,
        threads: int | None = None,
        isa: str | None = None,
        precision: Precision = "highest",
        max_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise InputError("max_bytes", expected="1 or more", found=str(max_bytes), fix="pass 1 << 30")
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            expected = f"1 to {MOST_THREADS}"
            raise InputError("threads", expected=expected, found=str(threads), fix="pass threads=1")
        given = content_of(located(path), max_bytes)
        source = given if isinstance(given, bytes) else os.path.abspath(given)
        self._made_with = (source, threads, isa, precision, max_bytes)
        self.precision: Precision = precision
        self.isa = chosen_isa(isa)
        self.model: ModelFile = load(given, max_bytes)
        self._run_as = self.model
        if precision == "integer":
            from bitfactor.format.integer import in_integers  # takes memory and time that others need not

            expect_within(_converted_bytes(self.model.graph), max_bytes, "weights on their way to integers")
            self._run_as = in_integers(self.model)
        self._most_bytes = _left(max_bytes, self._run_as.graph, self.isa)
        self.threads = threads or default_threads(self.model.graph)
        inputs = self.model.graph.inputs
        self.input_names = tuple(value.name for value in inputs)
        self.input_shape = self.model.graph.input.shape
        self.input_shapes = (self.input_shape, *self.model.other_shapes)
        self.labels = self.model.labels
        self._looks_left = _LOOKS
        self._plans: dict[Shapes, tuple[Runner, Rows]] = {}
        self._plan(tuple(value.shape for value in inputs))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, such as one for another process, opens the file again."""
        return type(self), self._made_with

    def __call__(self, *args: NDArray[Any], **kwargs: NDArray[Any]) -> Any:
        """Return what the model returns for inputs (N, ...), in their order or by name: arrays for tensors.

        That is one output, or a tuple, list or dict of several. An input is float32, or of a type that
        float32 holds exactly; where the model takes integers or bool, it is that. Outputs are (N, ...), as in
        torch, of float32, int64 or bool as there. N may be 0.

        Raises
        ------
        InputError
            If an input is missing or not known, has another shape or type, or holds NaN or infinity; if
            images are integers out of the range of prepared ones; or if an output is NaN, as from a division
            by 0.
        """
        self._look_at([*args, *(kwargs[name] for name in self.input_names[:1] if name in kwargs)])
        return self.model.called.arrange(self._run(*args, **kwargs))

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
            A path, the bytes of an image file, or an image of Pillow. Also RGB as uint8 values of 0 to 255
            shaped (H, W, 3), or grey (H, W). Or a list of these. An array that OpenCV read is BGR:
            `cv2.cvtColor(image, cv2.COLOR_BGR2RGB)` makes it RGB.
        top
            How many classes to tell.
        box
            Of a pose network: left, top, width and height of the person; the whole image if left out.

        Raises
        ------
        InputError
            If an image cannot be read or is none, `top` is below 1, or there is a box for a network that
            classifies. Also if the file does not say how images are prepared.

        Example
        -------
        >>> print(Session("net.safetensors").predict("photo.jpg"))
        photo.jpg: tabby 61.2%, tiger cat 30.1%, lynx 4.0%, ...
        """
        of_one = predictor(self.model, lambda x: self._run(x)[0], top, box)
        several = as_list(images)
        return of_one(images) if several is None else [of_one(image) for image in several]  # type: ignore[arg-type]

    def _look_at(self, inputs: Sequence[Any]) -> None:
        """Refuse integers, and warn once of others, that cannot have been prepared as the file states."""
        if not inputs or self.model.input_spec is None:
            return
        array = array_of(inputs[0], "x")
        if array.ndim == 4:
            expect_prepared(array, self.model.input_spec)
        if not self._looks_left:
            return
        self._looks_left -= 1
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

    def _run(self, *args: Any, **kwargs: Any) -> Outputs:
        given = self._given(by_name(self.input_names, args, kwargs))
        xs = checked_inputs(given, self.model.called.types, self._shapes(given))
        run, rows = self._plan(tuple(x.shape[1:] for x in xs))
        expect_rows(xs, self.input_names, rows)
        outputs = run(*xs)
        expect_numbers(outputs, self.model.graph.outputs)
        return outputs

    def _given(self, given: Sequence[tuple[str, NDArray[Any]]]) -> list[tuple[str, NDArray[Any]]]:
        """Return the inputs as the graph has them: one value a sample, (N,), is (N, 1)."""
        scalars = self.model.called.scalar_inputs
        for i in (i for i in scalars if i < len(given)):
            where, x = given[i]
            if x.ndim != 1:
                raise InputError(
                    where, expected="shape (N,)", found=str(x.shape), fix="pass a value a sample"
                )
        return [(where, x[:, None] if i in scalars else x) for i, (where, x) in enumerate(given)]

    def _shapes(self, given: Sequence[tuple[str, NDArray[Any]]]) -> list[Sequence[tuple[int, ...]]]:
        """Return the shapes that each of the given inputs may have."""
        free, own = self.model.free, [value.shape for value in self.model.graph.inputs]
        if free is None:
            return [self.input_shapes, *([shape] for shape in own[1:])][: len(given)]
        for i, (where, x) in enumerate(given):
            if not free.allows(i, own[i], x.shape[1:]):
                expected, found = f"shape {free.shown(i, own[i])}", str(x.shape)
                raise InputError(where, expected=expected, found=found, fix="resize, or pad")
        return [[x.shape[1:]] for _, x in given]

    def _plan(self, shapes: Shapes) -> tuple[Runner, Rows]:
        """Return what runs inputs of these shapes, and what they may be; the last few shapes are kept."""
        found = self._plans.get(shapes)
        if found is None:
            graph = self._graph(shapes)
            run = runner(graph, self.isa, self.threads, self.precision, self._most_bytes)
            found = self._plans[shapes] = run, rows_of(graph)
            for other in [*self._plans][:-_MOST_SIZES]:
                self._plans.pop(other, None)
        return found

    def _graph(self, shapes: Shapes) -> Graph:
        try:
            return self._run_as.graph_for(*shapes)
        except InputError as error:
            raise unfit(self.model.graph, shapes, str(error)) from error

    @checked
    def profile(self, x: NDArray[Any] | None = None, runs: int = 100) -> Profile:
        """Return the time of each layer, over `runs` runs of a sample; noise by default.

        x, (1, *input_shape), is the first input; others are the golden ones of the file.

        Raises
        ------
        InputError
            If x is none of the session's inputs or not one sample, or the session runs in plain numpy.

        Example
        -------
        >>> print(Session("net.safetensors", threads=1).profile())
        """
        if x is None:
            xs = list(self.model.golden_inputs)
        else:
            given = self._given(by_name(self.input_names[:1], [x], {}))
            xs = checked_inputs(given, self.model.called.types[:1], self._shapes(given))
            xs += self.model.golden_inputs[1:]
        if len(xs[0]) != 1:
            raise InputError("x", expected="one sample", found=str(len(xs[0])), fix="pass x[:1]")
        expect_that(runs >= 1, "runs", expected="1 or more", found=runs)
        native, _ = self._plan(tuple(x.shape[1:] for x in xs))
        if not isinstance(native, NativeRunner):
            raise InputError("isa", expected="an instruction set", found=self.isa, fix="pass another isa")
        return native.profile(*xs, runs=runs)

    def verify(self) -> None:
        """Run the golden input of the file; the outputs must equal the golden outputs, bit for bit.

        A session of precision "integer" uses it, if the file has golden outputs of integers. Any other uses
        the highest precision.

        Raises
        ------
        InputError
            If one does not.
        """
        shapes = tuple(value.shape for value in self.model.graph.inputs)
        integers = self.model.integer_outputs if self.precision == "integer" else ()
        run = (
            self._plan(shapes)[0]
            if self.precision == "highest" or integers
            else runner(self.model.graph, self.isa, self.threads, most_bytes=self._most_bytes)
        )
        outputs, golden = run(*self.model.golden_inputs), integers or self.model.golden_outputs
        for i, (found, expected) in enumerate(zip(outputs, golden, strict=True)):
            if not np.array_equal(found, expected):
                raise InputError(
                    f"output {self.model.graph.outputs[i]!r}",
                    expected="the golden output of the file, exactly",
                    found=_difference(found, expected),
                    fix="export the model again, and report it if that does not help",
                )


def _left(max_bytes: int | None, graph: Graph, isa: str) -> int | None:
    """Return what the kernels may take, where numpy holds the weights as stored and as they are given on."""
    if max_bytes is None:
        return None
    if isa == REFERENCE:
        fix = "leave out isa, or max_bytes"
        raise InputError("max_bytes", expected="an instruction set", found=repr(isa), fix=fix)
    tensors = (tensor for node in graph.nodes for tensor in node.tensors.values())
    weights = 2 * sum(max(tensor.nbytes, 4 * tensor.size) for tensor in tensors)
    expect_within(weights, max_bytes, "weights")
    return max_bytes - weights


def _converted_bytes(graph: Graph) -> int:
    """Return what weights take while they become integers: a byte a sign, float64 in three copies."""
    tensors = (tensor for node in graph.nodes for tensor in node.tensors.values())
    return sum((64 if tensor.dtype == np.uint64 else 24) * tensor.size for tensor in tensors)


_MOST_SIZES = 8  # each has its own weights in memory
_LOOKS = 10  # the first input may be zeros that warm up


def _difference(found: NDArray[Any], expected: NDArray[Any]) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    differing = int((found != expected).sum())
    most = np.abs(found.astype(np.float64) - expected).max()
    return f"{differing} of {expected.size} numbers differing, by {most:.3g} at most"
