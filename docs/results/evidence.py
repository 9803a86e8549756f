"""The study of evidence.md from its logs: prints its tables, draws what lies over a free weight.

python docs/results/evidence.py
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import stdev

import matplotlib
import pyarrow.parquet as pq
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import ttest_rel

from bitfactor.decompositions import WITHOUT_FACTORS
from bitfactor.study.documents.figures import LOOKS, OTHER, STYLE, svg
from bitfactor.study.statistics import Difference, paired, points, sample

LOGS = Path(__file__).parent / "evidence"
FIGURE = Path(__file__).parents[1] / "images" / "evidence.svg"
STUDIES: dict[str, dict[int, tuple[str, ...]]] = {
    "CIFAR-10, top-1": {
        240: (
            "test-plain-240",
            "test-rank-240",
            "test-product-240",
            "test-frozen-240",
            "test-cosine-240",
            "test-tt-240",
            "test-window-240",
        ),
        1560: (
            "test-plain-1560",
            "test-rank-1560",
            "test-product-1560",
            "test-frozen-1560",
            "test-cosine-1560",
            "test-tt-1560",
            "test-window-1560",
        ),
        7020: (
            "test-none-7020",
            "test-tucker-7020",
            "test-holistic-7020",
            "test-rank-7020",
            "test-cosine-7020",
            "test-window-7020",
        ),
    },
    "CIFAR-10 with rms, top-1": {
        1560: ("test-rms-none-1560", "test-rms-tucker-1560", "test-rms-holistic-1560"),
        7020: ("test-rms-tucker-7020", "test-rms-holistic-7020"),
    },
    "CIFAR-10, 16 times the weights, top-1": {7020: ("wide-test-none-7020", "wide-test-window-7020")},
    "Leeds Sports Pose, PCK@0.2": {
        240: (
            "lsp-test-240",
            "lsp-test-rank-240",
            "lsp-test-tucker-240",
            "lsp-test-cosine-240",
            "lsp-test-tt-240",
            "lsp-test-window-240",
        ),
        1500: (
            "lsp-test-none-1500",
            "lsp-test-tucker-1500",
            "lsp-test-holistic-1500",
            "lsp-test-rank-1500",
            "lsp-test-cosine-1500",
            "lsp-test-tt-1500",
            "lsp-test-window-1500",
        ),
        7000: ("lsp-test-none-7000", "lsp-test-rank-7000", "lsp-test-window-7000"),
    },
    "Leeds Sports Pose with rms, PCK@0.2": {
        1500: (
            "lsp-test-rms-none-1500",
            "lsp-test-rms-tucker-1500",
            "lsp-test-rms-holistic-1500",
            "lsp-test-rms-window-1500",
        ),
        7000: (
            "lsp-test-rms-none-7000",
            "lsp-test-rms-tucker-7000",
            "lsp-test-rms-holistic-7000",
            "lsp-test-rms-window-7000",
        ),
    },
    "Leeds Sports Pose on a GPU, PCK@0.2": {7000: ("lsp-gpu-none-7000", "lsp-gpu-cosine-7000")},
}
"""The logs of each number of steps, for each network and machine."""
ESTIMATORS = (
    ("CIFAR-10 with rms, top-1", "CIFAR-10, top-1"),
    ("Leeds Sports Pose with rms, PCK@0.2", "Leeds Sports Pose, PCK@0.2"),
)
"""Studies that differ in the estimator, each row of the first to be compared with those of the second."""
FREE = {"CIFAR-10 with rms, top-1": "CIFAR-10, top-1"}
"""The study that has the free weights where one has none."""
PANELS = {
    "CIFAR-10": {
        "CIFAR-10, top-1": "",
        "CIFAR-10, 16 times the weights, top-1": ", 16 times the weights",
    },
    "CIFAR-10 with rms": {"CIFAR-10 with rms, top-1": ""},
    "Leeds Sports Pose": {
        "Leeds Sports Pose, PCK@0.2": "",
        "Leeds Sports Pose on a GPU, PCK@0.2": ", on a GPU",
    },
    "Leeds Sports Pose with rms": {"Leeds Sports Pose with rms, PCK@0.2": ""},
}
"""The figure's panels and the first table's groups of columns: their studies, and what rows' names end in."""
NAMES = {"tucker": "Tucker", "svd": "SVD", "tt": "tensor train"}
PRIMARY = (
    ("Tucker", "none"),
    ("holistic", "Tucker"),
    ("holistic", "none"),
    ("holistic, 1/rank", "none"),
)
SIX = ("CIFAR-10, top-1", "Leeds Sports Pose, PCK@0.2")
"""The studies of window's six tests."""
AT_ONE_RATE = ("Tucker", "holistic")
CONTROLS = ("product, 1/rank", "Tucker, frozen")
VARIANTS = (
    ("cosine", "holistic, 1/rank"),
    ("tensor train, 1/rank", "holistic, 1/rank"),
    ("tensor train, 1/rank", "cosine"),
    ("window, 1/rank", "cosine"),
    ("window, 1/rank", "holistic, 1/rank"),
    ("window, 1/rank", "tensor train, 1/rank"),
)
DRAWN = (
    *AT_ONE_RATE,
    "Tucker, 1/rank",
    "holistic, 1/rank",
    "cosine",
    "tensor train, 1/rank",
    "window, 1/rank",
)

Values = dict[int, float]
"""The headline of each seed."""


def rows(logs: tuple[str, ...]) -> dict[str, Values]:
    """Return the seeds of each row, {"Tucker, 1/rank": {0: 0.5, ...}}."""
    found: dict[str, Values] = {}
    for log in logs:
        for training in pq.read_table(LOGS / f"{log}.parquet").to_pylist():
            outcome, command = training["outcome"], training["command"]
            axes = training["axes"]
            latent = axes["latent"].removesuffix("_unit")  # window's name while it was a draft
            name = NAMES.get(latent, latent)
            if axes["scale"] != "learned":
                name += f", {axes['scale']}"
            if "--factor-rate" in command and latent not in WITHOUT_FACTORS:
                rate = command[command.index("--factor-rate") + 1]
                name += {"0": ", frozen", "1": ""}.get(rate, f", {rate}")
            found.setdefault(name, {})[training["seed"]] = outcome["metrics"][outcome["headline"]]
    return dict(sorted(found.items(), key=lambda row: (row[0] != "none", row[0].count(","), row[0])))


def holm(chances: list[float], level: float = 0.05) -> list[bool]:
    """Tell which are certain together: the smallest of n is below level / n, the next level / (n - 1)."""
    certain = [False] * len(chances)
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[place] > level / (len(chances) - rank):
            break
        certain[place] = True
    return certain


def chance(ours: Values, theirs: Values) -> float:
    seeds = sorted(ours.keys() & theirs.keys())
    return float(ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]).pvalue)


def compare(ours: Values, theirs: Values) -> str:
    found = paired(ours, theirs)
    assert found is not None
    apart = stdev(ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys())
    return f"{found}, {found.mean / apart:+.1f} deviations, p {chance(ours, theirs):.2g}"


def _free(name: str) -> str:
    """Return the row of a free weight with the same scale."""
    return "none, analytic" if name.endswith(", analytic") else "none"


def table(title: str, of: Mapping[str, Values]) -> None:
    print(f"\n{title}\n")
    for name, values in of.items():
        print(f"{name:24} {sample(list(values.values()))}  ({len(values)} seeds)")
    pairs = [pair for pair in PRIMARY if set(pair) <= of.keys()]
    certain = holm([chance(of[ours], of[theirs]) for ours, theirs in pairs])
    others = [(name, _free(name)) for name in of if name != _free(name) and (name, "none") not in pairs]
    others += [("Tucker, 1/rank", name) for name in CONTROLS if name in of]
    others += [pair for pair in VARIANTS if set(pair) <= of.keys()]
    verdicts = ["certain" if one else "undecided" for one in certain] + ["not primary"] * len(others)
    for (ours, theirs), verdict in zip([*pairs, *others], verdicts, strict=True):
        print(f"{ours} over {theirs}: {compare(of[ours], of[theirs])}, {verdict}")


Studies = Mapping[int, Mapping[str, Values]]
"""The rows after each number of steps."""


def compare_estimators(ours: Studies, theirs: Studies) -> None:
    for steps, of in ours.items():
        others = theirs[steps]
        own = [(name, values) for name, values in of.items() if values not in others.values()]
        for (name, values), (other, compared) in product(own, others.items()):
            print(f"{steps:,} steps, {name} over {other}: {compare(values, compared)}")


def compare_window(data: Mapping[str, Studies]) -> None:
    """Print all tests of window together by Holm."""
    found = {
        f"{title}, {steps:,} steps": chance(of["window, 1/rank"], of["none"])
        for title in SIX
        for steps, of in data[title].items()
    }
    print("\nwindow over none, all together by Holm\n")
    for (name, value), certain in zip(found.items(), holm(list(found.values())), strict=True):
        print(f"{name}: p {value:.2g}, {'certain' if certain else 'undecided'}")


Panels = Mapping[str, Mapping[str, Mapping[int, Difference]]]
"""What each row of each panel is over a free weight of the same study, by steps."""


def over_free(data: Mapping[str, Studies]) -> Panels:
    """Return what every row of the panels is over a free weight."""
    found: dict[str, dict[str, dict[int, Difference]]] = {panel: {} for panel in PANELS}
    for panel, studies in PANELS.items():
        for study, ending in studies.items():
            for steps, of in data[study].items():
                for name in DRAWN:
                    over = paired(of[name], of["none"]) if name in of else None
                    if over is not None:
                        found[panel].setdefault(name + ending, {})[steps] = over
    return found


def glance(panels: Panels) -> str:
    """Return all of them as a table in Markdown; those whose interval leaves out 0 are bold."""
    columns = [(panel, steps) for panel, found in panels.items() for steps in _budgets(found)]
    lines = [["points over a free weight"], ["---"], *([name] for name in _names(panels))]
    for panel, steps in columns:
        cells = [_points(panels[panel].get(name, {}).get(steps)) for name in _names(panels)]
        for line, cell in zip(lines, [f"{panel}, {steps:,}", "---:", *cells], strict=True):
            line.append(cell)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _points(found: Difference | None) -> str:
    if found is None:
        return ""
    return f"**{points(found.mean)}**" if found.sign else points(found.mean)


def _names(panels: Panels) -> list[str]:
    return list(dict.fromkeys(name for panel in panels.values() for name in panel))


def _budgets(found: Mapping[str, Mapping[int, Difference]]) -> list[int]:
    return sorted({steps for of in found.values() for steps in of})


def draw(panels: Panels) -> str:
    """Draw them, each with its interval."""
    names = _names(panels)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        widths = [len(_budgets(panel)) for panel in panels.values()]
        axes = figure.subplots(1, len(panels), sharey=True, width_ratios=widths)
        for ax, (title, panel) in zip(axes, panels.items(), strict=True):
            ax.axhline(0, color=LOOKS["none"].colour, linewidth=1)
            for name, found in panel.items():
                # so that intervals stand side by side
                aside = 1.035 ** (names.index(name) - (len(names) - 1) / 2)
                _line(ax, name, {steps * aside: one for steps, one in found.items()})
            budgets = _budgets(panel)
            ax.set_xscale("log")
            ax.set_xticks(budgets, [f"{steps:,}" for steps in budgets])
            ax.minorticks_off()
            ax.set_xlim(budgets[0] / 1.4, budgets[-1] * 1.4)
            ax.set_title(title)
            ax.set_xlabel("steps of training")
        axes[0].set_ylabel("points over a free weight, top-1 or PCK@0.2")
        handles: dict[str, Artist] = {}
        for ax in axes:
            drawn, titles = ax.get_legend_handles_labels()
            handles |= dict(zip(titles, drawn, strict=True))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=3, frameon=False
        )
        return svg(figure)


def _line(ax: Axes, name: str, found: Mapping[float, Difference]) -> None:
    title = name.split(",")[0]
    look = LOOKS.get({named: latent for latent, named in NAMES.items()}.get(title, title), OTHER)
    apart, at_one_rate = name not in DRAWN, name in AT_ONE_RATE
    ax.errorbar(
        list(found),
        [100 * one.mean for one in found.values()],
        [100 * (one.mean - (one.low or 0)) for one in found.values()],
        label=name,
        color=look.colour,
        marker=look.mark,
        linestyle="none" if apart else ":" if at_one_rate else "-",
        fillstyle="bottom" if apart else "none" if at_one_rate else "full",
        capsize=3,
    )


def read() -> dict[str, Studies]:
    found = {
        title: {steps: rows(logs) for steps, logs in studies.items()} for title, studies in STUDIES.items()
    }
    for title, other in FREE.items():
        for steps, of in found[title].items():
            found[title][steps] = {"none": found[other][steps]["none"], **of}
    return found


def main() -> None:
    data = read()
    for title, studies in data.items():
        for steps, of in studies.items():
            table(f"{title}, {steps:,} steps", of)
    for ours, theirs in ESTIMATORS:
        print(f"\n{ours} over {theirs}\n")
        compare_estimators(data[ours], data[theirs])
    compare_window(data)
    panels = over_free(data)
    print(f"\n{glance(panels)}", end="")
    FIGURE.write_text(draw(panels))


if __name__ == "__main__":
    main()
