import pytest

from bitfactor.cli import main


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
