"""Networks of others come through whole. `benchmarks/gallery.py` has them, and makes the table in docs."""

import os
import runpy
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # networks are built from configurations alone
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "gallery.py"))
NETWORKS = list(SCRIPT["GALLERY"])


@pytest.mark.parametrize("name", ["bert", "u-net", "two-towers"])
def test_a_small_network_comes_through(name):
    outcome = SCRIPT["tried"](name, "none", small=True, repeats=0)
    assert outcome.binary_fraction > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("latent", SCRIPT["LATENTS"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_comes_through_with_every_latent(name, latent):
    outcome = SCRIPT["in_a_process"](name, latent, small=True, repeats=0)
    assert outcome.error == ""
    assert outcome.binary_fraction > 0.1


def test_a_network_that_fails_is_named_in_the_table():
    row = SCRIPT["table"]([SCRIPT["Outcome"]("net", "none", "InputError: no")])
    assert "| net | InputError: no |" in row
    assert row.startswith("0 of 1")


def test_a_table_is_put_below_the_words_of_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Words\n\n47 of 48 on one CPU\n\n| old |\n")
    SCRIPT["write_table"](page, "48 of 48 on another\n")
    assert page.read_text() == "# Words\n\n48 of 48 on another\n"
