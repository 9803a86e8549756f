"""From an ONNX file to the graph of a model file. Needs the packages of `bitfactor[onnx]`."""

from bitfactor.exporter.reading.read import Reading, read

__all__ = ["Reading", "read"]
