"""The table of parts in parts.md: what trains its rows, and what came out.

python docs/results/parts.py commands    # trains all, with $DATA, into runs/parts, and keeps the logs
python docs/results/parts.py             # writes the table of the logs into parts.md
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from front import filled

from bitfactor.study.statistics import Pooled, sample

FOLDER = Path(__file__).parent
LOGS, PAGE = FOLDER / "parts", FOLDER / "parts.md"
NETWORK = (
    "--blocks 2 2 2 --widths 32 64 128 --stem halving --scale learned --precision bfloat16 --channels-last"
)
BUDGET = "--steps 1560 --warmup-epochs 0.5 --holdout validation --seeds 3"
RATES = {"none": 0.008, "window": 0.004}
"""The best of each latent at this length (evidence.md)."""
ALL = "latents factors alphas weights rest"
VARIED = {
    "weight-transform": ["centred", "standardised", "clamped", "periodic"],
    "weight-estimator": ["annealed", "rms"],
    "activation-estimator": ["wide", "over_deviation", "annealed"],
    "activation": ["rprelu"],
    "gradient-floor": ["0.04"],
    "silent-decay": ["9e-4"],
    "freeze-flips": ["0.01"],
    "weight-decay": ["1e-4"],
    "schedule": ["linear"],
    "mixup": ["0.2"],
    "cutmix": ["1.0"],
    "label-smoothing": ["0.1"],
    "ema": ["0.999"],
}
"""The options, and the values that a part gives them; the baseline has none of these."""
OF_FREE_WEIGHTS = {"gradient-floor", "silent-decay", "freeze-flips"}
CLIPPED = "--weight-estimator clipped"
FIXED = {"weight-decay": f"{CLIPPED} --decayed {ALL}", "weight-transform": "--weight-estimator identity"}
BASELINE = "baseline"

Trainings = list[Mapping[str, Any]]


def commands() -> Iterator[str]:
    for option in (BASELINE, *VARIED):
        for latent, rate in RATES.items():
            if latent != "none" and option in OF_FREE_WEIGHTS:
                continue
            name = f"{option}-{latent}"
            varied = "" if option == BASELINE else f" --vary {option} {' '.join(VARIED[option])}"
            fixed = "" if "weight-estimator" in varied else f" {FIXED.get(option, CLIPPED)}"
            recipe = f"bitfactor ablate cifar10-resnet18 {NETWORK} {BUDGET}"
            row = f"--latent {latent} --learning-rate {rate}{fixed}{varied}"
            yield f'{recipe} {row} --data "$DATA" --out runs/parts/{name}'
            yield f"bitfactor report runs/parts/{name} --format parquet -o docs/results/parts/{name}.parquet"


def read(latent: str, folder: Path = LOGS) -> dict[tuple[str, str], Trainings]:
    """Return the trainings of each part that has a log, the baseline's first."""
    found: dict[tuple[str, str], Trainings] = {}
    for option in (BASELINE, *VARIED):
        path = folder / f"{option}-{latent}.parquet"
        for training in pq.read_table(path).to_pylist() if path.exists() else []:
            value = str((training["axes"] or {}).get(option.replace("-", "_"), ""))
            found.setdefault((option, value), []).append(training)
    return found


def table(logs: Mapping[str, Mapping[tuple[str, str], Trainings]]) -> str:
    """Return the accuracy of each part, what it adds to the baseline, and its seconds over the baseline's."""
    head = "| part | " + " | ".join(f"{latent} | points | time" for latent in logs) + " |"
    lines = [head, "| --- |" + " ---: | --- | ---: |" * len(logs)]
    columns = {latent: dict(_cells(latent, found)) for latent, found in logs.items()}
    for part in {part: None for found in columns.values() for part in found}:
        option, value = part
        name = BASELINE if option == BASELINE else f"`--{option} {value}`"
        cells = [columns[latent].get(part, "| |") for latent in logs]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(latent: str, found: Mapping[tuple[str, str], Trainings]) -> Iterator[tuple[tuple[str, str], str]]:
    rows = {part: {one["seed"]: _top1(one) for one in trainings} for part, trainings in found.items()}
    if (BASELINE, "") not in rows:
        return
    pooled, base = Pooled.over(list(rows.values())), rows[BASELINE, ""]
    seconds = {
        part: median(one["outcome"]["seconds"] for one in trainings) for part, trainings in found.items()
    }
    for part, values in rows.items():
        difference, _ = pooled.apart(values, base)
        log = f"[{sample(list(values.values()))}](parts/{part[0]}-{latent}.parquet)"
        apart = "" if part[0] == BASELINE else str(difference)
        yield part, f"{log} | {apart} | {seconds[part] / seconds[BASELINE, '']:.2f}"


def _top1(training: Mapping[str, Any]) -> float:
    return float(training["outcome"]["metrics"][training["outcome"]["headline"]])


def main() -> None:
    if sys.argv[1:] == ["commands"]:
        print(*commands(), sep="\n")
    else:
        PAGE.write_text(
            filled(PAGE.read_text(), {"parts": table({latent: read(latent) for latent in RATES})})
        )


if __name__ == "__main__":
    main()
