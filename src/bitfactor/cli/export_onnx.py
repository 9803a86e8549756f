"""`bitfactor export RUN --format onnx`: the model file first, then ONNX from it."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from bitfactor.errors import InputError
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
    try:
        from bitfactor.exporter.onnx import export_onnx
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bitfactor"):
            raise
        raise InputError(
            f"bitfactor export --format {format}",
            expected=f"the package {error.name}",
            found="that it is not installed",
            fix="pip install 'bitfactor[onnx]'",
        ) from error
    return export_onnx(_model(source, export), output, "standard" if format == "onnx" else "qonnx")


def _model(source: Path, export: Callable[[Path], object]) -> ModelFile:
    if source.is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        export(path)
        return load(path)
