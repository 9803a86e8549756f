"""What a study found, in words that follow from its numbers."""

from collections.abc import Mapping, Sequence

from bitfactor.study.documents.document import Prose
from bitfactor.study.grid import REAL, Row, Study
from bitfactor.study.paper import published_for
from bitfactor.study.statistics import RATE, Claim, View, claims, row_name, setting_name, student, view_at

say = Prose("study.j2")
"""What is said of a study, by name."""


def finding(view: View, study: Study) -> list[str]:
    """Return sentences: the paper's order, the order of the means, the best row, the baseline."""
    order = say("order", found=counts(claims(view, study)))
    return [order, *_means(view, study), *_best(view, study), *_baseline(view, study)]


def by_rate(view: View, study: Study) -> list[str]:
    """Return a sentence on the paper's order at each learning rate, nothing where there is but one."""
    settings = [(*view.setting, (RATE, rate)) for rate in study.axes.get(RATE, ())]
    return [
        say("at_rate", setting=setting_name(at[-1:]), found=counts(claims(view_at(study, at), study)))
        for at in settings
    ]


def caution(study: Study) -> list[str]:
    """Return what a reader should know before believing the numbers."""
    total, n = len(study.trainings) + len(study.missing()), len(study.design.seeds)
    done = len(study.finished)
    rates = say(
        "rates", holdout=study.holdout, earlier=study.design.rates, here=len(study.axes.get(RATE, ()))
    )
    sentences = [
        say("unfinished", done=done, total=total) if done < total else "",
        say("seeds", n=n, errors=student(n - 1) if n > 1 else None),
        rates,
    ]
    return [sentence for sentence in sentences if sentence]


def counts(found: Sequence[Claim]) -> Mapping[str, int]:
    """Return how many comparisons were measured, and what came out."""
    measured = [claim for claim in found if claim.found is not None]
    shown = sum(claim.verdict == "as in the paper" for claim in measured)
    turned = sum(claim.verdict == "the other way round" for claim in measured)
    return {
        "measured": len(measured),
        "agreeing": sum(claim.agrees for claim in measured),
        "shown": shown,
        "turned": turned,
        "undecided": len(measured) - shown - turned,
    }


def _means(view: View, study: Study) -> list[str]:
    sentences, published = [], published_for(study.headline)
    for scale in study.scales:
        means = {row: at.mean for row in study.rows if row.scale == scale and (at := view.sample(row))}
        known = [row for row in means if row in published.figures]
        if len(known) > 1:
            measured = _ascending({row: 100 * mean for row, mean in means.items()}, 2)
            paper = _ascending({row: published.figures[row][0] for row in known}, 1)
            sentences.append(say("means", scale=scale, measured=measured, paper=paper, data=published.data))
    return sentences


def _ascending(percent: Mapping[Row, float], digits: int) -> list[str]:
    ordered = sorted(percent, key=percent.__getitem__)
    return [f"{row_name(row[:1])} {percent[row]:.{digits}f}" for row in ordered]


def _best(view: View, study: Study) -> list[str]:
    means = {row: at for row in study.rows if (at := view.sample(row))}
    if not means:
        return []
    best = max(means, key=lambda row: means[row].mean)
    base = Row("none", best.scale)
    over = view.difference(best, base) if best != base else None
    return [say("best", row=row_name(best), mean=means[best], over=over, base=row_name(base))]


def _baseline(view: View, study: Study) -> list[str]:
    baseline = view.sample(REAL)
    means = [at.mean for row in study.rows if (at := view.sample(row))]
    if baseline is None or not means:
        return []
    return [say("baseline", mean=baseline, gap=100 * (baseline.mean - max(means)))]
