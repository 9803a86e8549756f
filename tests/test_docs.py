"""The drawing of the rooms is what the code does; the study's first table and links are those of its logs."""

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def script(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_that_of_the_code():
    architecture = script("architecture.py")
    assert architecture.drawn() == architecture.drawing(), "run python docs/architecture.py"


def test_the_table_of_the_study_is_that_of_its_logs():
    evidence = script("results/evidence.py")
    table = evidence.glance(evidence.over_free(evidence.read()))
    assert table in (DOCS / "results/evidence.md").read_text(), "run python docs/results/evidence.py"


def test_every_log_of_the_study_is_linked_and_there():
    texts = "".join(page.read_text() for page in (DOCS / "results").glob("*.md"))
    linked = set(re.findall(r"\(evidence/([\w-]+)\.parquet\)", texts))
    assert linked == {path.stem for path in (DOCS / "results/evidence").iterdir()}
