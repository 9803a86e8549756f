"""How long it takes to start: the command's help, the package, and what a training imports.

    python benchmarks/starting.py [--rounds 7] [--json]

Each is a new process of Python; reported is the minimum of the rounds, in seconds, beside the most that it
may be. Of `import bitfactor.api.train`, what torch takes is told apart, and what is imported though only
pages need it.
"""

import argparse
import json
import subprocess
import sys
import time

STARTS = {
    "bitfactor --help": (["-m", "bitfactor", "--help"], 0.3),
    "import bitfactor": (["-c", "import bitfactor"], 0.1),
    "import torch": (["-c", "import torch"], None),
    "import bitfactor.api.train": (["-c", "import bitfactor.api.train"], None),
}
_LATER = ("matplotlib", "jinja2", "tensorboard", "onnx", "pyarrow")


def seconds(arguments: list[str], rounds: int) -> float:
    """Return the least time of a process, as that of one that does nothing is part of it."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return min(times)


def imported_early() -> list[str]:
    """Return the packages for pages and exports that a training imports."""
    code = f"import sys, bitfactor.api.train; print(*(m for m in {_LATER} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: seconds(arguments, options.rounds) for name, (arguments, _) in STARTS.items()}
    early = imported_early()
    if options.json:
        print(json.dumps({"seconds": found, "imported_early": early}, indent=2))
        return
    for name, (_, most) in STARTS.items():
        print(f"{name:28} {found[name]:6.2f} s" + (f"   at most {most} s" if most else ""))
    print(f"imported by a training though it is for pages: {', '.join(early) or 'nothing'}")


if __name__ == "__main__":
    main()
