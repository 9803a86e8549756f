"""A run's network in each engine that runs it: its files, and calls for one image."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bitfactor.api.bench import one_by_one
from bitfactor.api.evaluate import ClassEvaluation, classify, images_of
from bitfactor.api.network import network_at
from bitfactor.common.files import write_file
from bitfactor.data.readers.identity import remembered
from bitfactor.engines import Network, networks_of, with_onnxruntime
from bitfactor.format import load
from bitfactor.format.low_precision import Real
from bitfactor.recipes import recipe_of
from bitfactor.recipes.runs import export_run, training_images
from bitfactor.runtime import Precision, Session
from bitfactor.targets.onnx import to_onnx
from bitfactor.training import Run

_CALIBRATION = 256  # training images, for the ranges of int8
_ONNX: Mapping[Real, str] = {"float32": ".onnx", "int8": "-int8.onnx"}
ENDS = (".safetensors", "-int8.safetensors", *_ONNX.values())
"""How the names of the files end that `written` writes."""


@dataclass(frozen=True)
class Made:
    """A network in an engine: the file it runs from, and a call for one image, (1, C, H, W)."""

    network: str
    weights: str
    engine: str
    file: Path
    source: Path
    precision: Precision
    call: Network = field(repr=False)
    minimum_ms: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its input, (C, H, W)."""
        return load(self.source).graph.input.shape

    def on(self, data: Path) -> ClassEvaluation:
        """Return what it says of the images to evaluate on."""
        network = network_at(self.source)
        return classify(replace(network, outputs=partial(one_by_one, self.call)), images_of(network, data))


def written(run: Path, stem: Path, threads: int) -> list[Made]:
    """Write a run's network as files that begin with `stem`, and return it in each engine that runs it.

    Its real-valued layers are float32 at precision `highest`, and int8 at `low`: in the file too.
    """
    recipe, source = recipe_of(Run(run)), _named(stem, ".safetensors")
    kinds: Mapping[Precision, tuple[Real, str, Path]] = {
        "highest": ("float32", "bitfactor", source),
        "low": ("int8", "bitfactor, low", _named(stem, "-int8.safetensors")),
    }
    made = []
    for precision, (real, engine, file) in kinds.items():
        export_run(Run(run), file, real=real, calibration=_calibration(run), overwrite=True)
        session = Session(file, threads=threads, precision=precision)
        weights = real if recipe.real else "1 bit"
        made.append(Made(run.name, weights, engine, file, source, precision, session))
        if recipe.real:
            file = _as_onnx(source, real, run, _named(stem, _ONNX[real]))
            made += [
                Made(run.name, real, engine, file, source, precision, call)
                for engine, call in networks_of(file, threads)[1].items()
            ]
    return made


def _named(stem: Path, end: str) -> Path:
    return stem.with_name(f"{stem.name}{end}")


def _as_onnx(source: Path, real: Real, run: Path, file: Path) -> Path:
    """Write a network in full precision as ONNX for one image at a time, in float32 or in int8."""
    proto = with_onnxruntime.with_batch(to_onnx(load(source)), 1)
    if real == "int8":
        samples = training_images(recipe_of(Run(run)), Run(run), _calibration(run)).numpy()
        proto = with_onnxruntime.quantised(proto, samples[:, None])
    write_file(file, proto.SerializeToString())
    return file


def _calibration(run: Path) -> int:
    return min(_CALIBRATION, int((remembered(run) or {})["train"] or 1))
