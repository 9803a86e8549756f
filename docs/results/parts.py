"""The table of parts in parts.md: what trains its rows, and what came out.

python docs/results/parts.py commands    # trains all, with $DATA, into runs/parts, and keeps the logs
python docs/results/parts.py modern      # the same for the rows of `modern`
python docs/results/parts.py times DIR   # times steps of all in turns, on one core, into parts/times.json
python docs/results/parts.py times DIR modern    # of the baseline and `modern` alone
python docs/results/parts.py             # writes the tables of the logs and times into parts.md
"""

import json
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch
from front import filled
from rich.progress import track

from bitfactor.common.files import write_json
from bitfactor.common.machine import cpu_name
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import value_of, with_options
from bitfactor.study.statistics import Pooled, sample
from bitfactor.training.recipe import prepare
from bitfactor.training.step import Stepper

FOLDER = Path(__file__).parent
LOGS, PAGE, TIMES = FOLDER / "parts", FOLDER / "parts.md", FOLDER / "parts/times.json"
RECIPE = "cifar10-resnet18"
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
    "silent-decay": ["0.0009"],
    "freeze-flips": ["0.01"],
    "weight-decay": ["0.0001"],
    "schedule": ["linear"],
    "mixup": ["0.2"],
    "cutmix": ["1"],
    "label-smoothing": ["0.1"],
    "ema": ["0.999"],
}
"""The options, and the values that a part gives them; the baseline has none of these."""
MODERN = {
    "weight-estimator": "annealed",
    "activation-estimator": "wide",
    "schedule": "linear",
    "ema": "0.999",
}
"""The parts that begin in `modern`: those that gain for certain with a free weight, and are cheap."""
LONG, STEPS_OF_BASELINE = "--warmup-epochs 1 --holdout validation --seeds 3", 7020
LEFT = {name: value for name, value in MODERN.items() if name != "ema"}
"""What is left of them after the trainings without each."""
EQUAL_TIME = "equal-time"
OF_FREE_WEIGHTS = {"gradient-floor", "silent-decay", "freeze-flips"}
CLIPPED = "--weight-estimator clipped"
FIXED = {"weight-decay": f"{CLIPPED} --decayed {ALL}", "weight-transform": "--weight-estimator identity"}
BASELINE = "baseline"

Trainings = list[Mapping[str, Any]]


def _fixed(option: str) -> str:
    return "" if option == "weight-estimator" else FIXED.get(option, CLIPPED)


def commands() -> Iterator[str]:
    for option in (BASELINE, *VARIED):
        for latent, rate in RATES.items():
            if latent != "none" and option in OF_FREE_WEIGHTS:
                continue
            name = f"{option}-{latent}"
            varied = "" if option == BASELINE else f" --vary {option} {' '.join(VARIED[option])}"
            recipe = f"bitfactor ablate {RECIPE} {NETWORK} {BUDGET}"
            row = f"--latent {latent} --learning-rate {rate} {_fixed(option)}".rstrip() + varied
            yield f'{recipe} {row} --data "$DATA" --out runs/parts/{name}'
            yield f"bitfactor report runs/parts/{name} --format parquet -o docs/results/parts/{name}.parquet"


def rows_of_modern() -> Iterator[tuple[str, list[str]]]:
    """The names of its rows with their parts: the baseline, all, all without each, and what is left."""
    yield BASELINE, []
    yield "modern", [*MODERN]
    for left_out in MODERN:
        yield f"without-{left_out}", [part for part in MODERN if part != left_out]
    yield EQUAL_TIME, [*LEFT]


def commands_of_modern() -> Iterator[str]:
    ratio = read_times().get("none", {}).get("modern", 1.0)
    for name, parts in rows_of_modern():
        options = " ".join(f"--{part} {MODERN[part]}" for part in parts)
        estimator = "" if "weight-estimator" in parts else CLIPPED
        steps = round(STEPS_OF_BASELINE / ratio) if name == EQUAL_TIME else STEPS_OF_BASELINE
        recipe = f"bitfactor ablate {RECIPE} {NETWORK} --steps {steps} {LONG} --latent none"
        row = " ".join(f"{recipe} --learning-rate 0.004 {estimator} {options}".split())
        yield f'{row} --data "$DATA" --out runs/parts/modern-{name}'
        kept = f"docs/results/parts/modern-{name}.parquet"
        yield f"bitfactor report runs/parts/modern-{name} --format parquet -o {kept}"


def table_of_modern(folder: Path = LOGS) -> str:
    """Return the accuracy of each row that has a log, and what it has over the baseline and `modern`."""
    paths = {name: folder / f"modern-{name}.parquet" for name, _ in rows_of_modern()}
    logs = {name: pq.read_table(path).to_pylist() for name, path in paths.items() if path.exists()}
    lines = ["| parts | accuracy | over the baseline | over all parts |", "| --- | ---: | --- | --- |"]
    rows = {name: _by_seed(trainings) for name, trainings in logs.items()}
    pooled = Pooled.over(list(rows.values())) if rows else None
    for name, values in rows.items():
        others = [rows.get(other) if other != name else None for other in (BASELINE, "modern")]
        apart = [str(pooled.apart(values, other)[0]) if pooled and other else "" for other in others]
        known = {BASELINE: "none of them", "modern": "all", EQUAL_TIME: "what is left, at equal time"}
        title = known.get(name, f"`--{name.removeprefix('without-')}`")
        words = f"all without {title}" if name.startswith("without-") else title
        log = f"[{sample(list(values.values()))}](parts/modern-{name}.parquet)"
        lines.append(f"| {words} | {log} | " + " | ".join(apart) + " |")
    return "\n".join(lines)


TURNS, STEPS = 7, 8


def times(data: Path, only: Collection[str] = ()) -> dict[str, dict[str, float]]:
    """Return what a step takes over the baseline's, by latent and part: medians over turns."""
    torch.set_num_threads(1)
    known = {
        (latent, f"{option} {value}".strip()): options_of(latent, option, value)
        for latent in RATES
        for option, values in {BASELINE: [""], **VARIED}.items()
        if latent == "none" or option not in OF_FREE_WEIGHTS
        for value in values
    }
    left = {name.replace("-", "_"): value_of(value) for name, value in LEFT.items()}
    known["none", "modern"] = known["none", BASELINE] | left
    known = {name: options for name, options in known.items() if not only or name[1] in (BASELINE, *only)}
    experiments = {
        part: prepare(with_options(recipe_named(RECIPE), options), data, "cpu")
        for part, options in known.items()
    }
    steppers = {part: Stepper(experiment) for part, experiment in experiments.items()}
    images = next(iter(experiments.values())).data.train_batches(128, 0, 0)
    batches = [*islice(images, STEPS)]
    turns = []
    for turn in track(range(TURNS + 1)):
        seconds = {}
        for part, stepper in steppers.items():
            began = time.perf_counter()
            for i, batch in enumerate(batches):
                stepper.loss_of(*batch, turn * STEPS + i)
                stepper.update()
            seconds[part] = time.perf_counter() - began
        turns.append(seconds)
    found: dict[str, dict[str, float]] = {latent: {} for latent in RATES}
    for latent, part in steppers:
        ratios = [one[latent, part] / one[latent, BASELINE] for one in turns[1:]]
        found[latent][part] = round(median(ratios), 3)
    return found


def options_of(latent: str, option: str, value: str) -> dict[str, Any]:
    """Return the options of a part as Python takes them, from the words of its command."""
    fixed = CLIPPED if option == BASELINE else _fixed(option)
    words = f"{NETWORK} {BUDGET} --latent {latent} --learning-rate {RATES[latent]} {fixed}"
    named = (word.split() for word in words.split("--") if word.strip())
    found = {name.replace("-", "_"): value_of(values) if values else True for name, *values in named}
    found |= {} if option == BASELINE else {option.replace("-", "_"): value_of(value)}
    del found["seeds"]
    return found


def read(latent: str, folder: Path = LOGS) -> dict[tuple[str, str], Trainings]:
    """Return the trainings of each part that has a log, the baseline's first."""
    found: dict[tuple[str, str], Trainings] = {}
    for option in (BASELINE, *VARIED):
        path = folder / f"{option}-{latent}.parquet"
        for training in pq.read_table(path).to_pylist() if path.exists() else []:
            value = str((training["axes"] or {}).get(option.replace("-", "_"), ""))
            found.setdefault((option, value), []).append(training)
    return found


def read_times() -> Mapping[str, Mapping[str, float]]:
    """Return what `times` wrote; nothing before it did."""
    return json.loads(TIMES.read_text())["ratios"] if TIMES.exists() else {}


def table(
    logs: Mapping[str, Mapping[tuple[str, str], Trainings]], timed: Mapping[str, Mapping[str, float]]
) -> str:
    """Return the accuracy of each part, what it adds to the baseline, and its step over the baseline's."""
    head = "| part | " + " | ".join(f"{latent} | points | time" for latent in logs) + " |"
    lines = [head, "| --- |" + " ---: | --- | ---: |" * len(logs)]
    columns = {latent: dict(_cells(latent, found, timed.get(latent, {}))) for latent, found in logs.items()}
    for part in {part: None for found in columns.values() for part in found}:
        option, value = part
        name = BASELINE if option == BASELINE else f"`--{option} {value}`"
        cells = [columns[latent].get(part, "| |") for latent in logs]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(
    latent: str, found: Mapping[tuple[str, str], Trainings], timed: Mapping[str, float]
) -> Iterator[tuple[tuple[str, str], str]]:
    rows = {part: _by_seed(trainings) for part, trainings in found.items()}
    if (BASELINE, "") not in rows:
        return
    pooled, base = Pooled.over(list(rows.values())), rows[BASELINE, ""]
    for part, values in rows.items():
        difference, _ = pooled.apart(values, base)
        log = f"[{sample(list(values.values()))}](parts/{part[0]}-{latent}.parquet)"
        apart = "" if part[0] == BASELINE else str(difference)
        ratio = timed.get(" ".join(part).strip())
        yield part, f"{log} | {apart} | {'' if ratio is None else f'{ratio:.2f}'}"


def _by_seed(trainings: Trainings) -> dict[int, float]:
    outcomes = {one["seed"]: one["outcome"] for one in trainings}
    return {seed: float(outcome["metrics"][outcome["headline"]]) for seed, outcome in outcomes.items()}


def main() -> None:
    if sys.argv[1:] in (["commands"], ["modern"]):
        print(*(commands() if sys.argv[1] == "commands" else commands_of_modern()), sep="\n")
    elif sys.argv[1:2] == ["times"]:
        measured = times(Path(sys.argv[2]), sys.argv[3:])
        ratios = {latent: {**read_times().get(latent, {}), **of} for latent, of in measured.items()}
        write_json(TIMES, {"machine": cpu_name(), "torch": torch.__version__, "ratios": ratios})
    else:
        found = table({latent: read(latent) for latent in RATES}, read_times())
        PAGE.write_text(filled(PAGE.read_text(), {"parts": found, "modern": table_of_modern()}))


if __name__ == "__main__":
    main()
