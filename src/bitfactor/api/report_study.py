"""The page of a study."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bitfactor.api.network import network_at
from bitfactor.api.pose_page import examples
from bitfactor.api.poses import find_keypoints, instances_of
from bitfactor.bench import BenchReport, bench
from bitfactor.format import load
from bitfactor.report import Document, Figure
from bitfactor.study import REAL, Study, StudyDirectory
from bitfactor.study.comparison import claims, row_name, setting_name, views, without_rate
from bitfactor.study.finding import caution, finding
from bitfactor.study.page import document

_RUNS = 50
_PEOPLE = 4


def study_document(study: Study, data: Path | None) -> Document:
    """Return the page of a study, after its exported networks have been timed, if they have not been."""
    return document(with_speed(study), _examples(study, data))


def summary_of(study: Study) -> dict[str, object]:
    """Return sentences, rows and comparisons at each setting, with fractions in place of percent."""
    all_views = views(study)
    return {
        "finding": [*finding(all_views[0], study), *caution(study)],
        "metric": study.headline,
        "settings": [
            {
                "setting": setting_name(view.setting),
                "rows": [
                    {
                        "row": row_name(row),
                        "learning_rate": view.rate(row),
                        "by_seed": view.values(row),
                        **(asdict(found) if (found := view.sample(row)) else {}),
                    }
                    for row in (*study.rows, REAL)
                ],
                "comparisons": [
                    {
                        "row": row_name(claim.ours),
                        "over": row_name(claim.theirs),
                        "verdict": claim.verdict,
                        **(asdict(claim.found) if claim.found else {}),
                    }
                    for claim in claims(view, study)
                ],
            }
            for view in all_views
        ],
        "missing": len(study.missing()),
        "unfinished": len(study.trainings) - len(study.finished),
    }


def with_speed(study: Study) -> Study:
    """Time the exported networks, unless that has been done, and keep the figures in the directory."""
    files = _files(study)
    known: Mapping[str, Any] = study.speed["cells"] if study.speed else {}
    if all(known.get(name, {}).get("bytes") == file.stat().st_size for name, file in files.items()):
        return study
    measured, status = {}, Console(stderr=True, highlight=False)
    for name, file in files.items():
        status.print(f"timing {name}")
        measured[name] = bench(file, against=("torch",), runs=_RUNS)
    speed = {
        "machine": next(iter(measured.values())).machine,
        "runs": _RUNS,
        "cells": {name: _sizes(files[name], found) for name, found in measured.items()},
    }
    StudyDirectory(study.path).write_speed(speed)
    return replace(study, speed=speed)


def _sizes(file: Path, found: BenchReport) -> dict[str, Any]:
    ours, *others = found.engines
    torch = next(engine for engine in others if "float32" in engine["name"])
    return {
        "bytes": file.stat().st_size,
        "float_bytes": load(file).report["float_bytes"],
        "torch_times": torch["median_ms"] / ours["median_ms"],
        "engines": list(found.engines),
    }


def _files(study: Study) -> dict[str, Path]:
    """Return the exported network of a training of each row, at one learning rate, by the training's name."""
    files: dict[object, tuple[str, Path]] = {}
    for one in study.finished:
        if one.network is not None:
            files.setdefault((one.cell.row, without_rate(one.setting)), (one.cell.name, one.network))
    return dict(files.values())


def _examples(study: Study, data: Path | None) -> list[Figure]:
    """Return instances whom the best binary network does best, in the middle and worst with."""
    networks = {
        one.network: one for one in study.finished if one.cell.row != REAL and one.network is not None
    }
    if data is None or not networks:
        return []
    from bitfactor.report.poses import montage

    best = max(networks, key=lambda path: networks[path].metric(study.headline) or 0.0)
    network = network_at(best)
    if not network.finds_keypoints:
        return []
    instances = instances_of(network, data)
    parts, name = examples(instances, find_keypoints(instances), _PEOPLE), networks[best].cell.name
    return [
        Figure(f"poses-{title.lower().replace(' ', '-')}", montage(shown), f"{title}: {name}.", "jpg")
        for title, shown in parts.items()
    ]
