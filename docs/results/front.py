"""The tables, sentences and charts of front.md.

They are made from front.json, which `benchmarks/front.py` measures, and front-arm.json, which
`benchmarks/arm.py` counts.

python docs/results/front.py             # writes front.md's made parts, and docs/images/front-*.svg
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import TextWrapper

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bitfactor.study.figures import STYLE, svg

FOLDER = Path(__file__).parent
PAGE, IMAGES = FOLDER / "front.md", FOLDER.parent / "images"
TARGETS = {
    "native": "best instructions, one core",
    "avx512": "AVX-512 without AMX",
    "avx2": "AVX2",
    "threads": "two threads",
    "batch": "32 images at once",
    "web": "WebAssembly",
}
COUNTED = {  # CPU and what is counted
    ("cortex-a76", "instructions"): "Cortex-A76",
    ("cortex-a76", "vector"): "Cortex-A76, vectors alone",
    ("cortex-a72", "instructions"): "Cortex-A72",
    ("cortex-a72", "vector"): "Cortex-A72, vectors alone",
}
ARM = {f"{cpu} {kind}": title for (cpu, kind), title in COUNTED.items()}
SLOWED = 1.5  # times the minimum: a median that other work on the machine has slowed


@dataclass(frozen=True)
class Point:
    """A network with its weights on one target; `own` says that its accuracy was published for them."""

    network: str
    weights: str
    engine: str
    ms: float
    median_ms: float
    bytes: int
    top1: float
    own: bool

    @property
    def binary(self) -> bool:
        return self.weights == "1 bit"

    @property
    def row(self) -> tuple[str, str]:
        """The row of the table that it stands in."""
        low = self.binary and "low" in self.engine
        return self.network, "1 bit, `low`" if low else self.weights

    @property
    def slowed(self) -> bool:
        return self.median_ms >= SLOWED * self.ms

    def over(self, other: "Point") -> float:
        """How many times as long the other takes."""
        return other.ms / self.ms


def published() -> list[dict[str, str]]:
    with (FOLDER / "front-published.csv").open() as file:
        return list(csv.DictReader(file))


def points(results: Mapping[str, dict], titles: Mapping[str, str] = TARGETS) -> dict[str, list[Point]]:
    """Return the points of each target; int8 has the accuracy of float where none was published for it."""
    top1 = {(row["network"], row["weights"]): row["top1"] for row in published()}

    def point(row: dict, about: dict) -> Point:
        own = top1[row["network"], row["weights"]]
        accuracy = float(own or top1[row["network"], "float"])
        least = "minimum_ms" if about.get("threads", 1) == 1 else "median_ms"
        numbers = row[least], row["median_ms"], row["bytes"]
        return Point(row["network"], row["weights"], row["engine"], *numbers, accuracy, bool(own))

    found = {name: results[name] for name in titles if name in results}
    return {name: [point(row, about) for row in about["rows"]] for name, about in found.items()}


def in_millions(counts: Mapping[str, dict]) -> dict[str, list[Point]]:
    """Return the points of `ARM`, with millions of instructions where milliseconds are elsewhere."""

    def row(one: dict, kind: str) -> dict:
        millions = one[kind] / 1e6
        return {**one, "minimum_ms": millions, "median_ms": millions}

    kinds = {f"{cpu} {kind}": (cpu, kind) for cpu, kind in COUNTED if cpu in counts}
    rows = {name: [row(one, kind) for one in counts[cpu]["rows"]] for name, (cpu, kind) in kinds.items()}
    return points({name: {"rows": found} for name, found in rows.items()}, ARM)


def fastest(found: Iterable[Point]) -> list[Point]:
    """Return one point for each network with its weights: ours in its faster precision."""
    best: dict[tuple[str, str], Point] = {}
    for one in sorted(found, key=lambda one: one.ms):
        best.setdefault((one.network, one.weights), one)
    return list(best.values())


def front(found: Sequence[Point]) -> list[Point]:
    """Return the points that no other reaches: as accurate and as fast, and better in one of them."""
    kept: list[Point] = []
    for one in sorted(found, key=lambda one: (one.ms, -one.top1)):
        if not kept or one.top1 > kept[-1].top1:
            kept.append(one)
    return kept


def instead(binary: Point, found: Sequence[Point]) -> Point:
    """Return the fastest of the others that are at least as accurate as a binary network."""
    return min((one for one in found if not one.binary and one.top1 >= binary.top1), key=lambda one: one.ms)


def closest(found: Sequence[Point]) -> tuple[Point, Point]:
    """Return the binary network that comes off best beside what one would take instead, and that."""
    pairs = [(one, instead(one, found)) for one in fastest(found) if one.binary]
    return max(pairs, key=lambda pair: pair[0].over(pair[1]))


def choices(
    targets: Mapping[str, Sequence[Point]],
    titles: Mapping[str, str] = TARGETS,
    unit: str = "ms",
    verdicts: tuple[str, str] = ("faster", "slower"),
) -> str:
    """Return the table of what to take on each target."""
    lines = [
        f"| target | closest binary network | top-1 | {unit} | at least as accurate | top-1 | {unit} "
        "| 1 bit is |",
        "|---|---|---:|---:|---|---:|---:|---|",
    ]
    for name, found in targets.items():
        ours, other = closest(found)
        ratio = ours.over(other)
        verdict = f"{ratio:.2f}x {verdicts[0]}" if ratio > 1 else f"{1 / ratio:.2f}x {verdicts[1]}"
        mine, theirs = (f"{one.top1:.1f} | {one.ms:.2f}" for one in (ours, other))
        label = f"{other.network}, {other.weights}"
        lines.append(f"| {titles[name]} | {ours.network} | {mine} | {label} | {theirs} | {verdict} |")
    return "\n".join(lines)


def sentences(targets: Mapping[str, Sequence[Point]]) -> str:
    """Return when to take a binary network and when not, in three points, as the figures say."""
    won = [name for name, found in targets.items() if any(one.binary for one in front(fastest(found)))]
    lost = [name for name in targets if name not in won]
    ratios = [1 / ours.over(other) for ours, other in (closest(targets[name]) for name in lost)]
    said = []
    if lost:
        where = "every target" if not won else f"{len(lost)} of {len(targets)} targets"
        said.append(
            f"- **Take a compact network for ImageNet.** On {where} here, one is at least as accurate as "
            f"each binary network. It is {min(ratios):.1f}x to {max(ratios):.1f}x faster than the closest."
        )
    if won:
        names = ", ".join(TARGETS[name] for name in won)
        said.append(f"- **Take a binary network** where one lies on the front: {names}.")
    best, ratio = max(same_architecture(targets).items(), key=lambda one: one[1])
    lead = _int8(targets["native"]).top1 - _binary(targets["native"]).top1
    faster = f"up to {ratio:.1f}x faster than int8 ({TARGETS[best]})" if ratio > 1 else "not faster than int8"
    said.append(
        "- **Take a binary network without SIMD or with a given architecture.** "
        "[Microcontrollers](../microcontroller.md) are the first case. As ResNet-18, 1 bit is "
        f"{faster}, with {lead:.1f} points less."
    )
    said.append(
        "- **Measure on your own images.** [`bitfactor compare`](../guide.md) trains both kinds in equal "
        "time and names the better one. On [ten classes of photos](#on-photos-an-hour-of-compare) that "
        "was the binary one, on [CIFAR-10](#trained-here) it was int8."
    )
    points = TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(points.fill, said))


def _binary(found: Iterable[Point]) -> Point:
    return next(one for one in fastest(found) if one.network == "ReActNet-18")


def _int8(found: Iterable[Point]) -> Point:
    return next(one for one in found if (one.network, one.weights) == ("ResNet-18", "int8"))


def same_architecture(targets: Mapping[str, Sequence[Point]]) -> dict[str, float]:
    """Return how many times as long int8 ResNet-18 takes as ReActNet-18 on each target."""
    return {name: _binary(found).over(_int8(found)) for name, found in targets.items()}


def same(
    targets: Mapping[str, Sequence[Point]], titles: Mapping[str, str] = TARGETS, unit: str = "ms"
) -> str:
    """Return the table of one architecture at 1 bit and in int8."""
    lines = [f"| target | 1 bit, {unit} | int8, {unit} | int8 over 1 bit |", "|---|---:|---:|---:|"]
    for name, ratio in same_architecture(targets).items():
        ours, int8 = _binary(targets[name]), _int8(targets[name])
        lines.append(f"| {titles[name]} | {ours.ms:.2f} | {int8.ms:.2f} | {ratio:.2f} |")
    return "\n".join(lines)


def latencies(targets: Mapping[str, Sequence[Point]], titles: Mapping[str, str] = TARGETS) -> str:
    """Return the table of all networks: accuracy, bytes, and milliseconds on each target."""
    columns = [name for name in titles if name in targets]
    rows: dict[tuple[str, str], dict[str, Point]] = {}
    for name in columns:
        for one in targets[name]:
            best = rows.setdefault(one.row, {}).get(name)
            if best is None or one.ms < best.ms:
                rows[one.row][name] = one
    heads = "".join(f" {titles[name]} |" for name in columns)
    lines = [f"| network | weights | top-1 | MB |{heads}", "|---|---|---:|---:|" + "---:|" * len(columns)]
    best = {name: front(fastest(targets[name])) for name in columns}
    for (network, weights), found in sorted(rows.items(), key=lambda row: _order(row[1])):
        first = next(iter(found.values()))
        cells = "".join(f" {_cell(found.get(name), best[name])} |" for name in columns)
        top1 = f"{first.top1:.1f}{'' if first.own else '*'}"
        lines.append(f"| {network} | {weights} | {top1} | {first.bytes / 1e6:.1f} |{cells}")
    return "\n".join(lines)


def _order(found: Mapping[str, Point]) -> tuple[float, str, float]:
    first = next(iter(found.values()))
    return first.top1, first.network, first.ms


def _cell(point: Point | None, best: Sequence[Point]) -> str:
    if point is None:
        return ""
    text = f"{point.ms:.2f}{'~' if point.slowed else ''}"
    return f"**{text}**" if point in best else text


def sources() -> str:
    rows = [row for row in published() if row["top1"]]
    lines = ["| network | weights | top-1 | source |", "|---|---|---:|---|"]
    return "\n".join(
        [*lines, *(f"| {row['network']} | {row['weights']} | {row['top1']} | {_link(row)} |" for row in rows)]
    )


def _link(row: dict[str, str]) -> str:
    where, _, rest = row["source"].partition(",")
    if where == "torchvision":
        return f"[{where}](https://docs.pytorch.org/vision/stable/models.html)"
    if where.startswith("arXiv "):
        return f"[{where}](https://arxiv.org/abs/{where.split()[1]}){',' + rest if rest else ''}"
    return f"[{where}](https://github.com/{where})"


def machines(results: Mapping[str, dict]) -> str:
    """Return a line on what each target was measured with."""
    lines = []
    for name in TARGETS:
        if name in results:
            one = results[name]
            versions = ", ".join(f"{package} {number}" for package, number in one["versions"].items())
            slowed = sum(point.slowed for point in points(results)[name])
            machine = f"{one['machine']}, {one['isa']}"
            lines.append(f"| {TARGETS[name]} | {machine} | {one['runs']} | {slowed} | {versions} |")
    head = ["| target | machine, instructions | runs | medians 1.5x the minimum | versions |"]
    return "\n".join([*head, "|---|---|---:|---:|---|", *lines])


INK = {
    "light": {
        "text": "#1f2328",
        "grid": "#d8dee4",
        "1 bit": "#0b62a4",
        "mixed": "#6f42c1",
        "int8": "#c4571f",
        "float": "#59636e",
    },
    "dark": {
        "text": "#e6edf3",
        "grid": "#3d444d",
        "1 bit": "#58a6ff",
        "mixed": "#bc8cff",
        "int8": "#f0883e",
        "float": "#9198a1",
    },
}
_LINE, _NAME = 0.7, 3.5  # points and times of a name's height and width
MARKS = {"1 bit": "o", "mixed": "^", "int8": "D", "float": "s"}
LEGEND = {
    "1 bit": "1 bit, bitfactor",
    "mixed": "1 bit and int8, bitfactor",
    "int8": "int8",
    "float": "float32 or bfloat16",
}


def chart(
    panels: Mapping[str, Sequence[tuple[Point, float]]],
    x_label: str,
    theme: str,
    y_label: str = "top-1 on ImageNet, %",
    y_range: tuple[float, float] = (54, 78),
) -> str:
    """Draw top-1 against x, {title: (point, x)}; what no other reaches is joined by a line."""
    ink, rows = INK[theme], -(-len(panels) // 3)
    style = {**STYLE, **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color"), ink["text"])}
    style |= {"ytick.color": ink["text"], "axes.edgecolor": ink["grid"], "svg.fonttype": "none"}
    with matplotlib.rc_context(style):
        columns = min(len(panels), 3)
        size = (7, 4) if columns == 1 else (11, 0.6 + 3.1 * rows)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for ax, (title, found) in zip(axes.flat, panels.items(), strict=False):
            ax.set_title(title, loc="left")
            _panel(ax, found, ink)
            ax.set_ylim(*y_range)
        for ax in axes.flat[len(panels) :]:
            ax.axis("off")
        for ax in axes[:, 0]:
            ax.set_ylabel(y_label)
        for ax in axes[-1]:
            ax.set_xlabel(x_label)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return svg(figure)


def _panel(ax: Axes, found: Sequence[tuple[Point, float]], ink: Mapping[str, str]) -> None:
    ax.patch.set_alpha(0)
    for weights in sorted({one.weights for one, _ in found}, key=[*MARKS].index):
        mark = MARKS[weights]
        group = [(one, x) for one, x in found if one.weights == weights]
        fills = [ink[weights] if one.own else "none" for one, _ in group]
        xs, ys = [x for _, x in group], [one.top1 for one, _ in group]
        look = {"marker": mark, "edgecolors": ink[weights], "zorder": 3}
        ax.scatter(xs, ys, 22, c=fills, **look)
        ax.scatter([], [], 22, c=ink[weights], label=LEGEND[weights], marker=mark)
    reached = staircase([(x, one.top1) for one, x in found])
    ax.step(*zip(*reached, strict=True), where="post", color=ink["grid"], linewidth=1.2, zorder=1)
    binary = sorted((x, one.top1) for one, x in found if one.binary)
    named = {*apart(place for place in reached if place not in binary), *apart(binary)}
    for one, x in found:
        if (x, one.top1) in named:
            place = {
                "xytext": (5, -3) if one.binary else (-3, 5),
                "textcoords": "offset points",
                "fontsize": 6.5,
            }
            ax.annotate(one.network, (x, one.top1), color=ink[one.weights], **place)
    ax.set_xscale("log")
    decades = (digit * 10.0**power for power in range(-2, 5) for digit in (1, 2, 5))
    ticks = [one for one in decades if _within(one, [x for _, x in found])]
    ax.set_xticks(ticks, [f"{one:,g}" for one in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(color=ink["grid"], linewidth=0.5)


def _within(tick: float, xs: Sequence[float]) -> bool:
    return 0.7 * min(xs) <= tick <= 1.4 * max(xs)


def apart(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places (x, y), from left to right, whose names do not overlap with that of one before."""
    kept: list[tuple[float, float]] = []
    for x, y in places:
        if all(abs(y - other[1]) >= _LINE or x >= other[0] * _NAME for other in kept):
            kept.append((x, y))
    return kept


def staircase(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places (x, y) where y is higher than at every smaller x."""
    kept: list[tuple[float, float]] = []
    for x, y in sorted(places, key=lambda place: (place[0], -place[1])):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return kept


def parts(results: Mapping[str, dict], counts: Mapping[str, dict]) -> dict[str, str]:
    """Return the made parts of the page by their names."""
    targets, cpus = points(results), in_millions(counts)
    return {
        "sentences": sentences(targets),
        "choices": choices(targets),
        "same": same(targets),
        "latencies": latencies(targets),
        "arm-choices": choices(cpus, ARM, "M", ("fewer", "more")),
        "arm-same": same(cpus, ARM, "M"),
        "arm-all": latencies(cpus, ARM),
        "machines": machines(results),
        "sources": sources(),
    }


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return the page with its parts between `<!-- name -->` and `<!-- end -->` made anew."""
    for name, text in made.items():
        mark = re.compile(rf"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        page = mark.sub(lambda _, name=name, text=text: f"<!-- {name} -->\n\n{text}\n\n<!-- end -->", page)
    return page


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "front.json"
    results, counts = (json.loads(one.read_text()) for one in (path, FOLDER / "front-arm.json"))
    PAGE.write_text(filled(PAGE.read_text(), parts(results, counts)))
    targets = {name: fastest(found) for name, found in points(results).items()}
    latency = {TARGETS[name]: [(one, one.ms) for one in found] for name, found in targets.items()}
    sizes = {"": [(one, one.bytes / 1e6) for one in targets["native"]]}
    for theme in INK:
        drawn = chart(latency, "milliseconds for one image", theme)
        (IMAGES / f"front-latency-{theme}.svg").write_text(drawn)
        (IMAGES / f"front-bytes-{theme}.svg").write_text(chart(sizes, "file, MB", theme))


if __name__ == "__main__":
    main()
