"""A study's report holds all tables and figures, as page, Markdown and CSV."""

import csv
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from statistics import stdev
from types import SimpleNamespace

import pytest

from bitfactor.cli import main
from bitfactor.study import read_study
from bitfactor.study.documents import (
    Chapter,
    Document,
    Figure,
    Table,
    write_html,
    write_latex,
    write_markdown,
)
from bitfactor.study.page import command_of, document

VOID = {"meta", "br", "img", "link", "path", "use", "rect"}


class Page(HTMLParser):
    """Checks that elements close in turn; gathers tables, headings and what comes from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.titles, self.outside, self.cell = [], [], [], [], None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.outside += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:"))
        ]
        if tag in ("script", "link", "iframe"):
            self.outside.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and "table" in self.open:
            self.tables[-1].append([])
        elif tag in ("td", "th", "h2"):
            self.cell = ""

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
        elif tag == "h2":
            self.titles.append(self.cell)
        if tag in ("td", "th", "h2"):
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data


@pytest.fixture(scope="module")
def made(make_study, tmp_path_factory):
    """The document of a study of two latents that has everything."""
    place, rates, latents = tmp_path_factory.mktemp("s") / "s", (0.001, 0.01), ("none", "tucker")
    return document(read_study(make_study(place, seeds=(0, 1), rates=rates, latents=latents)))


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("html") / "page.html"
    write_html(made, path)
    return path.read_text()


def markdown_tables(text):
    """Return the tables of a Markdown text, without their heads' rules."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    return [[_cells(line) for line in lines] for lines in blocks]


def _cells(line):
    return [cell.replace("\\|", "|") for cell in re.split(r" (?<!\\)\| ", f"{line[2:]} ")[:-1]]


def test_page_is_whole_and_holds_nothing_from_outside(page):
    parsed = Page(page)
    assert parsed.outside == []
    assert not re.search(r"url\((?!#)|@import", page)
    assert page.count("<svg") == page.count("</svg>") >= 7
    assert parsed.titles[:2] == ["Accuracy", "Differences to a free weight"]
    for title in ("By learning rate", "Training", "Flips", "Scaling factors", "Weights before the sign"):
        assert title in parsed.titles


def test_page_shows_the_tables_of_the_document(made, page):
    expected = [[list(row) for row in table.rows] for chapter in made.chapters for table in chapter.tables]
    shown = [
        [row for row in table if row][-len(rows) :]
        for table, rows in zip(Page(page).tables, expected, strict=True)
    ]
    assert shown == expected


def test_page_says_how_to_train_each_row_again(made, page):
    commands = [command for chapter in made.chapters for _, command in chapter.commands]
    assert len(commands) == 2 * (4 + 1)
    assert all(f"<pre>{command}</pre>" in page for command in commands)


def test_a_study_whose_first_setting_has_no_results_has_a_page(make_study, tmp_path):
    study = make_study(tmp_path / "s", seeds=(0,), budgets=(2, 6), latents=("none",), real=False)
    for cell in (study / "cells").glob("*epochs=2"):
        (cell / "outcome.json").unlink()
    assert "What a training takes" in [chapter.title for chapter in document(read_study(study)).chapters]


def test_text_is_no_markup(tmp_path):
    table = Table(["a<b"], [["<script>alert(1)</script>"]])
    write_html(Document("<i>", ["<b>"], [], [Chapter("&", tables=[table])]), tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    assert "<script>" not in text
    assert "&lt;i&gt;" in text
    assert Page(text).tables == [[["a<b"], ["<script>alert(1)</script>"]]]


def test_markdown_holds_the_same_tables_and_its_figures_lie_beside(made, tmp_path):
    write_markdown(made, tmp_path / "study.md")
    text = (tmp_path / "study.md").read_text()
    expected = [[list(row) for row in table.rows] for chapter in made.chapters for table in chapter.tables]
    _, *found = markdown_tables(text)
    assert [table[2:] for table in found] == expected
    images = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(images) == len(set(images)) >= 7
    for image in images:
        assert (tmp_path / image).read_text().startswith("<svg")
    assert {path.name for path in (tmp_path / "study").iterdir()} == {name.split("/")[1] for name in images}


def test_photos_stand_in_the_page_and_beside_the_markdown(tmp_path):
    chapter = Chapter("Poses", figures=[Figure("best", b"\xff\xd8 bytes", "Best.", "jpg")])
    found = Document("t", [], [], [chapter])
    write_html(found, tmp_path / "x.html")
    assert 'src="data:image/jpeg;base64,/9ggYnl0ZXM="' in (tmp_path / "x.html").read_text()
    write_markdown(found, tmp_path / "x.md")
    assert (tmp_path / "x" / "best.jpg").read_bytes() == b"\xff\xd8 bytes"


@pytest.mark.usefixtures("undrawn")
def test_command_measures_exported_networks_once(make_study, exported, tmp_path, capsys):
    study = make_study(tmp_path / "s", seeds=(0,), latents=("none",), scales=("learned",), real=False)
    shutil.copy(exported, study / "cells" / "none-learned-seed0" / "net.safetensors")
    call = ["report", str(study), "-o", str(tmp_path / "page.html")]
    assert main([*call, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["settings"][0]["rows"][0]["by_seed"] == {"0": 0.52}
    speed = json.loads((study / "speed.json").read_text())
    (network,) = speed["cells"].values()
    assert network["bytes"] == exported.stat().st_size
    (table,) = [table for table in Page((tmp_path / "page.html").read_text()).tables if "bytes" in table[0]]
    assert table[1][:2] == ["none, learned", f"{network['bytes']:,}"]
    assert table[1][-1] == f"{network['torch_times']:.1f}"
    before = (study / "speed.json").stat().st_mtime_ns
    assert main(call) == 0
    assert (study / "speed.json").stat().st_mtime_ns == before


def test_command_writes_csv(study, tmp_path, capsys):
    assert main(["report", str(study), "-o", str(tmp_path / "s.csv"), "--format", "csv"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 's.csv'}\n"
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))) == 27


def test_csv_has_a_second_file_of_means_and_spares_a_strangers(study, tmp_path, capsys):
    (tmp_path / "s-means.csv").write_text("mine")
    command = ["report", str(study), "-o", str(tmp_path / "s.csv"), "--format", "csv"]
    assert main(command) == 2
    assert "s-means.csv: expected a new file" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    lines = csv.DictReader(io.StringIO((tmp_path / "s-means.csv").read_text()))
    found = {(line["latent"], line["scale"]): line for line in lines}
    values = [0.5, 0.504, 0.508]
    line = found["none", "analytic"]
    assert float(line["mean"]) == pytest.approx(0.504)
    assert float(line["deviation"]) == pytest.approx(stdev(values))
    assert line["n"] == "3"
    half = 4.302653 * stdev(values) / 3**0.5
    assert float(line["high"]) - float(line["low"]) == pytest.approx(2 * half, rel=1e-5)
    assert ("real", "") in found


@pytest.mark.usefixtures("undrawn")
def test_latex_holds_the_same_tables(study, tmp_path):
    assert main(["report", str(study), "-o", str(tmp_path / "s.tex"), "--format", "latex"]) == 0
    text = (tmp_path / "s.tex").read_text()
    rows = [
        row
        for chapter in document(read_study(study)).chapters
        for table in chapter.tables
        for row in table.rows
    ]
    assert text.count("\\toprule") == text.count("\\bottomrule") == text.count("\\begin{table}") >= 5
    assert all(line.count("&") == lines[0].count("&") for lines in _bodies(text) for line in lines)
    assert sum(map(len, _bodies(text))) == len(rows)
    assert not re.search(r"(?<!\\)[%#_]", text.partition("\n")[2])
    assert "Tucker, learned" in text
    assert r"54.40 $\pm$ 0.40 & 84.40 $\pm$ 0.40 & 3 & 53.41 to 55.39" in text
    assert "hash of code & abc123" in text
    assert text.count("{") == text.count("}")
    if shutil.which("pdflatex"):
        _compile(tmp_path / "s.tex")


def _compile(tables):
    """Let LaTeX read the tables as a paper would."""
    paper = tables.with_name("paper.tex")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    paper.write_text(rf"{head}\input{{{tables.name}}}\end{{document}}")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", paper.name]
    done = subprocess.run(command, cwd=tables.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_latex_takes_any_text(tmp_path):
    words = "a\\b {x} 50% & $1 #2 _3 ~ ^ < > | ± − – × 4\n5 [*] 漢"
    table = Table(["head", words], [[words, 1], ["[", "*"]])
    write_latex(Document("t", [], [("fact", words)], [Chapter(words, tables=[table])]), tmp_path / "s.tex")
    if shutil.which("pdflatex"):
        _compile(tmp_path / "s.tex")
    text = (tmp_path / "s.tex").read_text()
    escaped = r"a\textbackslash{}b \{x\} 50\% \& \$1 \#2 \_3 \textasciitilde{} \textasciicircum{} "
    assert escaped + r"$<$ $>$ $|$ $\pm$ $-$ -- $\times$ 4 5 [*] U+6F22" in text
    assert r"{[} & {*} \\" in text
    text = re.sub(r"\\[\\{}%&$#_]", "", text)
    assert text.count("{") == text.count("}")


def _bodies(text):
    """Return the lines of each table's body."""
    return [
        body.strip().splitlines() for body in re.findall(r"\\midrule\n(.*?)\\bottomrule", text, re.DOTALL)
    ]


def test_figures_carry_the_options_that_they_were_trained_with(toy_cells, tmp_path):
    out = tmp_path / "study"
    command = ["ablate", "digits", "--out", str(out), "--latent", "none", "tucker", "--scale", "learned"]
    assert main([*command, "--seeds", "1", "--epochs", "2", "--jobs", "1"]) == 0
    (shared, differing) = next(
        chapter for chapter in document(read_study(out)).chapters if chapter.title == "Hyperparameters"
    ).tables
    assert ["learning_rate", "0.004"] in shared.rows
    assert differing.rows == [["latent", "none", "tucker"]]
    main(["report", str(out), "-o", str(tmp_path / "s.parquet"), "--format", "parquet"])
    stored = read_study(tmp_path / "s.parquet")
    assert [one.options for one in stored.trainings] == [one.options for one in read_study(out).trainings]
    main(["report", str(out), "-o", str(tmp_path / "s.csv"), "--format", "csv"])
    lines = csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text()))
    assert {line["batch_size"] for line in lines} == {"64"}


def test_a_run_has_no_parquet(tmp_path, capsys):
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "x.parquet"), "--format", "parquet"]) == 2
    assert "format: expected html, markdown, latex or csv for a run" in capsys.readouterr().err


def test_damaged_study_is_one_line(study, tmp_path, capsys):
    (study / "study.json").write_text("{")
    assert main(["report", str(study), "-o", str(tmp_path / "x.html")]) == 2
    assert "study.json: expected what `bitfactor ablate` writes" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_over_budgets_each_row_stands_at_its_best_rate(make_study, accuracy, tmp_path):
    study = make_study(tmp_path / "s", seeds=(0, 1), rates=(0.001, 0.01), budgets=(3, 18), real=False)
    made = document(read_study(study))
    (chapter,) = (chapter for chapter in made.chapters if chapter.title == "By epochs")
    (figure,) = chapter.figures
    assert (figure.name, b"<svg" in figure.image) == ("epochs", True)
    rows = {row[0]: row[1:] for row in chapter.tables[0].rows}
    best = [100 * max(accuracy("none", "learned", seed, rate) for rate in (0.001, 0.01)) for seed in (0, 1)]
    assert rows["none, learned"][0].startswith(f"{sum(best) / 2:.2f}")
    assert rows["none, learned"][2].startswith(f"{sum(best) / 2 + 10:.2f}")
    assert [rows["none, learned"][i] for i in (1, 3)] == ["2", "2"]


def test_a_command_names_the_files_that_it_imports_without_their_paths():
    words = ("bitfactor", "--import", "/home/me/own.py", "train", "digits", "--data", "/d", "--out", "/o")
    training = SimpleNamespace(command=words, cell=SimpleNamespace(name="none-seed0"))
    told = command_of(training)
    assert told == "bitfactor --import own.py train digits --data DIR --out none-seed0"
