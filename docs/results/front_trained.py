"""The tables, verdicts and chart of front.md's networks trained here.

python docs/results/front_trained.py     # from front-{trained,mixed,photos}.json: `benchmarks/trained.py`
"""

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import mean

import numpy as np
from front import FOLDER, IMAGES, INK, PAGE, Point, chart, filled

from bitfactor.study.statistics import Difference, Pooled, sample, student

WEIGHTS = "1 bit", "mixed", "int8", "float32"


@dataclass(frozen=True)
class Trained:
    """A network with its weights in its fastest engine.

    `accuracies` are those of its `seeds`, {seed: fraction}; those of one seed are of images, {image: 0 or 1}.
    """

    width: int
    real_layers: int
    weights: str
    engine: str
    ms: float
    bytes: int
    seeds: int
    accuracies: Mapping[int, float]

    @property
    def name(self) -> str:
        return f"{self.real_layers} layers real" if self.weights == "mixed" else f"{self.width} channels"

    @property
    def top1(self) -> float:
        found = sample([*self.accuracies.values()])
        return 100 * found.mean if found else float("nan")

    def point(self) -> Point:
        return Point(
            self.name,
            self.weights.removesuffix("32"),
            self.engine,
            self.ms,
            self.ms,
            self.bytes,
            self.top1,
            own=True,
        )


def networks(results: Mapping) -> list[Trained]:
    """Return each network with its weights, in the engine that is fastest here; bytes are the least."""
    rows = defaultdict(list)
    for row in results["rows"]:
        rows[row["widths"][0], len(row["keep_real"]), row["weights"], row["engine"]].append(row)
    best: dict[tuple, Trained] = {}
    for (width, kept, weights, engine), found in rows.items():
        timed = next(row for row in found if "minimum_ms" in row)
        one = Trained(
            width,
            kept,
            weights,
            engine,
            timed["minimum_ms"],
            timed["bytes"],
            len(found),
            accuracies_of(found),
        )
        key = width, kept, weights
        if key not in best or one.ms < best[key].ms:
            best[key] = one
    for row in results["rows"]:
        key = row["widths"][0], len(row["keep_real"]), row["weights"]
        best[key] = replace(best[key], bytes=min(best[key].bytes, row["bytes"]))
    return sorted(best.values(), key=lambda one: (WEIGHTS.index(one.weights), one.ms))


def accuracies_of(rows: Sequence[Mapping]) -> dict[int, float]:
    """Return the accuracy of each seed, or of each image where there is one seed."""
    first = rows[0]
    if "right" in first:
        bits = np.frombuffer(b64decode(first["right"]), np.uint8)
        return dict(enumerate(np.unpackbits(bits, count=first["images"]).astype(float).tolist()))
    return {row["seed"]: row["accuracy"] for row in rows}


def above(some: Sequence[Trained], line: Sequence[Trained]) -> dict[str, Difference]:
    """Return how far each of some networks is above the line between others, at its latency, by its name.

    The difference is taken seed by seed, or image by image, and its deviation is pooled over the networks.
    Beyond the line's ends the nearest of the others counts.
    """
    ends = sorted(line, key=lambda other: other.ms)
    apart: dict[str, dict[int, float]] = {}
    for one in some:
        xs = [end.ms for end in ends]
        parts = [float(np.interp(one.ms, xs, unit)) for unit in np.eye(len(ends))]
        beside = [(end, part) for end, part in zip(ends, parts, strict=True) if part > 0]
        seeds = set(one.accuracies).intersection(*(end.accuracies for end, _ in beside))
        if not seeds:
            raise ValueError(f"{one.name}, {one.weights}: no seed in common with the line")
        apart[one.name] = {
            seed: one.accuracies[seed] - sum(part * end.accuracies[seed] for end, part in beside)
            for seed in sorted(seeds)
        }
    return {name: pooled(seeds, [*apart.values()]) for name, seeds in apart.items()}


def pooled(seeds: Mapping[int, float], all_: Sequence[Mapping[int, float]]) -> Difference:
    """Return the mean over `seeds` with its 95 % interval, by the deviation pooled over `all_`."""
    middle = mean(seeds.values())
    if all(len(one) == 1 for one in all_):
        return Difference(middle, None, None, 1)
    spread = Pooled.over(all_)
    half = student(spread.freedom) * spread.deviation / sqrt(len(seeds))
    return Difference(middle, middle - half, middle + half, len(seeds))


def table(found: Iterable[Trained], compared: Mapping[str, Difference]) -> str:
    """Return the table of networks, with the distance from the line where one is compared."""
    lines = [
        "| network | weights | engine | accuracy, % | seeds | kB | ms | from the line, points [95 %] |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        difference = compared.get(one.name) if one.weights in ("1 bit", "mixed") else None
        size = f"{one.bytes / 1e3:.0f}"
        accuracy = sample([*one.accuracies.values()]) if one.seeds > 1 else f"{one.top1:.2f}"
        lines.append(
            f"| {one.name} | {one.weights} | {one.engine} | {accuracy} | {one.seeds} | {size} | "
            f"{one.ms:.3f} | "
            f"{'' if difference is None else difference} |"
        )
    return "\n".join(lines)


def verdict(compared: Mapping[str, Difference], line: str) -> str:
    """Return what the rule of the plan says of each network; without an interval it decides nothing."""
    words = {1: "above", 0: "not decided beside", -1: "below"}
    return "\n".join(
        f"- {name}: **{words[one.sign]}** the line between {line}." for name, one in compared.items()
    )


def trained(results: Mapping) -> tuple[str, list[Trained]]:
    """Return the part on networks of one kind each, and these."""
    found = networks(results)
    line = [one for one in found if one.weights == "int8"]
    compared = above([one for one in found if one.weights == "1 bit"], line)
    return f"{table(found, compared)}\n\n{verdict(compared, 'the int8 networks')}", found


def mixed(results: Mapping) -> str:
    """Return the part on networks of both kinds of layers."""
    found = networks(results)
    line = [one for one in found if one.weights in ("1 bit", "int8")]
    compared = above([one for one in found if one.weights == "mixed"], line)
    return f"{table(found, compared)}\n\n{verdict(compared, 'int8 and 1 bit')}"


def about(results: Mapping) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in results["versions"].items())
    return f"Measured on {results['machine']}, {results['isa']}, one core; {versions}."


def read(name: str) -> dict:
    """Return the results of `front-NAME.json`."""
    return json.loads((FOLDER / f"front-{name}.json").read_text())  # type: ignore[no-any-return]


def parts() -> tuple[dict[str, str], list[Trained]]:
    """Return the parts of the page by their marks, and the networks of one kind each."""
    results = read("trained")
    text, found = trained(results)
    made = {"trained": f"{text}\n\n{about(results)}"}
    for name in ("mixed", "photos"):
        both = read(name)
        made[name] = f"{mixed(both)}\n\n{about(both)}"
    return made, found


def main() -> None:
    made, found = parts()
    PAGE.write_text(filled(PAGE.read_text(), made))
    drawn_points = [one.point() for one in found]
    tops = [one.top1 for one in drawn_points]
    for theme in INK:
        for name, label in (("ms", "milliseconds for one image"), ("bytes", "file, kB")):
            panels = {"": [(one, one.ms if name == "ms" else one.bytes / 1e3) for one in drawn_points]}
            drawn = chart(panels, label, theme, "accuracy on CIFAR-10, %", (min(tops) - 2, max(tops) + 2))
            (IMAGES / f"front-trained-{name}-{theme}.svg").write_text(drawn)


if __name__ == "__main__":
    main()
