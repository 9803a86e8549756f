"""Unusable input: one line on stderr that says what was expected, what was found and what to do; status 2."""

import json
import resource
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.cli import main

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def fails(capfd):
    """Run a command that fails and return its line; what compiled libraries print counts too."""

    def fails(*arguments):
        capfd.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        lines = printed.err.splitlines()
        assert len(lines) == 1, printed.err
        assert lines[0].startswith("bitfactor")
        assert ": expected " in lines[0]
        assert ", found " in lines[0]
        assert "; " in lines[0]
        return lines[0]

    return fails


def test_unknown_command(fails):
    assert "did you mean train?" in fails("trian")


def test_unknown_recipe(fails, tmp_path):
    assert "found 'digit'; did you mean digits?" in fails("train", "digit", "--out", tmp_path / "run")
    assert "found 'resnet'; known are: digits, cifar10-resnet18" in fails("summary", "resnet")


def test_a_word_that_is_no_choice(fails, tmp_path):
    line = fails("reproduce", "table5", "--out", tmp_path)
    assert line.startswith("bitfactor reproduce: EXHIBIT: expected")
    assert "found 'table5'; did you mean table" in line


@pytest.mark.parametrize(
    "command",
    [("predict", "digits", "{}"), ("inspect", "{}"), ("export", "{}", "-o", "a.safetensors")],
)
def test_a_name_that_is_too_long_for_a_file(fails, command):
    long = "x" * 300
    assert f"{long}: expected " in fails(*(word.format(long) for word in command))


def test_an_empty_word(fails, tmp_path):
    assert "expected words, found an empty one" in fails("train", "digits", "--out", "")


@pytest.mark.parametrize("status", [0, 3])
def test_a_file_that_ends_the_program(fails, tmp_path, status):
    (tmp_path / "own.py").write_text(f"import sys; sys.exit({status})")
    assert f"found SystemExit: {status}; try `python own.py`" in fails("--import", tmp_path / "own.py", "zoo")


def test_what_an_imported_file_prints_is_not_in_the_json(tmp_path, capsys):
    (tmp_path / "own.py").write_text("print('hello')")
    assert main(["--import", str(tmp_path / "own.py"), "zoo", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)
    assert printed.err == "hello\n"


def test_a_size_that_a_network_does_not_take(fails, tmp_path):
    line = fails("freeze", "cifar10-resnet18", "-o", tmp_path / "a.bfp", "--size", "1", "1")
    assert "--size 1 1: expected a size that the network takes, found node" in line
    assert line.endswith("choose another")


def test_flags_that_a_command_has_no_use_for(fails, tmp_path):
    command = ["reproduce", "table1", "--small", "--out", tmp_path / "t", "--dry-run"]
    assert "jobs: expected 1 or more, found 0" in fails(*command, "--jobs", "0")
    assert "cuda:99" in fails(*command, "--devices", "cuda:99")
    (tmp_path / "a.png").write_bytes(PNG)
    assert "--top: expected a network that classifies" in fails(
        "predict", "lsp-hourglass", tmp_path / "a.png", "--top", "2"
    )


def test_one_network_at_a_time(fails, tmp_path):
    (tmp_path / "my.py").write_text("from torch import nn\nnet = nn.Linear(2, 2)\n")
    model = ["--model", f"{tmp_path / 'my.py'}:net"]
    line = fails("train", "digits", "--out", tmp_path / "run", *model, *model)
    assert "--model: expected one network" in line


def test_a_hint_names_each_flag_once(fails, tmp_path):
    line = fails("ablate", "digits", "--out", tmp_path, "--latnt", "x")
    assert line.endswith("did you mean --latent or --latent-rate?")


def test_recipe_left_out(fails):
    assert "expected the name of a recipe first (digits, " in fails("train", "--out", "x")
    assert "found nothing" in fails("train")


@pytest.mark.parametrize("command", ["predict", "bench", "evaluate"])
def test_missing_model_file(fails, tmp_path, command):
    images = [tmp_path / "digit.png"] if command == "predict" else []
    line = fails(command, tmp_path / "none.safetensors", *images)
    assert "none.safetensors: expected a bitfactor model file, found no such file" in line


def test_truncated_model_file(fails, exported, tmp_path):
    whole = exported.read_bytes()
    (tmp_path / "half.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "found a truncated or damaged file" in fails("bench", tmp_path / "half.safetensors")


def test_text_file_as_model(fails, tmp_path):
    (tmp_path / "notes.txt").write_text("not a model\n" * 50)
    assert "found a text file" in fails("bench", tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"not an image\n", "data that cannot be decoded"),
        (PNG, "data that cannot be decoded"),
        (b"", "an empty file"),
    ],
)
def test_another_file_as_image(fails, exported, tmp_path, content, found):
    (tmp_path / "digit.png").write_bytes(content)
    line = fails("predict", exported, tmp_path / "digit.png")
    assert f"expected an image (PNG, JPEG, ...), found {found}" in line


def test_missing_image(fails, exported, tmp_path):
    assert "found No such file or directory" in fails("predict", exported, tmp_path / "none.png")
    assert "expected an image, found none" in fails("predict", exported)


def test_missing_run(fails, tmp_path):
    for command in (
        ["export", tmp_path, "-o", tmp_path / "x.safetensors"],
        ["report", tmp_path, "-o", tmp_path / "x.html"],
    ):
        assert "expected the directory of a training run, found no such file" in fails(*command)
    assert list(tmp_path.iterdir()) == []


def test_run_with_other_settings(fails, run):
    line = fails("train", "digits", "--out", run, "--latent", "svd")
    assert "found a run with latent = 'holistic' instead of 'svd'" in line


def test_damaged_checkpoint(fails, tmp_path, run):
    copy = tmp_path / "run"
    copy.mkdir()
    (copy / "recipe.json").write_bytes((run / "recipe.json").read_bytes())
    assert "expected a checkpoint, found none yet" in fails("evaluate", copy)
    (copy / "checkpoint.ckpt").write_bytes((run / "checkpoint.ckpt").read_bytes()[:1000])
    assert "expected a checkpoint, found a file that cannot be read" in fails("evaluate", copy)


def test_checkpoint_of_another_network(fails, tmp_path, run):
    copy = tmp_path / "run"
    copy.mkdir()
    settings = json.loads((run / "recipe.json").read_text())
    settings["settings"]["binarization"]["latent"] = "svd"
    (copy / "recipe.json").write_text(json.dumps(settings))
    (copy / "checkpoint.ckpt").write_bytes((run / "checkpoint.ckpt").read_bytes())
    assert "expected the parameters of the network that recipe.json describes" in fails("evaluate", copy)
    torch.save({"weights": torch.zeros(3)}, copy / "checkpoint.ckpt")
    assert "found a file of torch that holds something else" in fails("evaluate", copy)
    settings["settings"]["binarization"]["colour"] = "red"
    (copy / "recipe.json").write_text(json.dumps(settings))
    assert "expected the settings of a run of this version" in fails("evaluate", copy)


def test_full_disk_while_training(fails, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        line = fails("train", "digits", "--out", tmp_path / "run", "--epochs", 1, "--batch-size", 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert "expected a place that can be written" in line
    assert not (tmp_path / "run").exists()


def test_settings_out_of_range(fails, tmp_path):
    assert "--batch-size: expected at most the 1,437 training images, found 5000" in fails(
        "train", "digits", "--out", tmp_path, "--batch-size", 5000
    )
    assert "runs: expected 1 or more" in fails("bench", tmp_path, "--runs", 0)


def test_loss_that_is_no_number(fails, tmp_path):
    line = fails("train", "digits", "--out", tmp_path / "run", "--learning-rate", "1e30", "--epochs", 1)
    assert "expected a loss that is a number" in line
    assert "lower --learning-rate" in line


def test_unknown_instruction_set(fails, exported):
    assert "expected an instruction set of this machine" in fails("bench", exported, "--isa", "sse9")


def test_output_that_cannot_be_written(fails, run, tmp_path):
    (tmp_path / "file").write_text("")
    assert "expected a directory, found a file" in fails(
        "export", run, "-o", tmp_path / "file" / "x.safetensors"
    )


def test_no_traceback_from_a_process():
    code = "import sys; from bitfactor.cli import main; sys.exit(main(['bench', '/does/not/exist']))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def export_one_layer(path, size, **options):
    model = nn.Sequential(nn.Flatten(), nn.Linear(size[0] * size[1], 10)).eval()
    bitfactor.binarize_(model, bitfactor.Binarization(latent="none", real_ends=False))
    bitfactor.export(model.eval(), path, torch.zeros(1, 1, *size), **options)


def test_a_file_of_a_recipe_that_does_not_say_how_images_are_prepared(fails, tmp_path):
    export_one_layer(tmp_path / "x.safetensors", (9, 9), provenance={"recipe": "digits"})
    assert "found no input specification" in fails("evaluate", tmp_path / "x.safetensors")


def test_file_that_names_no_recipe_or_no_images(fails, tmp_path):
    export_one_layer(tmp_path / "x.safetensors", (2, 2))
    assert "pass input_spec and labels" in fails("evaluate", tmp_path / "x.safetensors")
    (tmp_path / "digit.png").write_bytes(PNG)
    assert "found no input specification" in fails(
        "predict", tmp_path / "x.safetensors", tmp_path / "digit.png"
    )


def test_flags_of_another_task(fails, run):
    assert "--flip: expected a network that finds keypoints" in fails("evaluate", run, "--flip")
    assert "--page: expected a network that finds keypoints" in fails("evaluate", run, "--page", "x.html")
