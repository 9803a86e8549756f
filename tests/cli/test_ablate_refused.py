"""What a study cannot be is refused in one line, before anything is written."""

import pytest


def test_what_a_launcher_does_not_take_is_refused_before_it_is_asked(refused, tmp_path):
    command = ["ablate", "digits", "--out", tmp_path / "study", "--launcher", "local"]
    line = refused(*command, "--launcher-option", "partitoin", "gpu")
    assert "--launcher local: expected a job that it takes, found Unknown argument 'partitoin'" in line
    assert "--tasks: expected 1 or more, found 0" in refused(*command, "--tasks", "0")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--seed", "3"], "--seed: expected a flag that is the same in all trainings"),
        (["--from", "runs/a"], "--from: expected a flag that is the same in all trainings"),
        (["--device", "cpu"], "--device: expected a flag that is the same in all trainings"),
        (["--vary", "model", "my.py:Net"], "--model: expected a flag that is the same in all trainings"),
        (["--vary", "move", "on", "--no-move"], "--move: expected a flag that is the same in all trainings"),
        (["--vary", "latent", "svd"], "--vary: expected no latent, found latent, beside --latent"),
        (["--vary", "rank", "2", "--vary", "rank", "4"], "--vary: expected each flag once, found rank twice"),
        (["--latent", "none", "--latent", "svd"], "--latent: expected each flag once, found 2 times; join"),
        (["--vary", "no-move", "on", "off"], "--vary: expected an option without no-, found no-move"),
        (
            ["--latent", "layer1.?=svd *=none", "layer1.*=svd *=none", "--scale", "learned"],
            "study: expected values that differ in letters or digits, which directories are named by, found "
            "layer1.?=svd *=none and layer1.*=svd *=none; give each",
        ),
        (["--latent", f"{'a*.' * 90}b=svd *=none"], "study: expected names of directories of at most 255"),
        (["--latent", "none", "--rank", "4"], "--rank: expected a row that it changes something for"),
        (["--latent", "none", "--vary", "rank", "4"], "--rank: expected a row that it changes something for"),
        (["--no-weights", "--weight-estimator", "rms"], "--weight-estimator: expected a row that it changes"),
        (
            ["--no-weights", "--vary", "weight_estimator", "rms", "clipped"],
            "--weight-estimator: expected a row",
        ),
        (["--tasks", "3"], "--tasks: expected a --launcher"),
        (["--launcher", "local", "--dry-run"], "--dry-run: expected no --launcher, as it times steps here"),
        (["--devices", "cpu", "cpu+cpu", "--dry-run"], "--devices: expected one for each training, to time"),
        (["--launcher-option", "time", "3"], "--launcher-option: expected a --launcher"),
        (["--vary", "epochs", "1", "2", "--epochs", "3"], "--epochs: expected a flag that is the same"),
        (["--latent", "none", "none"], "values of latent: expected one or more, each once, found none none"),
        (["--vary", "epochs"], "values of epochs: expected one or more, each once, found none"),
        (["--seeds", "0"], "seeds: expected 1 or more, found 0"),
        (["--jobs", "0"], "jobs: expected 1 or more, found 0"),
        (["--factor-rate", "-0.1"], "--factor-rate: expected "),
        (["--learning-rate", "-1"], "--learning-rate: expected a number above 0"),
        (
            ["--halving", "--eval-interval", "2", "--epochs", "3"],
            "--halving: expected a search on validation images, evaluated three times or more",
        ),
        (["--widths", "8", "16"], "--widths: expected 4 numbers above 0"),
    ],
)
def test_flags_that_cannot_be_are_refused_before_anything_is_written(refused, tmp_path, flags, line):
    if flags[0] == "--widths":
        flags = [*flags, "--blocks", "1", "1", "1", "1"]
    assert line in refused("ablate", "digits", "--out", tmp_path / "study", *flags)
    assert not (tmp_path / "study").exists()


def test_halving_is_not_for_what_is_evaluated_on_test_images(refused, tmp_path):
    line = refused("ablate", "cifar10-resnet18", "--out", tmp_path / "study", "--halving")
    assert "evaluated three times or more in each training, found --holdout test" in line
    assert not (tmp_path / "study").exists()


def test_a_flag_that_train_does_not_have_is_refused(refused, tmp_path):
    line = refused("ablate", "digits", "--out", tmp_path / "study", "--epoch", "3")
    assert "--epoch: expected a flag of `bitfactor ablate digits`" in line
    assert "did you mean --epochs" in line
    assert not (tmp_path / "study").exists()
