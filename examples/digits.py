"""Train, export and run a binary network on real digits, from scratch: what `make demo` does.

python examples/digits.py OUT [flags of `bitfactor train`]
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from bitfactor.cli import main
from bitfactor.cli.output import print_table


def bitfactor(*arguments: object) -> str:
    """Run a command, show it, and return what it prints."""
    words = [str(argument) for argument in arguments]
    print("$ bitfactor", *words, file=sys.stderr)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main(words)
    if status:
        sys.exit(status)
    return output.getvalue()


def measured(*arguments: object) -> dict[str, Any]:
    """Run a command with --json and return its figures."""
    return json.loads(bitfactor(*arguments, "--json"))  # type: ignore[no-any-return]


def run(out: Path, *flags: str) -> None:
    """Do the whole job in the directory `out` and print the outcome."""
    file, page = out / "digits.safetensors", out / "report.html"
    bitfactor("train", "digits", "--out", out, *flags)
    exported = measured("export", out, "-o", file)
    in_torch, from_file = measured("evaluate", out), measured("evaluate", file)
    times = {engine["name"]: engine for engine in measured("bench", file, "--against", "torch")["engines"]}
    bitfactor("report", out, "-o", page)

    same = sum(a == b for a, b in zip(in_torch["predictions"], from_file["predictions"], strict=True))
    rows = [
        ("accuracy in torch", f"{in_torch['accuracy']:.2%}"),
        ("accuracy from the file", f"{from_file['accuracy']:.2%}"),
        ("same prediction", f"{same} of {in_torch['total']}"),
        ("bytes as a float network", f"{exported['float_bytes']:,}"),
        ("bytes of the file", f"{exported['file_bytes']:,}"),
        *((f"time per picture, {name}", f"{engine['median_ms']:.3f} ms") for name, engine in times.items()),
        ("report", str(page)),
    ]
    print_table(("held-out digits", ""), rows)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    run(Path(sys.argv[1]), *sys.argv[2:])
