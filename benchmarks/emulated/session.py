"""Runs files in an engine on one thread, with a mark of count.c after each pass.

python session.py PASSES onnxruntime|openvino FILE ...
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

SHAPE = (1, 3, 224, 224)


def with_onnxruntime(path: str) -> Callable[[np.ndarray], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def with_openvino(path: str) -> Callable[[np.ndarray], np.ndarray]:
    import openvino

    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
    return lambda x: request.infer({0: x})[0]


def main() -> None:
    passes, engine, *paths = sys.argv[1:]
    made = {"onnxruntime": with_onnxruntime, "openvino": with_openvino}[engine]
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    for path in paths:
        print(f"{engine}: {Path(path).name}", file=sys.stderr, flush=True)
        run = made(path)
        for _ in range(int(passes) + 1):
            y = run(x)
            os.getppid()
        if not np.isfinite(y).all():
            sys.exit(f"{path}: expected finite outputs")


if __name__ == "__main__":
    main()
