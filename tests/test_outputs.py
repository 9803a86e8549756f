"""No command replaces a file that bitfactor did not write, nor writes one with an ending that lies."""

from functools import partial

import pytest
import torch

import bitfactor
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.format import load
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c
from bitfactor.targets.onnx import export_onnx

STRANGER = "somebody's own work\n"
# Of each command that writes: its words, the file it writes, and the same with an ending that does not fit.
WRITERS = {
    "inspect": ("inspect digits --svg", "net.svg", "net.safetensors"),
    "freeze": ("freeze digits -o", "net.bfp", "net.bin"),
    "export c": ("export digits -o", "net.c", "net.cpp"),
    "export onnx": ("export digits -o", "net.onnx", "net.pb"),
    "bench": ("bench digits --runs 1 --chart", "net.png", "net.jpeg"),
    "predict csv": ("predict digits photo.png --csv", "net.csv", "net.tsv"),
    "predict drawing": ("predict lsp-hourglass photo.png -o", "drawn.png", "drawn.gif"),
    "evaluate": ("evaluate digits --confusion", "matrix.svg", "matrix.pdf"),
}
MARKED = ["inspect", "freeze", "export c", "export onnx"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    import cv2
    import numpy as np

    monkeypatch.chdir(tmp_path)
    cv2.imwrite("photo.png", np.zeros((20, 20, 3), np.uint8))
    return tmp_path


@pytest.mark.parametrize("writer", WRITERS)
def test_a_strangers_file_is_kept_unless_it_may_be_replaced(writer, place, capfd):
    words, name, _ = WRITERS[writer]
    (place / name).write_text(STRANGER)
    assert main([*words.split(), name]) == 2
    assert "expected a new file, or one that bitfactor wrote" in capfd.readouterr().err
    assert (place / name).read_text() == STRANGER
    assert main([*words.split(), name, "--overwrite"]) == 0
    assert (place / name).read_bytes() != STRANGER.encode()


@pytest.mark.parametrize("writer", WRITERS)
def test_an_ending_that_does_not_fit_is_refused(writer, place, capfd):
    words, _, name = WRITERS[writer]
    assert main([*words.split(), name]) == 2
    assert "name" in capfd.readouterr().err
    assert not (place / name).exists()


@pytest.mark.parametrize("writer", MARKED)
def test_what_bitfactor_wrote_is_written_again(writer, place):
    words, name, _ = WRITERS[writer]
    assert main([*words.split(), name]) == 0
    assert main([*words.split(), name]) == 0


def test_the_header_of_a_c_file_is_kept_too(place):
    (place / "net.h").write_text(STRANGER)
    assert main(["export", "digits", "-o", "net.c"]) == 2
    assert (place / "net.h").read_text() == STRANGER
    assert not (place / "net.c").exists()


class Doubled(torch.nn.Module):
    """A model that the file cannot hold as a whole."""

    def __init__(self):
        super().__init__()
        self.conv = bitfactor.nn.BinaryConv2d(4, 4, 3)

    def forward(self, x):
        return torch.linalg.svdvals(self.conv(x))


def exported(name, on_unsupported="error", **options):
    model = (
        Doubled() if on_unsupported == "split" else torch.nn.Sequential(bitfactor.nn.BinaryConv2d(4, 4, 3))
    )
    return bitfactor.export(
        model.eval(), name, torch.randn(2, 4, 5, 5), on_unsupported=on_unsupported, **options
    )


PYTHON = {
    "net.safetensors": exported,
    "net.zip": partial(exported, on_unsupported="split"),
    "net.c": lambda name, **options: export_c(load(file_of("digits")), name, **options),
    "net.h": lambda name, **options: export_c(load(file_of("digits")), name[:-1] + "c", **options),
    "net.onnx": lambda name, **options: export_onnx(load(file_of("digits")), name, **options),
    "net.bfp": lambda name, **options: bitfactor.freeze("digits", name, **options),
}


@pytest.mark.filterwarnings("ignore:.*has no input_spec")
@pytest.mark.parametrize("name", PYTHON)
def test_no_function_replaces_a_strangers_file(name, place):
    write = PYTHON[name]
    (place / name).write_text(STRANGER)
    with pytest.raises(InputError, match=r"expected a new file.*overwrite=True"):
        write(name)
    assert [file.name for file in place.glob("net.*")] == [name]
    assert (place / name).read_text() == STRANGER
    write(name, overwrite=True)
    assert (place / name).read_bytes() != STRANGER.encode()
    write(name)


@pytest.mark.parametrize("name", ["index.html", "page.css", "net.bfp"])
def test_a_page_beside_what_a_stranger_left(name, place, capfd):
    (place / "site").mkdir()
    (place / "site" / name).write_text(STRANGER)
    assert main(["page", "digits", "-o", "site"]) == 2
    assert "pass --overwrite" in capfd.readouterr().err
    assert [file.name for file in (place / "site").iterdir()] == [name]
    assert main(["page", "digits", "-o", "site", "--overwrite"]) == 0
    assert main(["page", "digits", "-o", "site"]) == 0


@pytest.mark.parametrize("name", ["log.jsonl", "report", "notes.txt", "recipe.json"])
def test_a_report_is_no_file_of_the_run(name, run, place, capfd):
    assert main(["report", str(run), "-o", name]) == 2
    assert "expected a name in .html" in capfd.readouterr().err


def test_a_report_keeps_a_strangers_page(run, place):
    (place / "index.html").write_text(STRANGER)
    assert main(["report", str(run), "-o", "index.html"]) == 2
    assert (place / "index.html").read_text() == STRANGER
    (place / "train.csv").write_text(STRANGER)
    assert main(["report", str(run), "--format", "csv", "-o", "train.csv"]) == 2
    assert main(["report", str(run), "--format", "csv", "-o", "train.csv", "--overwrite"]) == 0


@pytest.mark.usefixtures("undrawn")
def test_the_figures_of_a_report_in_markdown_replace_no_strangers(run, place, capfd):
    (place / "notes").mkdir()
    (place / "notes" / "training.png").write_text(STRANGER)
    command = ["report", str(run), "--format", "markdown", "-o", "notes.md"]
    assert main(command) == 2
    assert "notes: expected no folder of that name" in capfd.readouterr().err
    assert (place / "notes" / "training.png").read_text() == STRANGER
    assert main([*command, "--overwrite"]) == 0


def test_a_page_that_is_opened_by_double_click_says_what_it_needs(place):
    assert main(["page", "digits", "-o", "site"]) == 0
    before_the_module = (place / "site" / "index.html").read_text().partition('<script type="module"')[0]
    assert 'location.protocol === "file:"' in before_the_module
    assert "web server" in before_the_module
