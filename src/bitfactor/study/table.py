"""A study as one Parquet file: a row for each training, and what the study is in the file's metadata.

Logs are lists of epochs, layers lists of records; `pandas.read_parquet(path)` reads it too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from bitfactor.common.checks import record
from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing
from bitfactor.recipes.own import value_of
from bitfactor.study.grid import Cell, Design, Outcome, Study, Training, Value, setting_of, text_of
from bitfactor.study.statistics import RATE
from bitfactor.training.metrics.latents import LayerRecord

_KEY = b"bitfactor"


def write_table(study: Study, path: Path) -> None:
    """Write all that is known of a study but its networks."""
    about = {"design": asdict(study.design), "holdout": study.holdout, "speed": study.speed}
    table = pyarrow.Table.from_pylist([_bare(_row(training)) for training in study.trainings])
    with replacing(path) as temporary:
        parquet.write_table(
            table.replace_schema_metadata({_KEY: json.dumps(about)}), temporary, compression="zstd"
        )


def read_table(path: Path) -> Study:
    """Read what `write_table` wrote."""
    try:
        table = parquet.read_table(path)
        about = json.loads(table.schema.metadata[_KEY])
        design = Design.of(about["design"])
        trainings = [_training(_bare(row), design) for row in table.to_pylist()]
    except (OSError, pyarrow.ArrowException, ValueError, KeyError, TypeError) as error:
        raise InputError(
            path,
            expected="a study that `bitfactor report --format parquet` wrote",
            found=str(error).splitlines()[0],
            fix="write it again from the study's directory",
        ) from error
    return Study(path, design, trainings, about["holdout"], about["speed"])


def _row(training: Training) -> dict[str, Any]:
    layers = [
        {
            **asdict(layer),
            "layer": name,
            "spectra": [{"factor": factor, "values": values} for factor, values in layer.spectra.items()],
        }
        for name, layer in training.layers.items()
    ]
    return {
        "training": training.cell.name,
        **asdict(training.cell),
        "axes": _of_one_type(training.cell.axes),
        "chosen": _of_one_type(training.cell.chosen),
        "command": training.command,
        "outcome": asdict(training.outcome) if training.outcome else None,
        "log": training.log,
        "layers": layers,
        "given_up": training.given_up,
        "diverged": training.diverged,
        "record": json.dumps(training.record),
    }


def _of_one_type(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values as a column has them: as words, but learning rates."""
    return {name: value if name == RATE else text_of(value) for name, value in values.items()}


def _training(row: Mapping[str, Any], design: Design) -> Training:
    known = {**(design.choices.searched if design.choices else {}), **design.axes}
    words = {"axes": {}, **({} if "rate" in row else {"chosen": {}}), **row}
    cell = Cell.of(words | {part: _meant(words[part], known) for part in ("axes", "chosen") if part in words})
    outcome = row.get("outcome")
    return Training(
        cell,
        setting_of(cell, design.axes),
        tuple(row["command"]),
        row["log"],
        record(Outcome, outcome) if outcome else None,
        {layer["layer"]: _layer(layer) for layer in row["layers"]},
        given_up=row.get("given_up", False),
        diverged=row.get("diverged", False),
        record=json.loads(row.get("record", "{}")),
    )


def _meant(words: Mapping[str, Value], known: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    """Return the values that `_of_one_type` made words of, as the design has them, and in its order."""
    texts = {name: {text_of(value): value for value in values} for name, values in known.items()}
    names = [name for name in {**known, **words} if name in words]
    return {name: texts.get(name, {}).get(text_of(words[name]), value_of(words[name])) for name in names}


def _layer(stored: Mapping[str, Any]) -> LayerRecord:
    values = {name: value for name, value in stored.items() if name != "layer"}
    return record(
        LayerRecord, {**values, "spectra": {one["factor"]: one["values"] for one in stored["spectra"]}}
    )


def _bare(value: Any) -> Any:
    """Return a value without fields that are null, as those are that only other rows have, or empty."""
    if isinstance(value, Mapping):
        return {name: _bare(one) for name, one in value.items() if one is not None and one != {}}
    return [_bare(one) for one in value] if isinstance(value, list) else value
