"""A study with made-up numbers, finished, or trained by something that takes milliseconds."""

import json
import math
import time
from itertools import pairwise, product

from bitfactor.study import CellDirectory
from bitfactor.training import Trial

LATENTS, SCALES = ("none", "svd", "tucker", "holistic"), ("analytic", "learned")
EPOCHS = 6


def accuracy(latent, scale, seed, rate=0.001):
    """Accuracy of a training: four decimals, so that differences in it are exact enough to compare."""
    height = 0.50 + 0.01 * LATENTS.index(latent) + 0.02 * (scale == "learned")
    return round(height + 0.004 * seed + 0.03 * (rate > 0.001) * (latent == "none"), 4)


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def histogram(centre, width, bins=20, reach=3.0):
    edges = [-reach + 2 * reach * i / bins for i in range(bins + 1)]
    counts = [
        round(1000 * math.exp(-0.5 * (((a + b) / 2 - centre) / width) ** 2)) for a, b in pairwise(edges)
    ]
    return {"edges": edges, "counts": counts}


def layers(latent, scale):
    factors = {"none": 0, "svd": 2}.get(str(latent), 4)
    shared = (2, 3, 5) if latent == "holistic" else ()  # their factors stand with the layer before
    return {
        f"layer{i}.conv": {
            "alpha": histogram(0.1 * i, 0.1 if scale == "analytic" else 0.6),
            "weight": {**histogram(0, 0.3 * i), "below": i, "above": 2 * i},
            "outside": 0.01 * i,
            "std": 0.1 * i,
            "spectra": {f"factors.{k}": [2.0, 1.5, 1.0 / (k + 1)] for k in range(factors) if i not in shared},
        }
        for i in range(1, 6)
    }


def log(final, epochs=EPOCHS):
    return [
        {"epoch": e, "loss": 2 / e, "flipped": 0.01 / e, "accuracy": final * e / epochs, "seconds": 10.0}
        for e in range(1, epochs + 1)
    ]


def write_log(path, lines):
    (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_outcome(path, final, described, **changes):
    outcome = {
        "headline": "accuracy",
        "metrics": {"accuracy": final, "top5": round(final + 0.3, 4)},
        "seconds": 60.0,
        "cpu_seconds": 50.0,
        "epochs": EPOCHS,
        "bytes": 12_345,
        "host": "A processor",
    }
    write(path / "layers.json", described)
    write(path / "outcome.json", outcome | changes)


def add_cell(study, axes, seed, final, *, real=False, epochs=EPOCHS):
    """Write a training that reached `final`; with fewer epochs, one that is not finished."""
    kind = ["real"] if real else [axes["latent"], axes["scale"]]
    rate = [f"lr{axes['learning_rate']:g}"] if "learning_rate" in axes else []
    budget = [f"epochs={axes['epochs']}"] if "epochs" in axes else []
    path = study / "cells" / "-".join([*kind, f"seed{seed}", *rate, *budget])
    command = [
        "/usr/bin/python",
        "-m",
        "bitfactor",
        "train",
        "digits",
        "--latent",
        "none",
        "--data",
        "/data/x",
    ]
    write(
        path / "cell.json",
        {
            "axes": axes,
            "real": real,
            "seed": seed,
            "command": [*command, "--out", str(path), "--seed", str(seed)],
        },
    )
    write_log(path, log(final)[:epochs])
    if epochs == EPOCHS:
        write_outcome(path, final, {} if real else layers(axes["latent"], axes["scale"]))
    return path


def make_study(path, *, seeds=(0, 1, 2), rates=(), budgets=(), real=True, latents=LATENTS, scales=SCALES):
    """Write the directory of a finished study with made-up numbers."""
    axes = {"latent": list(latents), "scale": list(scales)} | (
        {"learning_rate": list(rates)} if rates else {}
    )
    axes |= {"epochs": list(budgets)} if budgets else {}
    record = {
        "recipe": "digits",
        "arguments": {"epochs": str(EPOCHS)},
        "axes": axes,
        "seeds": list(seeds),
        "real": real,
        "versions": {"bitfactor": "0.1.0"},
        "revision": "abc123",
        "machine": "A processor",
        "started": "2030-01-02T03:04:05+00:00",
    }
    write(path / "study.json", record)
    for seed in seeds:
        for rate, budget in product(rates or (None,), budgets or (None,)):
            at = {} if rate is None else {"learning_rate": rate}
            at |= {} if budget is None else {"epochs": budget}
            for latent in latents:
                for scale in scales:
                    final = accuracy(latent, scale, seed, rate or 0.001)
                    final += 0 if budget is None else 0.1 * budgets.index(budget)
                    add_cell(path, {"latent": latent, "scale": scale, **at}, seed, final)
            if real:
                add_cell(path, at, seed, 0.6 + 0.004 * seed, real=True)
    return path


def train_cell(path, settings, imports, data, threads, device):
    """Stand in for the training of a cell, in milliseconds: so much the better, the larger its rate is.

    At a rate of 1e-9 it waits after its first epoch for its end, unless it is resumed; one above 1 diverges.
    """
    cell, plan, binarization = CellDirectory(path), settings["optimization"], settings["binarization"]
    rate, resumed = plan["learning_rate"], cell.checkpoint.exists()
    if rate > 1:
        cell.give_up(diverged=True)
        return 2
    lines = log(min(0.5 + 10 * rate + 0.01 * plan["seed"], 0.9), plan["epochs"])
    if rate < 1e-8 and len(lines) > 1 and not resumed:
        cell.checkpoint.touch()
        write_log(path, lines[:1])
        time.sleep(60)
    print(said := "resuming from step 1" if resumed else "starting")
    with (path / "starts").open("a") as file:
        print(said, file=file)
    write(cell.recipe, {"settings": settings})
    write_log(path, lines)
    described = {} if settings["real"] else layers(binarization["latent"], binarization["scale"])
    kept = {"bytes": None} if settings["real"] else {}
    write_outcome(path, lines[-1]["accuracy"], described, epochs=plan["epochs"], resumed=resumed, **kept)
    return 0


def try_recipe(recipe, **_):
    """Stand in for the trial of a dry run."""
    plan = recipe.optimization
    steps = (plan.limit or 1_437) // plan.batch_size
    return Trial(
        None,
        "cpu",
        1,
        steps,
        plan.epochs,
        steps * plan.epochs,
        loss=2.0,
        seconds=1.0,
        evaluation=1.0,
        evaluations=1,
        memory=1,
        spread=(0.5, 2.0),
    )
