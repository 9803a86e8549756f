"""A table or figure of the paper from the studies of its rows, as a document."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bitfactor.study.documents import Chapter, Document, Figure, Prose, Table
from bitfactor.study.figures import intervals
from bitfactor.study.grid import Study, Training, shown_options
from bitfactor.study.page import command_of, drawn, origins, some
from bitfactor.study.paper import EXHIBITS, Exhibit, Method, Setting
from bitfactor.study.statistics import Difference, paired, sample
from bitfactor.study.tables import NONE, metric_name, paper_points
from bitfactor.training.metrics.latents import LayerRecord

say = Prose("exhibit.j2")
"""What is said of a table or figure, by name."""


@dataclass(frozen=True)
class Found:
    """The trainings of a method, and the parameters of its network in full precision."""

    method: Method
    study: Study
    parameters: int

    def by_seed(self, metric: str | None = None) -> dict[int, float]:
        """Return a final metric by seed, the headline if none is named."""
        values = {one.cell.seed: one.metric(metric or self.study.headline) for one in self.study.finished}
        return {seed: value for seed, value in values.items() if value is not None}

    @property
    def bytes(self) -> int | None:
        """Of the exported file; None of a full-precision baseline, which has none."""
        return next((one.outcome.bytes for one in self.study.finished if one.outcome), None)

    def over(self, other: "Found") -> Difference | None:
        """Return the paired difference to another row."""
        return paired(self.by_seed(), other.by_seed())

    @property
    def layers(self) -> dict[str, LayerRecord]:
        """The layers of the first training that has some."""
        return next((dict(one.layers) for one in self.study.finished if one.layers), {})


def exhibit_document(
    exhibit: Exhibit, setting: Setting, found: Sequence[Found], poses: Sequence[Figure], *, small: bool
) -> Document:
    """Return the page: the rows beside the paper's, what the figure shows, how to train each row again."""
    shown, study = EXHIBITS[exhibit], found[0].study
    seeds = len(study.design.seeds)
    finding = [
        say("setting", small=small, data=setting.data, paper=shown.experiment.data, seeds=seeds),
        *_finding(exhibit, found),
    ]
    chapters = [Chapter("Beside the paper", tables=[outcome_table(exhibit, found)])]
    if exhibit.startswith("table"):
        chapters.append(_differences(found))
    if exhibit == "figure2" and len(found) > 1:
        rows = {one.method.scale: (one.method.latent, some(one.layers)) for one in found}
        figure = drawn("figure2", rows, "alpha", say("layers"))
        chapters.append(Chapter("Distribution of alpha", figures=[figure]))
        chapters.append(Chapter("Layer by layer", tables=[_alpha_table(found)]))
    if exhibit == "figure3":
        rows = {one.method.latent: (one.method.latent, some(one.layers)) for one in found}
        figure = drawn("figure3", rows, "weight", say("layers"))
        chapters.append(Chapter("Distribution of the weights before the sign", figures=[figure]))
        chapters.append(Chapter("Layer by layer", tables=[_weight_table(found)]))
    if poses:
        chapters.append(Chapter("Poses", [say("poses")], figures=poses))
    commands = [(one.method.name, command_of(one.study.trainings[0])) for one in found]
    chapters.append(Chapter("How each row is trained", [say("commands")], commands=commands))
    return Document(shown.title, finding, _facts(setting, found), chapters)


def outcome_table(exhibit: Exhibit, found: Sequence[Found]) -> Table:
    """Return the paper's figures beside ours, with parameters and bytes."""
    shown, study = EXHIBITS[exhibit], found[0].study
    metrics = [study.headline, "top5"][: len(shown.experiment.metrics)]
    rows = [
        [
            one.method.name,
            f"{one.parameters / 1e6:.2f} M",
            NONE if one.bytes is None else f"{one.bytes:,}",
            *(f"{figure:.1f}" for figure in one.method.figures),
            *(str(sample(list(one.by_seed(metric).values())) or NONE) for metric in metrics),
            one.method.note or NONE,
        ]
        for one in found
    ]
    paper = [f"paper, {name}" for name in shown.experiment.metrics]
    ours = [f"here, {metric_name(name)}" for name in metrics]
    head = ["row", "parameters", "bytes of the file", *paper, *ours, "note"]
    return Table(head, rows, say("outcome"), words=(0, len(head) - 1))


def logs(found: Sequence[Found]) -> Table:
    """Return a line for each epoch of every training."""
    lines = [
        {"row": one.method.name, "seed": training.cell.seed, **line}
        for one in found
        for training in one.study.trainings
        for line in training.log
    ]
    head = list(dict.fromkeys(name for line in lines for name in line))
    return Table(head, [[line.get(name) for name in head] for line in lines])


def _finding(exhibit: Exhibit, found: Sequence[Found]) -> list[str]:
    if exhibit == "figure2" and len(found) > 1:
        analytic, learned = found[0].layers, found[1].layers
        ratios = [_ratio(learned[name], analytic[name]) for name in learned]
        negative = [layer.negative or 0.0 for layer in learned.values()]
        return [say("alphas", negative=sum(negative) / len(negative), ratio=median(ratios))]
    if exhibit == "figure3":
        parts = [(one.method.name, [layer.outside for layer in one.layers.values()]) for one in found]
        return [say("beyond", parts=[(name, sum(values) / len(values)) for name, values in parts])]
    base, *others = found
    if not others or not exhibit.startswith("table"):
        return []
    best = max(found, key=lambda one: sum(one.by_seed().values()) / max(len(one.by_seed()), 1))
    over = best.over(base) if best is not base else None
    return [say("best", row=best.method.name, over=over, base=base.method.name)]


def _ratio(learned: LayerRecord, analytic: LayerRecord) -> float:
    return (learned.magnitude or 0.0) / max(analytic.magnitude or 0.0, 1e-12)


def _differences(found: Sequence[Found]) -> Chapter:
    base, *others = found
    differences = {one.method.name: (one.method.row.latent, one.over(base)) for one in others}
    known = {name: (latent, over) for name, (latent, over) in differences.items() if over is not None}
    rows = [
        [
            one.method.name,
            paper_points(one.method.figures[0] - base.method.figures[0]),
            str(differences[one.method.name][1] or NONE),
        ]
        for one in others
    ]
    panels = {f"points over {base.method.name}": known}
    metric = metric_name(base.study.headline)
    drawn = intervals(panels, f"points of {metric}") if known else ""
    return Chapter(
        f"Differences to {base.method.name}",
        tables=[Table(["row", "paper", f"here, points of {metric}"], rows, say("differences"))],
        figures=[Figure("differences", drawn.encode(), say("intervals"))] if drawn else [],
    )


def _alpha_table(found: Sequence[Found]) -> Table:
    analytic, learned = found[0].layers, found[1].layers
    rows = [
        [
            name,
            f"{analytic[name].magnitude or 0:.4f}",
            f"{layer.magnitude or 0:.4f}",
            f"{_ratio(layer, analytic[name]):.2f}",
            f"{layer.negative or 0:.1%}",
        ]
        for name, layer in learned.items()
    ]
    head = ["layer", "mean alpha, analytic", "mean |alpha|, learned", "ratio", "learned alpha below 0"]
    return Table(head, rows)


def _weight_table(found: Sequence[Found]) -> Table:
    head = ["layer", *(f"{text}, {one.method.latent}" for one in found for text in ("std of W", "|W| > 1"))]
    rows = [
        [
            name,
            *(
                cell
                for one in found
                for cell in (f"{one.layers[name].std:.4f}", f"{one.layers[name].outside:.1%}")
            ),
        ]
        for name in found[0].layers
    ]
    return Table(head, rows)


def _facts(setting: Setting, found: Sequence[Found]) -> list[tuple[str, str]]:
    design = found[0].study.design
    finished: list[Training] = [one for row in found for one in row.study.finished]
    minutes = sum(one.outcome.seconds for one in finished if one.outcome) / 60
    hosts = dict.fromkeys(one.outcome.host for one in finished if one.outcome and one.outcome.host)
    return [
        ("recipe", setting.recipe),
        ("data", setting.data),
        ("options", shown_options(setting.options) or "its own"),
        ("seeds", ", ".join(map(str, design.seeds))),
        ("trainings", f"{len(finished)}, {minutes:.0f} minutes by the clock, summed"),
        *({"machine": ", ".join(map(str, hosts))} | origins(finished)).items(),
    ]
