"""The same network as ONNX, for other runtimes. Needs the packages of `bitfactor[onnx]`."""

from bitfactor.targets.onnx.export import OnnxReport, export_onnx
from bitfactor.targets.onnx.translate import to_onnx

__all__ = ["OnnxReport", "export_onnx", "to_onnx"]
