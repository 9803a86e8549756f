"""What `pip install 'bitfactor[cli]'` gives: run by the Python of an environment that has nothing else.

python commands.py [PYTHON ...]

PYTHON is the command of another Python, on an emulator say.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PYTHON = sys.argv[1:] or [sys.executable]


def bitfactor(*arguments: str, status: int = 0) -> str:
    """Run a command and return what it printed, or what it refused."""
    command = [*PYTHON, "-m", "bitfactor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stderr if status else done.stdout


def main() -> None:
    """Try each command that needs no torch, and one that does."""
    missing = subprocess.run([*PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode
    assert missing, "expected an environment without torch"
    with TemporaryDirectory() as name:
        folder = Path(name)
        image = folder / "white.pgm"
        image.write_bytes(b"P5 8 8 255\n" + b"\xff" * 64)
        assert "digits" in bitfactor("zoo")
        assert "bitfactor train needs" in bitfactor("doctor")
        assert "_shtab_bitfactor" in bitfactor("completion", "bash")
        assert "binary_conv" in bitfactor("inspect", "digits")
        assert "conv" in bitfactor("inspect", "digits", "--program")
        assert "white.pgm" in bitfactor("predict", "digits", str(image))
        assert "bitfactor" in bitfactor("bench", "digits", "--runs", "3")
        for command, target in (("export", "net.c"), ("freeze", "net.bfp"), ("page", "site")):
            bitfactor(command, "digits", "-o", str(folder / target))
            assert (folder / target).exists()
        refusal = bitfactor("train", "digits", "--out", str(folder / "run"), status=2)
        assert "pip install 'bitfactor[train]'" in refusal, refusal
    print("all commands of a plain install run")


if __name__ == "__main__":
    main()
