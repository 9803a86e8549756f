"""Install a wheel into an empty environment, where no compiler is found, and try what it gives.

python tests/wheel/try_wheel.py dist/bitfactor-....whl
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def try_wheel(wheel: Path) -> None:
    """Run commands.py by a Python that has the wheel, what its commands on files need, and nothing else."""
    with TemporaryDirectory() as name:
        subprocess.run([sys.executable, "-m", "venv", name], check=True)
        programs = Path(name) / ("Scripts" if os.name == "nt" else "bin")
        python = programs / "python"
        alone = {**os.environ, "PATH": str(programs)}  # a build would find no compiler
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--only-binary", ":all:", f"{wheel}[cli]"], check=True, env=alone)
        commands = Path(__file__).with_name("commands.py").resolve()
        subprocess.run([python, commands], check=True, env=alone, cwd=name)


if __name__ == "__main__":
    (wheel,) = map(Path, sys.argv[1:])
    try_wheel(wheel.resolve())
