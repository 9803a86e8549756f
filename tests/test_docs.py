"""The table of the rooms is what the code does; the study's tables and links are those of its logs."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from textwrap import indent
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitfactor.api.train import train
from bitfactor.cli import COMMANDS, function_of
from bitfactor.cli.flags import expect_known, flags_of, options_of
from bitfactor.cli.recipe import Asked, flags_of_all
from bitfactor.common.files import run_file
from bitfactor.decompositions import class_of
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import option_values, value_of, with_options
from bitfactor.study.plan import Plan
from bitfactor.training import OPTIMIZERS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [*DOCS.parent.glob("*.md"), DOCS.parent / "native/README.md", *DOCS.rglob("*.md")]


def script(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_rooms_is_that_of_the_code():
    architecture = script("architecture.py")
    assert architecture.written() == architecture.table(), "run python docs/architecture.py"


def test_the_drawings_of_concepts_are_those_of_their_script(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "images")
    for drawing in script("images/concepts.py").DRAWINGS:
        assert (DOCS / "images" / f"{drawing.__name__}.svg").read_text() == drawing()


def test_long_sentences_and_listed_phrases_are_found():
    findings = script("english.py").findings
    words = "one " * 25 + "[two](three four)."
    assert [one.split(":")[0] for one in findings(words + " Three `a b c` held-out pictures.")] == [
        "26 words",
        "'held-out' (say",
        "'pictures' (say",
    ]
    assert not list(findings("one " * 25 + "."))


def test_help_of_a_flag_is_read_too(tmp_path):
    file = tmp_path / "options.py"
    file.write_text('class Options:\n    size: int = 1\n    """Side of a\n    picture."""\n')
    assert list(script("english.py").docstrings(file)) == [(3, " Side of a picture.")]


def test_sentences_are_plain():
    assert script("english.py").main([]) == 0


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_draws_formulas_and_works_offline(tmp_path):
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(mkdocs, cwd=DOCS.parent, check=True)
    page = (tmp_path / "concepts/decompositions.html").read_text()
    assert page.count("<math") >= 6
    assert "arithmatex" not in page
    assert (tmp_path / "repository/examples/own_operation.py.html").exists()
    for made in tmp_path.rglob("*.html"):
        assert not re.search(r'(<script[^>]* src|<link[^>]* href|url\()="?https?:', made.read_text()), made


def test_the_tables_of_the_study_are_those_of_its_logs():
    evidence, page = script("results/evidence.py"), (DOCS / "results/evidence.md").read_text()
    for table in evidence.tables(evidence.read()).values():
        assert table in page, "run python docs/results/evidence.py"


def test_the_tables_of_the_front_are_those_of_its_results():
    front, page = script("results/front.py"), (DOCS / "results/front.md").read_text()
    files = (DOCS / "results/front.json", DOCS / "results/front-arm.json")
    results, counts = (json.loads(path.read_text()) for path in files)
    assert front.filled(page, front.parts(results, counts)) == page, "run python docs/results/front.py"


def test_the_tables_of_what_is_trained_here_are_those_of_its_results(monkeypatch):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    page = (DOCS / "results/front.md").read_text()
    made, _ = script("results/front_trained.py").parts()
    assert sys.modules["front"].filled(page, made) == page, "run python docs/results/front_trained.py"


def test_the_tables_of_parts_are_those_of_their_logs(monkeypatch):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    parts, page = script("results/parts.py"), (DOCS / "results/parts.md").read_text()
    table = parts.table({latent: parts.read(latent) for latent in parts.RATES}, parts.read_times())
    made = {"parts": table, "modern": parts.table_of_modern()}
    assert parts.filled(page, made) == page, "run python docs/results/parts.py"


def test_a_part_is_compared_with_its_baseline(monkeypatch):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    parts = script("results/parts.py")

    def trainings(accuracy):
        metrics = [{"accuracy": accuracy + seed / 100} for seed in (-1, 0, 1)]
        outcomes = [{"headline": "accuracy", "metrics": one} for one in metrics]
        return [{"seed": seed, "outcome": outcome} for seed, outcome in enumerate(outcomes)]

    none = {("baseline", ""): trainings(0.6), ("mixup", "0.2"): trainings(0.62)}
    timed = {"none": {"baseline": 1.0, "mixup 0.2": 1.5}, "window": {"baseline": 1.0}}
    lines = parts.table({"none": none, "window": {("baseline", ""): trainings(0.7)}}, timed).splitlines()
    assert lines[2:] == [
        "| baseline | [60.00 ± 1.00](parts/baseline-none.parquet) |  | 1.00 "
        "| [70.00 ± 1.00](parts/baseline-window.parquet) |  | 1.00 |",
        "| `--mixup 0.2` | [62.00 ± 1.00](parts/mixup-none.parquet) | +2.00 [−0.27, +4.27] | 1.50 | | | |",
    ]


def test_a_row_of_modern_is_compared_with_none_of_its_parts_and_with_all(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    parts = script("results/parts.py")
    for name, accuracy in (("baseline", 0.8), ("modern", 0.82), ("without-schedule", 0.81)):
        metrics = [{"accuracy": accuracy + seed / 1000} for seed in (-1, 0, 1)]
        outcomes = [{"headline": "accuracy", "metrics": one} for one in metrics]
        rows = [{"seed": seed, "outcome": outcome} for seed, outcome in enumerate(outcomes)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"modern-{name}.parquet")
    assert parts.table_of_modern(tmp_path).splitlines()[2:] == [
        "| none of them | [80.00 ± 0.10](parts/modern-baseline.parquet) |  | −2.00 [−2.20, −1.80] |",
        "| all | [82.00 ± 0.10](parts/modern-modern.parquet) | +2.00 [+1.80, +2.20] |  |",
        "| all without `--schedule` | [81.00 ± 0.10](parts/modern-without-schedule.parquet) "
        "| +1.00 [+0.80, +1.20] | −1.00 [−1.20, −0.80] |",
    ]


def test_the_rows_of_modern_train_with_all_its_parts_but_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    parts = script("results/parts.py")
    trained = [command for command in parts.commands_of_modern() if command.startswith("bitfactor ablate")]
    given = [{name for name in parts.MODERN if f"--{name} {parts.MODERN[name]}" in row} for row in trained]
    whole = {*parts.MODERN}
    assert given == [set(), whole, *(whole - {one} for one in parts.MODERN), {*parts.LEFT}]
    estimators = [row.count("--weight-estimator") for row in trained]
    assert estimators == [1] * len(trained), "the estimator of the baseline is said"


def test_each_part_is_timed_with_the_options_of_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "front", script("results/front.py"))
    parts = script("results/parts.py")
    for command in parts.commands():
        if found := re.search(r"--latent (\w+) --learning-rate (\S+) .*--vary (\S+) (\S+)", command):
            latent, rate, option, value = found.groups()
            recipe = with_options(recipe_named(parts.RECIPE), parts.options_of(latent, option, value))
            plan, values = recipe.optimization, option_values(recipe)
            assert (plan.steps, plan.precision, recipe.data.holdout) == (1560, "bfloat16", "validation")
            assert (values["latent"], plan.learning_rate) == (latent, float(rate))
            assert values[option.replace("-", "_")] == value_of(value)


def test_beyond_what_was_trained_the_learning_curve_goes_on():
    curve = script("results/evidence.py").Curve({100: 0.4, 1000: 0.2})
    assert curve.error(10_000) == pytest.approx(0.1)
    for steps in (10, 300, 5000):
        assert curve.steps(curve.error(steps)) == pytest.approx(steps)


@pytest.mark.parametrize("plan", [DOCS / "results/optimizers.toml", DOCS.parent / "examples/plan.toml"])
def test_plans_are_sound(plan):
    assert len(Plan.read(plan).comparisons) > 1


def test_every_log_of_the_study_is_linked_and_there():
    texts = "".join(page.read_text() for page in (DOCS / "results").glob("*.md"))
    linked = set(re.findall(r"\(evidence/([\w-]+)\.parquet\)", texts))
    assert linked == {path.stem for path in (DOCS / "results/evidence").iterdir()}


AN_ALPHA = "test-alpha-holistic-1560.parquet", "holistic", "analytic"  # a log that names no rate


def test_every_log_of_the_study_can_be_trained_again_by_its_command(monkeypatch):
    monkeypatch.setattr("bitfactor.common.files._LOADED", {})
    monkeypatch.setitem(OPTIMIZERS, "adam", OPTIMIZERS["adam"])  # which a draft replaces
    evidence = script("results/evidence.py")
    kinds = {}
    for log in evidence.LOGS.iterdir():
        for training in pq.read_table(log, columns=["command", "axes", "outcome"]).to_pylist():
            kinds[log.name, training["axes"]["latent"], training["axes"]["scale"]] = training
    commands = {tuple(evidence.replayed(one)[:-2]) for one in kinds.values()}  # without --out NAME
    assert "--factor-rate 1/rank" in " ".join(evidence.replayed(kinds[AN_ALPHA]))
    assert len(commands) > 100
    number = re.compile(r"[\d.]+(e-?\d+)?")
    differing = {tuple(number.fullmatch(w) is None and w for w in words): words for words in sorted(commands)}
    for words in differing.values():  # where numbers alone differ, one tells for the others
        start = words.index("train")
        for file in words[2:start:2]:
            run_file(DOCS.parent / file)
        asked = Asked.of("train", train, [*words[start + 1 :], "--out", "run"])
        recipe = with_options(asked.recipe, asked.options)
        assert not recipe.idle().keys() & asked.options.keys(), words
        if class_of(recipe.binarization.latent).takes:
            assert "factor_rate" in asked.options, words
        if asked.recipe.name.startswith("cifar10"):
            assert "weight_estimator" in asked.options, words


def headings(page):
    """Return the anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Those to other sites are well-formed, and nothing more is known of them."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)]*)\)|^\[[^\]]+\]: (.+)$|<(http[^>]*)>", text, re.MULTILINE)
    for link in map("".join, links):
        place, _, heading = link.partition("#")
        if "://" in place:
            assert re.fullmatch(r"[\w.~:/?=&%+@,-]+", place), link
            assert urlsplit(place).scheme == "https", link
            assert re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", urlsplit(place).netloc), link
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        first = re.sub(r"-\d+$", "", heading)  # of headings with the same words
        assert not heading or {heading, first} & headings(target), link


@cache
def flags_of_command(name):
    recipes = name in ("train", "ablate", "summary")
    return list(flags_of_all(name) if recipes else flags_of(options_of(function_of(name))))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_commands_of_a_page_have_its_flags(page):
    """In sentences, and in blocks."""
    text = page.read_text().replace("\\\n", " ")
    text = re.sub(r"```sh\n(.*?)```", lambda block: indent(block[1], "    "), text, flags=re.DOTALL)
    in_blocks = re.findall(r"^ {4,}(?:\S+ .*-m )?bitfactor (.*)$", text, re.MULTILINE)
    in_sentences = re.findall(r"(?<!`)`bitfactor ([^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in [*in_blocks, *in_sentences]:
        words = shlex.split(line, comments=True)
        while words[:1] == ["--import"]:
            del words[:2]
        if words and words[0] in COMMANDS:
            expect_known(words[0], words[1:], flags_of_command(words[0]))
        else:
            assert line in ("--help", "--version") or words[0] in ("help", "COMMAND"), line
