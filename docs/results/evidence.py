"""The study of evidence.md from its logs: prints its tables, draws what lies over a free weight.

python docs/results/evidence.py [LOG]

With the name of a log, test-window-7020 say, it prints the commands that train it again.
"""

import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
import pyarrow.parquet as pq
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import ttest_rel

from bitfactor.common.files import run_file
from bitfactor.decompositions import class_of
from bitfactor.study.figures import STYLE, look_of, svg
from bitfactor.study.statistics import Difference, Pooled, holm, paired, points, sample
from bitfactor.training.recipe import without_effect

LOGS = Path(__file__).parent / "evidence"
FIGURE = Path(__file__).parents[1] / "images" / "evidence.svg"
SMALL, WIDE, POSE = "CIFAR-10, top-1", "CIFAR-10, 16 times the weights, top-1", "Leeds Sports Pose, PCK@0.2"
_LOGS = {
    SMALL: (
        "test",
        {
            240: "plain rank product frozen cosine tt window",
            1560: (
                "plain rank product frozen cosine tt window rms-none rms-tucker rms-holistic alpha-none "
                "alpha-holistic"
            ),
            7020: (
                "none tucker holistic rank cosine window window-still window-taps rms-tucker rms-holistic "
                "alpha-none"
            ),
            23400: "last-none last-window last-still",
        },
    ),
    WIDE: ("wide-test", {7020: "none window"}),
    POSE: (
        "lsp",
        {
            240: "test test-rank test-tucker test-cosine test-tt test-window",
            1500: (
                "test-none test-tucker test-holistic test-rank test-cosine test-tt test-window "
                "test-rms-none test-rms-tucker test-rms-holistic test-rms-window"
            ),
            7000: (
                "test-none test-rank test-window test-rms-none test-rms-tucker test-rms-holistic "
                "test-rms-window gpu-none gpu-cosine"
            ),
        },
    ),
}
STUDIES: dict[str, dict[int, tuple[str, ...]]] = {
    title: {steps: tuple(f"{prefix}-{log}-{steps}" for log in logs.split()) for steps, logs in of.items()}
    for title, (prefix, of) in _LOGS.items()
}
"""The logs of each number of steps, for each network."""
TABLES = {"CIFAR-10": (SMALL, WIDE), "Leeds Sports Pose": (POSE,)}
"""The head tables, and the studies whose columns each has."""
SMALLEST = {SMALL: 0.005, WIDE: 0.005, POSE: 0.01}
"""The smallest difference of interest, written down before the tests."""
COST = {"Tucker": 1.08, "holistic": 1.07, "cosine": 1.03, "window": 1.03}
"""Time of a step over a free weight's, one core of a CPU (the table "Cost" of evidence.md)."""
COST_ON_GPU = {"window": 1.21}
"""The same on a GPU, 16 trainings at a time."""
ON_GPU = (WIDE,)
WORTH = {"CPU": 1.03, "GPU, 16 at a time": 1.21, "GPU, one at a time": 1.40}
"""Time of window's step over a free weight's, by machine."""
NAMES = {"tucker": "Tucker", "svd": "SVD", "tt": "tensor train"}
ENDINGS = {"identity": "taps", "rms": "rms"}
"""What a row's name ends in, by what its command has."""
PRIMARY = (
    ("Tucker", "none"),
    ("holistic", "Tucker"),
    ("holistic", "none"),
    ("holistic, 1/rank", "none"),
)
CONTROLS = ("product, 1/rank", "Tucker, frozen")
VARIANTS = (
    ("cosine", "holistic, 1/rank"),
    ("tensor train, 1/rank", "holistic, 1/rank"),
    ("tensor train, 1/rank", "cosine"),
    ("window, 1/rank", "cosine"),
    ("window, 1/rank", "holistic, 1/rank"),
    ("window, 1/rank", "tensor train, 1/rank"),
)
ROWS = (
    "Tucker",
    "Tucker, rms",
    "holistic",
    "holistic, rms",
    "Tucker, 1/rank",
    "holistic, 1/rank",
    "cosine",
    "cosine, on a GPU",
    "tensor train, 1/rank",
    "window, 1/rank",
    "window, 1/rank, rms",
    "window, frozen",
    "window, frozen, taps",
    "none, analytic, rms",
    "holistic, analytic, 1/rank, rms",
)
"""The rows of the head tables and of the figure."""
MECHANISM = (
    ("window, frozen", "window, 1/rank", "the basis need not learn", "the basis has to learn"),
    ("window, frozen, taps", "none", "the layer-wise rate does nothing", ""),
)
"""What each comparison of the plan for window's mechanism decides: within `ALIKE`, and wholly below 0."""
ALIKE = 0.003
ALPHAS = {
    "none": {
        "learned": "test-rms-none-1560",
        "analytic": "test-alpha-none-1560",
        "analytic, detached": "test-alpha-none-detached-1560",
    },
    "holistic": {
        "learned": "test-rank-1560",
        "analytic": "test-alpha-holistic-1560",
        "analytic, detached": "test-alpha-holistic-detached-1560",
    },
}
"""The logs of each alpha, at the estimator and rate that are best for it on validation images."""
LONGER = {"learned": "test-none-7020", "analytic": "test-alpha-none-7020"}
"""The same of a free weight after 7,020 steps."""
LONG = 7_000
"""The least steps of a column that has one at equal time."""
LASTING = 23_400
"""Whether the lead lasts is seen after so many steps."""
TIMED = 1.04
"""Time of window's step there over a free weight's, timed in turns (training.md)."""

DRAFTS = {
    "bases.py": (
        "early",
        "taps_unit",
        "turned",
        "turned_channels",
        "turned_window",
        "window_cosines",
        "window_own",
        "window_own_unit",
        "window_unit",
    ),
    "wspace.py": ("tucker_wspace",),
}
"""The files beside this one that have latents of the logs."""

Values = dict[int, float]
"""The headline of each seed."""
Rows = Mapping[str, Values]
Studies = Mapping[int, Rows]
"""The rows after each number of steps."""


def read() -> dict[str, Studies]:
    return {title: {steps: rows(logs) for steps, logs in of.items()} for title, of in STUDIES.items()}


def rows(logs: tuple[str, ...]) -> dict[str, Values]:
    """Return the seeds of each row, {"Tucker, 1/rank": {0: 0.5, ...}}."""
    found: dict[str, Values] = {}
    for log in logs:
        for training in pq.read_table(LOGS / f"{log}.parquet").to_pylist():
            outcome = training["outcome"]
            name = _name(training) + (", on a GPU" if "-gpu-" in log else "")
            found.setdefault(name, {})[training["seed"]] = outcome["metrics"][outcome["headline"]]
    return dict(sorted(found.items(), key=lambda row: (not _is_free(row[0]), row[0].count(","), row[0])))


def _name(training: Mapping[str, Any]) -> str:
    axes, command = training["axes"], training["command"]
    latent = axes["latent"].removesuffix("_unit")  # window's name while it was a draft
    name: str = NAMES.get(latent, latent)
    if axes["scale"] != "learned":
        name += f", {axes['scale']}"
    if class_of(latent).takes:
        named = "--factor-rate" in command
        rate = command[command.index("--factor-rate") + 1] if named else _factor_rate(training)
        name += {"0": ", frozen", "1": ""}.get(rate, f", {rate}")
    return name + "".join(f", {word}" for flag, word in ENDINGS.items() if flag in command)


def _factor_rate(training: Mapping[str, Any]) -> str:
    """Return the recipes' default when a log was made: 1 in version 0.1.0, 1/rank since."""
    version = (training["outcome"] or {}).get("versions", {}).get("bitfactor")
    return "1/rank" if version == "0.2.0" else "1"


def _is_free(name: str) -> bool:
    return name.split(",")[0] == "none"


def replayed(training: Mapping[str, Any]) -> list[str]:
    """Return the words that train a logged training again today.

    The file of a draft is named by `--import`. Where a log does not name the rate of the factors, or the
    estimator of CIFAR's recipe, it is that of then. A flag that means nothing to the row, which was taken
    then, is left out.
    """
    command = training["command"]
    latent = command[command.index("--latent") + 1]
    files = [Path(__file__).parent / file for file, names in DRAFTS.items() if latent in names]
    imports = [word for file in files for word in ("--import", f"docs/results/{file.name}")]
    for file in files:
        run_file(file)
    words = command[1:]
    idle = without_effect(latent, command[command.index("--scale") + 1])
    for flag in (f"--{name.replace('_', '-')}" for name in idle):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    if "factor_rate" not in idle and "--factor-rate" not in words:
        words[2:2] = ["--factor-rate", _factor_rate(training)]
    if words[1].startswith("cifar10") and "--weight-estimator" not in words:
        words[2:2] = ["--weight-estimator", "clipped"]
    return ["bitfactor", *imports, *words]


@dataclass(frozen=True)
class Column:
    """What the rows are over the best free weight of a network, after so many steps.

    `over` has the 95 % interval of the deviation that is pooled over all rows of the column, `chances` the p
    of the same test, `equal_time` what is left over a free weight that is given the row's time.
    """

    title: str
    steps: int
    free: str
    over: dict[str, Difference]
    chances: dict[str, float]
    half: float
    equal_time: dict[str, float]


def columns(data: Mapping[str, Studies]) -> list[Column]:
    """Return the columns of the head tables."""
    return [_column(data, title, steps) for title, of in data.items() for steps in of]


def _head(of: Rows, *, analytic: bool = True) -> Rows:
    shown = {name: one for name, one in of.items() if name in ROWS or _learned_free(name)}
    return {name: one for name, one in shown.items() if analytic or "analytic" not in name}


def _column(data: Mapping[str, Studies], title: str, steps: int) -> Column:
    of = _head(data[title][steps])
    free = best_free(of)
    pooled = Pooled.over(list(of.values()))
    over, chances = {}, {}
    for name in filter(of.__contains__, ROWS):
        over[name], chances[name] = pooled.apart(of[name], of[free])
    half = max((one.high or 0) - one.mean for one in over.values())
    return Column(title, steps, free, over, chances, half, _at_equal_time(data, title, steps))


def _learned_free(name: str) -> bool:
    return _is_free(name) and "analytic" not in name


def best_free(of: Rows) -> str:
    """Return the free weight, with a learned alpha, that has the highest mean."""
    return max(filter(_learned_free, of), key=lambda name: mean(of[name].values()))


def _at_equal_time(data: Mapping[str, Studies], title: str, steps: int) -> dict[str, float]:
    """Return each row's lead at its own time, of long trainings, on their machine."""
    if steps < LONG:
        return {}
    curve, cost = learning_curve(data, title), COST_ON_GPU if title in ON_GPU else COST
    of = {name: one for name, one in data[title][steps].items() if name in ROWS and ", on a GPU" not in name}
    times = {name: cost.get(name.split(",")[0]) for name in of}
    if (title, steps) == (SMALL, LASTING):
        times = {name: _own_cost(name, "none") for name in of}
    return {
        name: mean(of[name].values()) - 1 + curve.error(steps * time) for name, time in times.items() if time
    }


@dataclass(frozen=True)
class Curve:
    """The free weight's error by steps of training: a line on logarithmic axes through what was trained.

    Beyond either end the next piece goes on.
    """

    errors: dict[int, float]

    def error(self, steps: float) -> float:
        pairs = list(pairwise(sorted(self.errors)))
        a, b = next((pair for pair in pairs if steps <= pair[1]), pairs[-1])
        return float(self.errors[a] * (steps / a) ** self._slope(a, b))

    def steps(self, error: float) -> float:
        pairs = list(pairwise(sorted(self.errors)))
        a, b = next((pair for pair in pairs if error >= self.errors[pair[1]]), pairs[-1])
        return float(a * (error / self.errors[a]) ** (1 / self._slope(a, b)))

    def _slope(self, a: int, b: int) -> float:
        return math.log(self.errors[b] / self.errors[a]) / math.log(b / a)


def learning_curve(data: Mapping[str, Studies], title: str) -> Curve:
    """Return the best free weight's curve; the wide network's is the small one's, through its one point."""
    small = _errors(data[SMALL if title == WIDE else title])
    (last, error), *_ = sorted(_errors(data[title]).items(), reverse=True)
    return Curve({steps: one * error / small[last] for steps, one in small.items()})


def _errors(of: Studies) -> dict[int, float]:
    return {steps: 1 - mean(one[best_free(one)].values()) for steps, one in of.items()}


def glance(found: list[Column]) -> dict[str, str]:
    """Return the head tables in Markdown; bold is certain by Holm over all cells of all tables.

    A triangle: the whole interval is beyond the smallest difference of interest. =: all of it is within.
    """
    certain = holm({_key(of, name): p for of in found for name, p in of.chances.items()})
    return {
        title: _table([of for of in found if of.title in studies], certain)
        for title, studies in TABLES.items()
    }


def _key(of: Column, name: str) -> str:
    return f"{of.title}, {of.steps}, {name}"


def _table(found: list[Column], certain: set[str]) -> str:
    names = [name for name in ROWS if any(name in of.over for of in found)]
    lines = [["points"], ["---"], *([name] for name in names), ["interval, half"]]
    for of in found:
        cells = [_cell(of, name, _key(of, name) in certain) for name in names]
        wide = "wide, " if of.title == WIDE else ""
        _add(lines, [f"{wide}{of.steps:,}", "---:", *cells, f"{100 * of.half:.2f}"])
        if of.equal_time:
            cells = [points(of.equal_time[name]) if name in of.equal_time else "" for name in names]
            _add(lines, ["equal time", "---:", *cells, ""])
    return _markdown(lines)


def _add(lines: list[list[str]], column: list[str]) -> None:
    for line, cell in zip(lines, column, strict=True):
        line.append(cell)


def _markdown(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(of: Column, name: str, certain: bool) -> str:
    if name not in of.over:
        return ""
    one, least = of.over[name], SMALLEST[of.title]
    low, high = one.low or 0.0, one.high or 0.0
    mark = " ▲" if low > least else " ▼" if high < -least else " =" if -least < low and high < least else ""
    return f"**{points(one.mean)}**{mark}" if certain else points(one.mean) + mark


def worth(data: Mapping[str, Studies], found: list[Column]) -> str:
    """Return what window's lead is worth in steps of the free weight, and at equal time, in Markdown."""
    lines = [["network, steps", "lead", "steps", *(f"{name}, {cost:.2f}" for name, cost in WORTH.items())]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for of in found:
        name = max((one for one in of.over if one.startswith("window")), key=lambda one: of.over[one].mean)
        score, curve = mean(data[of.title][of.steps][name].values()), learning_curve(data, of.title)
        left = [points(score - 1 + curve.error(of.steps * cost)) for cost in WORTH.values()]
        times = f"{curve.steps(1 - score) / of.steps:.2f}x"
        network = of.title.rsplit(",", 1)[0]
        lines.append([f"{network}, {of.steps:,}", points(of.over[name].mean), times, *left])
    return _markdown(lines)


def free_weights(data: Mapping[str, Studies], found: list[Column]) -> str:
    """Return the free weights of each column, the best first, in Markdown."""
    lines = [["network, steps", "best free weight", "others"], ["---", "---", "---"]]
    for of in found:
        values = {name: one for name, one in data[of.title][of.steps].items() if _learned_free(name)}
        names = sorted(values, key=lambda name: name != of.free)
        told = [f"{name} {sample(list(values[name].values()))}" for name in names]
        lines.append([f"{of.title.rsplit(',', 1)[0]}, {of.steps:,}", told[0], "; ".join(told[1:])])
    return _markdown(lines)


def mechanism(data: Mapping[str, Studies]) -> str:
    """Return what decides whether window's basis has to learn, and what its rate of each layer does."""
    of = _head(data[SMALL][7020], analytic=False)
    pooled = Pooled.over(list(of.values()))
    lines = [["comparison", "points", "verdict"], ["---", "---", "---"]]
    for ours, theirs, alike, below in MECHANISM:
        one, _ = pooled.apart(of[ours], of[theirs])
        low, high = one.low or 0.0, one.high or 0.0
        verdict = alike if low > -ALIKE and high < ALIKE else below if below and high < 0 else "undecided"
        lines.append([f"{ours} over {theirs}", str(one), verdict])
    return _markdown(lines)


def alphas() -> str:
    """Return what decides whether learned alpha is better than the analytic one, in Markdown."""
    of = {
        latent: {
            alpha: next(one for name, one in rows((log,)).items() if name.split(",")[0] == latent)
            for alpha, log in logs.items()
        }
        for latent, logs in ALPHAS.items()
    }
    pooled = Pooled.over([one for found in of.values() for one in found.values()])
    first, *others = next(iter(of.values()))
    apart = {
        (latent, alpha): pooled.apart(found[first], found[alpha])
        for latent, found in of.items()
        for alpha in others
    }
    certain = holm({pair: chance for pair, (_, chance) in apart.items()})
    lines = [["alpha", *of], ["---", *["---:"] * len(of)]]
    lines += [
        [alpha, *(str(sample(list(found[alpha].values()))) for found in of.values())]
        for alpha in (first, *others)
    ]
    for alpha in others:
        cells = []
        for latent in of:
            one, _ = apart[latent, alpha]
            better = "the paper's claim holds" if one.mean > 0 else "the claim is contradicted"
            cells.append(f"{one}: {better if (latent, alpha) in certain else 'undecided'}")
        lines.append([f"{first} over {alpha}", *cells])
    return _markdown(lines)


def longer_alphas() -> str:
    """Return what a free weight has after 7,020 steps with either alpha, in Markdown."""
    of = {alpha: next(iter(rows((log,)).values())) for alpha, log in LONGER.items()}
    lines = [["alpha of a free weight", "7,020"], ["---", "---:"]]
    lines += [[alpha, str(sample(list(values.values())))] for alpha, values in of.items()]
    over, _ = Pooled.over(list(of.values())).apart(of["analytic"], of["learned"])
    lines.append(["analytic over learned", str(over)])
    return _markdown(lines)


def lasting(data: Mapping[str, Studies]) -> str:
    """Return whether window's lead lasts, in Markdown: the rows, and what they are over each other."""
    of, spent = data[SMALL][LASTING], _cpu_seconds()
    lines = [["row", "seeds", "top-1", "CPU minutes"], ["---", *["---:"] * 3]]
    for name, values in of.items():
        minutes = f"{mean(spent[name].values()) / 60:.1f}"
        lines.append([name, str(len(values)), str(sample(list(values.values()))), minutes])
    curve, free = learning_curve(data, SMALL), mean(of["none"].values())
    pooled = Pooled.over(list(of.values()))
    compared = [["comparison", "equal steps", "cost", "equal time", f"at {TIMED}"]]
    compared.append(["---", "---", "---:", "---", "---"])
    learns, frozen = "window, 1/rank", "window, frozen"
    for ours, theirs in ((learns, "none"), (frozen, "none"), (learns, frozen)):
        one, _ = pooled.apart(of[ours], of[theirs])
        cost = _own_cost(ours, theirs)
        left = ["", ""]
        if theirs == "none":
            left = [str(_less(one, 1 - curve.error(LASTING * time) - free)) for time in (cost, TIMED)]
        compared.append([f"{ours} over {theirs}", str(one), f"{cost:.2f}", *left])
    return f"{_markdown(lines)}\n{_markdown(compared)}"


def _own_cost(ours: str, theirs: str) -> float:
    """Return the CPU time of a row over another's: of the seeds that both have trained at one go."""
    spent = _cpu_seconds()
    seeds = spent[ours].keys() & spent[theirs].keys()
    return sum(spent[ours][seed] for seed in seeds) / sum(spent[theirs][seed] for seed in seeds)


@cache
def _cpu_seconds() -> Rows:
    """Return the CPU seconds of the longest trainings: of each seed that was trained at one go."""
    found: dict[str, Values] = {}
    for log in STUDIES[SMALL][LASTING]:
        for one in pq.read_table(LOGS / f"{log}.parquet").to_pylist():
            if seconds := one["outcome"]["cpu_seconds"]:
                found.setdefault(_name(one), {})[one["seed"]] = seconds
    return found


def _less(one: Difference, gain: float) -> Difference:
    return replace(one, mean=one.mean - gain, low=(one.low or 0.0) - gain, high=(one.high or 0.0) - gain)


def tables(data: Mapping[str, Studies]) -> dict[str, str]:
    """Return every table that evidence.md begins with."""
    found = columns(data)
    return {
        **glance(found),
        "the free weight of each column": free_weights(data, found),
        "what window's lead is worth": worth(data, found),
        "what window gains by": mechanism(data),
        "learned alpha over the analytic one": alphas(),
        "the same in a longer training": longer_alphas(),
        "what lasts": lasting(data),
    }


def report(title: str, of: Rows) -> None:
    """Print the rows, and the comparisons of their plans: paired by seed, the primary ones by Holm."""
    print(f"\n{title}\n")
    for name, values in of.items():
        print(f"{name:24} {sample(list(values.values()))}  ({len(values)} seeds)")
    families = [_with(ending, PRIMARY, of) for ending in ("", ", rms")]
    pairs = [pair for family in families for pair in family]
    certain = set[str]()
    for family in families:
        certain |= holm({str(pair): chance(of[pair[0]], of[pair[1]]) for pair in family})
    others = [(name, free) for free in filter(_is_free, of) for name in of if _comparable(name, free)]
    others = [pair for pair in others if pair not in pairs]
    others += [("Tucker, 1/rank", name) for name in CONTROLS]
    others += [(name, name.removesuffix(", rms")) for name in of if name.endswith("rms") and name in ROWS]
    for ours, theirs in (*pairs, *_with("", (*others, *VARIANTS), of)):
        verdict = "certain" if str((ours, theirs)) in certain else "undecided"
        told = verdict if (ours, theirs) in pairs else "not primary"
        print(f"{ours} over {theirs}: {compare(of[ours], of[theirs])}, {told}")


def _comparable(name: str, free: str) -> bool:
    """Return whether a row is compared with a free weight: both have one kind of alpha, or it is `none`."""
    if _is_free(name):
        return name != free == "none"
    return ("analytic" in name) == ("analytic" in free)


def _with(ending: str, pairs: tuple[tuple[str, str], ...], of: Rows) -> list[tuple[str, str]]:
    ended = [(ours + ending, theirs + ending) for ours, theirs in pairs]
    return [pair for pair in ended if set(pair) <= of.keys()]


def compare(ours: Values, theirs: Values) -> str:
    found = paired(ours, theirs)
    assert found is not None
    apart = stdev(ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys())
    return f"{found}, {found.mean / apart:+.1f} deviations, p {chance(ours, theirs):.2g}"


def chance(ours: Values, theirs: Values) -> float:
    seeds = sorted(ours.keys() & theirs.keys())
    return float(ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]).pvalue)


def draw(found: list[Column]) -> str:
    """Draw the columns of both tables, each with its interval; the band is what is of no interest."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots(1, len(TABLES), sharey=True)
        for ax, (title, studies) in zip(axes, TABLES.items(), strict=True):
            ax.axhline(0, color=look_of("none").colour, linewidth=1)
            ax.axhspan(*(100 * side * SMALLEST[studies[0]] for side in (-1, 1)), color="#e5e7eb", zorder=0)
            for study in studies:
                _lines(ax, [of for of in found if of.title == study], study)
            budgets = [of.steps for of in found if of.title == studies[0]]
            ax.set_xscale("log")
            ax.set_xticks(budgets, [f"{steps:,}" for steps in budgets])
            ax.minorticks_off()
            ax.set_xlim(budgets[0] / 1.4, budgets[-1] * 1.4)
            ax.set_title(title)
            ax.set_xlabel("steps of training")
        axes[0].set_ylabel("points over the best free weight, top-1 or PCK@0.2")
        handles: dict[str, Artist] = {}
        for ax in axes:
            drawn, titles = ax.get_legend_handles_labels()
            handles |= dict(zip(titles, drawn, strict=True))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False
        )
        return svg(figure)


def _lines(ax: Axes, found: list[Column], study: str) -> None:
    for place, name in enumerate(ROWS):
        # so that intervals stand side by side
        aside = 1.03 ** (place - (len(ROWS) - 1) / 2 + (2 if study == WIDE else 0))
        over = {of.steps * aside: of.over[name] for of in found if name in of.over}
        if over:
            _line(ax, name, ", 16 times the weights" if study == WIDE else "", over)


def _line(ax: Axes, name: str, ending: str, over: Mapping[float, Difference]) -> None:
    title = name.split(",")[0]
    look = look_of({named: latent for latent, named in NAMES.items()}.get(title, title))
    apart, rms = bool(ending) or "GPU" in name, name.endswith("rms")
    ax.errorbar(
        list(over),
        [100 * one.mean for one in over.values()],
        [100 * (one.mean - (one.low or 0)) for one in over.values()],
        label=name + ending,
        color=look.colour,
        marker=look.mark,
        linestyle="none" if apart else ":" if rms else "-" if "1/rank" in name or title == "cosine" else "--",
        fillstyle="bottom" if apart else "none" if rms else "full",
        capsize=3,
    )


def main() -> None:
    for log in sys.argv[1:]:
        for training in pq.read_table(LOGS / f"{log}.parquet").to_pylist():
            print(shlex.join(replayed(training)))
    if sys.argv[1:]:
        return
    data = read()
    for title, studies in data.items():
        for steps, of in studies.items():
            report(f"{title}, {steps:,} steps", of)
    for title, text in tables(data).items():
        print(f"\n{title}\n\n{text}", end="")
    FIGURE.write_text(draw(columns(data)))


if __name__ == "__main__":
    main()
