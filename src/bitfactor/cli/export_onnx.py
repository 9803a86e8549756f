"""`bitfactor export RUN --format onnx`: the model file first, then ONNX from it."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from bitfactor.errors import imported
from bitfactor.format import ModelFile, load

if TYPE_CHECKING:
    from bitfactor.exporter.onnx import OnnxReport

Format = Literal["onnx", "qonnx"]


def export_as_onnx(
    source: Path, output: Path, format: Format, export: Callable[[Path], object]
) -> "OnnxReport":
    """Write ONNX to `output`, from a model file or, where `source` is a run, from what `export` writes of it.

    Raises
    ------
    InputError
        If a package is not installed, or ONNX Runtime does not give the same.
    """
    onnx = imported("bitfactor.exporter.onnx", f"bitfactor export --format {format}", "onnx")
    kind = "standard" if format == "onnx" else "qonnx"
    report: OnnxReport = onnx.export_onnx(_model(source, export), output, kind)
    return report


def _model(source: Path, export: Callable[[Path], object]) -> ModelFile:
    if source.is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        export(path)
        return load(path)
