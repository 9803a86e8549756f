"""What a study found, in words that follow from its numbers."""

from collections.abc import Sequence

from bitfactor.report.study.comparison import (
    RATE,
    Claim,
    View,
    axis_name,
    claims,
    row_name,
    setting_name,
    view_at,
)
from bitfactor.report.study.directory import REAL, Row, Study
from bitfactor.report.study.paper import MPII
from bitfactor.report.study.statistics import student

_WHOLE = "The paper's order shows"
_PART = "The paper's order shows in part"
_TURNED = "The paper's order does not show, and is turned round in part"
_MIXED = "The paper's order shows in part and is turned round in part"
_OPEN = "The paper's order is neither confirmed nor refuted"


def finding(view: View, study: Study) -> list[str]:
    """Return sentences: the paper's order, the order of the means, the best row, the baseline."""
    found = claims(view, study)
    sentences = [_order(found), *_means(view, study), _best(view, study), _baseline(view, study)]
    return [sentence for sentence in sentences if sentence]


def by_rate(view: View, study: Study) -> list[str]:
    """Return a sentence on the paper's order at each learning rate, nothing where there is but one."""
    settings = [(*view.setting, (RATE, rate)) for rate in study.axes.get(RATE, ())]
    return [
        f"At {setting_name(setting[-1:])}: {_counts(claims(view_at(study, setting), study))}."
        for setting in settings
    ]


def caution(study: Study) -> list[str]:
    """Return what a reader should know before believing the numbers."""
    sentences = [_asked(study), _pairs(study), _chosen(study)]
    return [sentence for sentence in sentences if sentence]


def _order(found: Sequence[Claim]) -> str:
    measured = [claim for claim in found if claim.found is not None]
    if not measured:
        return (
            "Nothing can be said of the paper's order yet: no two of its rows have a finished seed in common."
        )
    return f"{_verdict(measured)}: {_counts(found)}."


def _verdict(measured: Sequence[Claim]) -> str:
    shown = sum(claim.verdict == "as in the paper" for claim in measured)
    turned = sum(claim.verdict == "the other way round" for claim in measured)
    if shown == len(measured):
        return _WHOLE
    if shown and turned:
        return _MIXED
    return _PART if shown else _TURNED if turned else _OPEN


def _counts(found: Sequence[Claim]) -> str:
    measured = [claim for claim in found if claim.found is not None]
    agreeing = sum(claim.agrees for claim in measured)
    shown = sum(claim.verdict == "as in the paper" for claim in measured)
    turned = sum(claim.verdict == "the other way round" for claim in measured)
    noun = "comparison" if len(measured) == 1 else "comparisons"
    return (
        f"{len(measured)} {noun} between two rows, {agreeing} with the paper's sign; with a 95 % interval "
        f"that leaves zero out, {shown} as in the paper and {turned} the other way round; "
        f"{len(measured) - shown - turned} undecided"
    )


def _means(view: View, study: Study) -> list[str]:
    sentences = []
    for scale in study.scales:
        rows: list[Row] = [(latent, scale) for latent in study.latents]
        means = {row: at.mean for row in rows if (at := view.sample(row, study.headline)) is not None}
        known = [row for row in means if row in MPII]
        if len(known) > 1:
            ascending = sorted(means, key=means.__getitem__)
            measured = _ascending({row: f"{100 * means[row]:.2f}" for row in ascending})
            paper = _ascending({row: f"{MPII[row]:.1f}" for row in sorted(known, key=MPII.__getitem__)})
            sentences.append(f"Means with {scale} alpha: {measured}. The paper's, on MPII: {paper}.")
    return sentences


def _ascending(values: dict[Row, str]) -> str:
    return " < ".join(f"{row_name(row[:1])} {value}" for row, value in values.items())


def _best(view: View, study: Study) -> str:
    means = {row: at for row in study.rows if (at := view.sample(row, study.headline)) is not None}
    if not means:
        return ""
    best = max(means, key=lambda row: means[row].mean)
    text = f"The best row is {row_name(best)}: {means[best]} %"
    base: Row = ("none", best[1])
    over = view.difference(best, base, study.headline)
    return f"{text}, {over} points over {row_name(base)}." if over and best != base else f"{text}."


def _baseline(view: View, study: Study) -> str:
    baseline = view.sample(REAL, study.headline)
    means = [at.mean for row in study.rows if (at := view.sample(row, study.headline)) is not None]
    if baseline is None or not means:
        return ""
    gap = 100 * (baseline.mean - max(means))
    side = f"{gap:.2f} points above" if gap >= 0 else f"{-gap:.2f} points below"
    return f"The full-precision baseline reaches {baseline} %, {side} the best binary row."


def _asked(study: Study) -> str:
    missing, open_ = len(study.missing()), len(study.cells) - len(study.finished)
    if not missing + open_:
        return ""
    total = len(study.cells) + missing
    return (
        f"The study is unfinished: {len(study.finished)} of {total} trainings are done; numbers will change."
    )


def _pairs(study: Study) -> str:
    n = len(study.seeds)
    if n == 1:
        return "One seed only: there is no deviation and no interval, and differences may be chance."
    wide = ", so wide that only large differences can show" if n == 2 else ""
    return (
        f"{n} seeds: an interval is {student(n - 1):.1f} standard errors to each side{wide}. "
        "Of many comparisons of equals, one in twenty still leaves zero out by chance."
    )


def _chosen(study: Study) -> str:
    part = {"validation": "a validation part of the training data", "test": "the test data"}
    measured = f"Measured on {part[study.holdout]}. " if study.holdout in part else ""
    if rates := study.record.get("rates"):
        trainings = "one training" if rates["seeds"] == 1 else f"{rates['seeds']} trainings"
        return (
            f"{measured}Each row was trained at its best {axis_name(RATE)} of {len(rates['searched'])} in an "
            f"earlier study, {trainings} of each, measured on {part.get(rates['holdout'], 'test set')}."
        )
    if RATE not in study.axes:
        return measured.strip()
    note = (
        "so the best rows are flattered a little"
        if study.holdout == "validation"
        else "which flatters the best rows"
    )
    return (
        f"{measured}Each row stands at its best {axis_name(RATE)} of {len(study.axes[RATE])}, "
        f"the same for all its seeds, chosen by the very figures that are shown, {note}."
    )
