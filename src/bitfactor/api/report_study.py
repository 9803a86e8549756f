"""The page of a study."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bitfactor.api.network import network_at
from bitfactor.api.pose_page import examples
from bitfactor.api.poses import find_joints, people_of
from bitfactor.atomic import replacing
from bitfactor.bench import BenchReport, bench
from bitfactor.format import load
from bitfactor.report.document import Figure
from bitfactor.report.html import write_document
from bitfactor.report.markdown import write_markdown
from bitfactor.report.study.comparison import claims, row_name, setting_name, views, without_rate
from bitfactor.report.study.directory import REAL, Cell, Study, read_study
from bitfactor.report.study.finding import caution, finding
from bitfactor.report.study.lines import cells_csv
from bitfactor.report.study.page import document

_RUNS = 50
_PEOPLE = 4


def write_study(directory: Path, output: Path, form: str, data: Path | None) -> dict[str, object]:
    """Write the study in `directory` to `output`, and return what was found as plain types.

    Raises
    ------
    InputError
        If the study cannot be read, or the file not be written.
    """
    study = read_study(directory)
    if form == "csv":
        with replacing(output) as temporary:
            temporary.write_text(cells_csv(study), encoding="utf-8")
        return summary_of(study)
    study = _with_speed(study)
    page = document(study, _examples(study, data))
    (write_document if form == "html" else write_markdown)(page, output)
    return summary_of(study)


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
                        "by_seed": view.values(row, study.headline),
                        **(asdict(found) if (found := view.sample(row, study.headline)) else {}),
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
        "unfinished": len(study.cells) - len(study.finished),
    }


def _with_speed(study: Study) -> Study:
    """Measure the exported networks, unless that has been done."""
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
    with replacing(study.path / "speed.json") as temporary:
        temporary.write_text(json.dumps(speed, indent=2) + "\n")
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
    """Return the exported network of a training of each row, at one learning rate."""
    first: dict[object, Cell] = {}
    for cell in study.finished:
        if _network(study, cell).exists():
            first.setdefault((cell.row, without_rate(cell.setting)), cell)
    return {cell.name: _network(study, cell) for cell in first.values()}


def _network(study: Study, cell: Cell) -> Path:
    return study.path / "cells" / cell.name / "net.safetensors"


def _examples(study: Study, data: Path | None) -> list[Figure]:
    """Return people whom the best binary network does best, in the middle and worst with."""
    cells = [cell for cell in study.finished if cell.row != REAL and _network(study, cell).exists()]
    if data is None or not cells:
        return []
    from bitfactor.report.poses import montage

    best = max(cells, key=lambda cell: cell.metric(study.headline) or 0.0)
    network = network_at(_network(study, best))
    if not network.finds_joints:
        return []
    people = people_of(network, data)
    parts = examples(people, find_joints(people), _PEOPLE)
    return [
        Figure(f"poses-{title.lower().replace(' ', '-')}", montage(shown), f"{title}: {best.name}.", "jpg")
        for title, shown in parts.items()
    ]
