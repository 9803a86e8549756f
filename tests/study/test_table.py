"""A study as one file: nothing is lost, and what is no such file is named."""

import dataclasses
import json

import pyarrow
import pytest
from pyarrow import parquet

from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.study import Cell, StudyDirectory, read_study
from bitfactor.study.page import document
from bitfactor.study.table import write_table


def round_trip(study, path):
    write_table(study, path)
    return dataclasses.replace(read_study(path), path=study.path)


@pytest.mark.parametrize(
    "asked",
    [
        {"rates": (0.001, 0.003)},
        {"latents": ("none",), "real": False, "seeds": (4,)},
        {"latents": ("none", "svd", "tucker"), "scales": ("learned",)},
    ],
)
def test_all_of_a_study_comes_back(make_study, tmp_path, asked):
    study = read_study(make_study(tmp_path / "s", **asked))
    assert round_trip(study, tmp_path / "s.parquet") == study


def test_unfinished_trainings_chosen_rates_and_latencies_come_back(make_study, add_cell, tmp_path):
    path = make_study(tmp_path / "s", seeds=(0,), scales=("learned",), latents=("none", "svd"))
    add_cell(path, {"latent": "svd", "scale": "learned"}, 1, 0.5, epochs=2)
    add_cell(path, {"latent": "none", "scale": "learned"}, 1, 0.5, epochs=2)
    StudyDirectory(path).cell(Cell({"latent": "none", "scale": "learned"}, 1)).give_up(diverged=True)
    (path / "speed.json").write_text(json.dumps({"machine": "A CPU", "runs": 50, "cells": {}}))
    record = json.loads((path / "study.json").read_text())
    rates = {"chosen": {"none-learned": 0.003}, "searched": [0.003], "seeds": 1, "holdout": None}
    (path / "study.json").write_text(json.dumps({**record, "rates": rates}))
    study = read_study(path)
    assert study.design.choices.chosen == {"none-learned": {"learning_rate": 0.003}}
    assert round_trip(study, tmp_path / "s.parquet") == study


def test_a_study_that_has_not_begun_comes_back(make_study, tmp_path):
    study = read_study(make_study(tmp_path / "s", seeds=(), real=False))
    assert round_trip(study, tmp_path / "s.parquet") == study


@pytest.mark.usefixtures("undrawn")
def test_its_page_is_that_of_the_directory(make_study, tmp_path):
    study = make_study(tmp_path / "s", latents=("none", "svd"), scales=("learned",))
    file = tmp_path / "s.parquet"
    assert main(["report", str(study), "--format", "parquet", "-o", str(file)]) == 0
    assert document(read_study(file)) == document(read_study(study))
    assert main(["report", str(file), "--format", "markdown"]) == 0
    assert (tmp_path / "report.md").read_text().startswith("# digits: ")


def write_text(path):
    path.write_text("no table")


def write_another_table(path):
    parquet.write_table(pyarrow.table({"a": [1]}), path)


def write_another_version(path):
    about = json.dumps({"design": {"recipe": "digits", "colour": "red"}, "holdout": None, "speed": None})
    table = pyarrow.table({"a": [1]}).replace_schema_metadata({"bitfactor": about})
    parquet.write_table(table, path)


@pytest.mark.parametrize("write", [None, write_text, write_another_table, write_another_version])
def test_another_file_is_one_line(tmp_path, write):
    path = tmp_path / "s.parquet"
    if write is not None:
        write(path)
    with pytest.raises(InputError, match="expected a study that `bitfactor report --format parquet` wrote"):
        read_study(path)
