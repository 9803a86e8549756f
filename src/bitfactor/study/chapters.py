"""What goes on inside trainings, of a study or of a run alone: curves, flips, scales, weights and factors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from bitfactor.study.documents.document import Chapter, Figure
from bitfactor.study.figures import Series, bands, distributions, spectra
from bitfactor.study.grid import REAL, Row, Study
from bitfactor.study.statistics import RATE, StudyView, row_name, setting_name
from bitfactor.study.tables import metric_name, say, weights
from bitfactor.training.metrics.latents import Histogram, LayerRecord

_COLUMNS = 4  # layers that a figure shows
Layers = Mapping[str, LayerRecord]


def inside(view: StudyView, study: Study) -> list[Chapter]:
    """Return the chapters for which there is something to show."""
    chapters = (training, flips, scaling_factors, latent_weights, factor_spectra)
    return [found for chapter in chapters if (found := chapter(view, study)) is not None]


def training(view: StudyView, study: Study) -> Chapter | None:
    """Return the test metric and the loss by epoch."""
    metric = study.headline
    if not any(one.curve(metric) for found in view.rows.values() for one in found):
        return None
    rows = {
        f"{metric_name(metric)}, %": panels_by_scale(study, _logged(view, metric, 100)),
        "loss in training": panels_by_scale(study, _logged(view, "loss", 1)),
    }
    figure = Figure(
        "training",
        bands(rows, "epoch").encode(),
        say("band", where=_at(view, study), seeds=len(study.design.seeds)),
    )
    return Chapter("Training", figures=[figure])


def flips(view: StudyView, study: Study) -> Chapter | None:
    """Return the fraction of weights that change their sign, by epoch."""
    panels = panels_by_scale(study, _logged(view, "flipped", 100), baseline=False)
    if not any(panels.values()):
        return None
    figure = bands({"flipped, % of the weights": panels}, "epoch", log_y=True)
    return Chapter(
        "Flips",
        [say("flips")],
        figures=[
            Figure(
                "flips", figure.encode(), say("band", where=_at(view, study), seeds=len(study.design.seeds))
            )
        ],
    )


def scaling_factors(view: StudyView, study: Study) -> Chapter | None:
    """Return the distributions of alpha, of each scale, with the latent that has most of them."""
    found = {
        latent: {scale: layers for scale in study.scales if (layers := _layers(view, Row(latent, scale)))}
        for latent in study.latents
    }
    latent = max(found, key=lambda name: (len(found[name]), name == "holistic"), default="")
    rows = {scale: (latent, layers) for scale, layers in found.get(latent, {}).items()}
    if not rows:
        return None
    caption = say("layers", where=_at(view, study))
    return Chapter(
        "Scaling factors",
        [say("alphas", latent=row_name((latent,)))],
        figures=[drawn("alpha", rows, "alpha", caption)],
    )


def latent_weights(view: StudyView, study: Study) -> Chapter | None:
    """Return the distributions of the weights before the sign, of each latent with one scale."""
    scale = _scale(study)
    rows = {
        row_name((latent,)): (latent, found)
        for latent in study.latents
        if (found := _layers(view, Row(latent, scale)))
    }
    if not rows:
        return None
    parts = [(name, [layer.weight for layer in found.values()]) for name, (_, found) in rows.items()]
    fractions = [f"{name} {_beyond(histograms):.1%}" for name, histograms in parts]
    caption = say("beyond", where=_at(view, study), fractions=fractions)
    return Chapter(
        "Weights before the sign",
        [say("weights", scale=scale)],
        [weights(view, study)],
        [drawn("weights", rows, "weight", caption)],
    )


def factor_spectra(view: StudyView, study: Study) -> Chapter | None:
    """Return the singular values of the factors of each latent that has some, with one scale."""
    scale = _scale(study)
    found = {latent: _layers(view, Row(latent, scale), decomposed=True) for latent in study.latents}
    rows = {
        row_name((latent,)): {name: layer.spectra for name, layer in layers.items()}
        for latent, layers in found.items()
        if layers
    }
    if not rows:
        return None
    return Chapter(
        "Spectra of the factors",
        [say("spectra", scale=scale)],
        figures=[Figure("spectra", spectra(rows).encode(), say("layers", where=_at(view, study)))],
    )


def panels_by_scale(
    study: Study, series: Callable[[Row], Sequence[Series]], *, baseline: bool = True
) -> dict[str, dict[str, Sequence[Series]]]:
    """Return {title: {latent: series}}, a panel per scale, the full-precision baseline in each."""
    panels: dict[str, dict[str, Sequence[Series]]] = {}
    for scale in study.scales:
        rows = [Row(latent, scale) for latent in study.latents] + ([REAL] if baseline else [])
        lines = {row.latent: [one for one in series(row) if one] for row in rows}
        panels[f"{scale} alpha"] = {latent: found for latent, found in lines.items() if found}
    if baseline and not study.scales:
        panels[row_name(REAL)] = {REAL.latent: series(REAL)}
    return panels


def _logged(view: StudyView, name: str, factor: float) -> Callable[[Row], list[Series]]:
    return lambda row: [[(x, factor * y) for x, y in one.curve(name)] for one in view.rows[row]]


def _scale(study: Study) -> str:
    return "learned" if "learned" in study.scales else next(iter(study.scales), "")


def _beyond(histograms: Iterable[Histogram]) -> float:
    counts = [(found.below + found.above, sum(found.counts)) for found in histograms]
    outside, inside = sum(beyond for beyond, _ in counts), sum(within for _, within in counts)
    return outside / max(outside + inside, 1)


def _layers(view: StudyView, row: Row, *, decomposed: bool = False) -> dict[str, LayerRecord]:
    """Return layers of the first training of a row that has them, with `decomposed` those with factors."""
    layers = next((one.layers for one in view.rows.get(row, ()) if one.layers), {})
    return some({name: layer for name, layer in layers.items() if layer.spectra or not decomposed})


def some(layers: Layers) -> dict[str, LayerRecord]:
    """Return as many layers as a figure shows, from the bottom to the top."""
    names, count = list(layers), min(_COLUMNS, len(layers))
    chosen = [names[round(i * (len(names) - 1) / max(count - 1, 1))] for i in range(count)]
    return {name: layers[name] for name in chosen}


_PARTS: Mapping[str, tuple[str, Sequence[float]]] = {"alpha": ("alpha", (0,)), "weight": ("W", (-1, 1))}


def drawn(
    name: str, rows: Mapping[str, tuple[str, Layers]], part: Literal["alpha", "weight"], caption: str
) -> Figure:
    """Return the figure of a distribution in layers, {title of the row: (latent, layers)}."""
    label, marks = _PARTS[part]
    found = {
        title: (latent, {layer: getattr(one, part) for layer, one in layers.items()})
        for title, (latent, layers) in rows.items()
    }
    return Figure(name, distributions(found, label, marks).encode(), caption)


def _at(view: StudyView, study: Study) -> str:
    rate = ["each row at its best learning rate"] if RATE in study.axes else []
    return ", ".join([*rate, *([setting_name(view.setting)] if view.setting else [])])
