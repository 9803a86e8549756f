"""Train, export and run a binary network on real digits, from scratch: what `make demo` does.

python examples/digits.py OUT [EPOCHS]
"""

import sys
from pathlib import Path

import bitfactor
from bitfactor.common.result import text_table


def run(out: Path, **options: int) -> None:
    """Do the whole job in the directory `out` and print the outcome."""
    trained = bitfactor.train("digits", out=out, **options)
    file = out / "digits.safetensors"
    exported = trained.export(file)
    in_torch, from_file = trained.evaluate(), bitfactor.evaluate(file)
    timed = bitfactor.bench(file, against=("torch",))
    page = trained.report(out / "report.html")

    same = int((in_torch.found == from_file.found).sum())
    rows = [
        ("accuracy in torch", f"{in_torch.accuracy:.2%}"),
        ("accuracy from the file", f"{from_file.accuracy:.2%}"),
        ("same prediction", f"{same} of {len(in_torch.found)}"),
        ("bytes as a float network", f"{exported.float_bytes:,}"),
        ("bytes of the file", f"{exported.file_bytes:,}"),
        *((f"time per image, {one['name']}", f"{one['median_ms']:.3f} ms") for one in timed.engines),
        ("report", str(page)),
    ]
    print(text_table(("test set", ""), rows, right=frozenset({1})))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    run(Path(sys.argv[1]), **({"epochs": int(sys.argv[2])} if len(sys.argv) > 2 else {}))
