"""C code is compiled and run as a user's build would."""

import ctypes
import subprocess

import numpy as np
import pytest

from bitfactor.targets.c99 import export_c

STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]


@pytest.fixture
def compiled(tmp_path):
    """Export a model as C, compile it, and return a function from x (N, ...) to its outputs (N, ...)."""

    def compiled(model):
        report = export_c(model, tmp_path / "net.c")
        library = tmp_path / "net.so"
        command = ["gcc", *STRICT, "-O1", "-fPIC", "-shared", report.source, "-o", str(library)]
        subprocess.run(command, check=True)
        graph, loaded = model.graph, ctypes.CDLL(str(library))

        def run(x):
            entry = loaded.net_run_image if x.dtype == np.uint8 else loaded.net_run
            outputs = [np.empty((len(x), *graph.values[name].shape), np.float32) for name in graph.outputs]
            for i in range(len(x)):
                rows = [np.ascontiguousarray(x[i]), *(output[i] for output in outputs)]
                entry(*(ctypes.c_void_p(row.ctypes.data) for row in rows))
            return outputs[0] if len(outputs) == 1 else outputs

        return run

    return compiled
