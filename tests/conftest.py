import os
from pathlib import Path

import pytest
from hypothesis import settings

from bitfactor.cli import main

# How long an example takes is the machine's affair. The default draws the same examples every time and keeps
# none; `make test-random` draws afresh.
settings.register_profile("default", deadline=None, derandomize=True, database=None)
settings.register_profile("random", deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The directory of a short training run."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["train", "digits", "--out", str(path), "--epochs", "2", "--learning-rate", "0.005"]) == 0
    return path


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory):
    """What `bitfactor export` wrote of that run."""
    path = tmp_path_factory.mktemp("exported") / "digits.safetensors"
    assert main(["export", str(run), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def real_data():
    """The directory of real data; the test is skipped where there is none."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("BITFACTOR_DATA", beside))
    if not path.is_dir():
        pytest.skip("no real data; BITFACTOR_DATA names their directory")
    return path
