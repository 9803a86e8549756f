"""The same network for other machines: C, C99, a web page, ONNX. Each takes a model file."""
