"""A run from Python: trained, resumed on its own images, started from another's weights, exported."""

import json
import re
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

import bitfactor
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Tucker
from bitfactor.format import load as load_file
from bitfactor.nn import BinaryLayer
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS
from bitfactor.recipes import recipe_named
from bitfactor.recipes.runs import network_options, source_of
from bitfactor.training import Run, TerminatedError
from bitfactor.training.estimate import between

SMALL = {"blocks": (1, 1), "widths": (8, 16), "progress": False, "seed": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    return bitfactor.train("digits", out=out, latent="tucker", epochs=1, **SMALL)


def write_images(directory, seed):
    random = np.random.default_rng(seed)
    for label in ("left", "right"):
        for i in range(8):
            image = random.integers(0, 256, (20, 20, 3), np.uint8)
            path = directory / label / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    return directory


def folder_run(data, out, epochs=1, **options):
    small = {"size": 16, "batch_size": 4, "widths": (8,), "blocks": (1,), "stem": "cifar", "progress": False}
    choices = {"latent": "none", "shortcuts": "block", "warmup_epochs": 0.0} | small | options
    return bitfactor.train("folder-resnet18", out=out, data=data, epochs=epochs, **choices)


def test_it_prints_how_far_it_came_and_on_which_images(trained):
    assert "epoch 1 of 1, step 22" in str(trained)
    assert "of 360 test images" in str(trained)
    assert trained.history[-1]["epoch"] == 1
    assert json.loads(trained.to_json())["step"] == 22
    assert trained.recipe.binarization.latent == "tucker"


@pytest.mark.usefixtures("undrawn")
def test_it_evaluates_exports_reports_and_loads(trained, tmp_path):
    accuracy = trained.evaluate().accuracy
    trained.export(tmp_path / "net.safetensors")
    assert bitfactor.evaluate(tmp_path / "net.safetensors").accuracy == accuracy
    assert trained.report(tmp_path / "page.html").output.exists()
    model = bitfactor.load(trained)
    assert not model.training
    assert any(isinstance(module, BinaryLayer) for module in model.modules())
    assert bitfactor.load(trained.path, best=True)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_the_file_says_how_far_it_was_trained(trained, tmp_path, capsys):
    report = trained.export(tmp_path / "net.safetensors")
    provenance = load_file(tmp_path / "net.safetensors").provenance
    assert [provenance[name] for name in ("step", "epoch", "epochs")] == ["22", "1", "1"]
    assert provenance["metric"].endswith("of 360 test images (scikit-learn's digits)")
    assert not any("not finished" in warning for warning in report.warnings)


def test_a_file_states_no_result_of_other_signs(tmp_path):
    """The run was stopped in its second epoch: the metric is of the end of the first."""

    def stop(step, loss):
        if step == 30:
            signal.raise_signal(signal.SIGTERM)

    hook = SimpleNamespace(on_train_batch_end=stop)
    with pytest.raises(TerminatedError):
        bitfactor.train("digits", out=tmp_path / "run", latent="none", epochs=2, callbacks=[hook], **SMALL)
    bitfactor.api.train.TrainedRun(tmp_path / "run").export(tmp_path / "net.safetensors")
    provenance = load_file(tmp_path / "net.safetensors").provenance
    assert (provenance["epoch"], "metric" in provenance) == ("1", False)


def test_a_half_trained_run_is_called_that(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bitfactor.training.loop._Loop._keep_records", stop)
    with pytest.raises(KeyboardInterrupt):
        bitfactor.train("digits", out=tmp_path / "run", latent="none", epochs=8, **SMALL)
    monkeypatch.undo()
    report = bitfactor.api.train.TrainedRun(tmp_path / "run").export(tmp_path / "net.safetensors")
    assert any("trained 1 of 8 epochs" in warning for warning in report.warnings)
    assert load_file(tmp_path / "net.safetensors").provenance["epochs"] == "8"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rat": 1}, "did you mean learning_rate"),
        ({"latent": "tuker"}, "did you mean tucker"),
        ({"epochs": 1.5}, "an integer"),
        ({"batch_size": True}, "an integer"),
        ({"batch_size": 2000}, "at most the 1,437 training images"),
        ({"rank": 0}, "rank"),
        ({"data": "x"}, "none"),
        ({"device": "gpu"}, "auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:99"}, "GPUs"),
        ({"model": "nothing.py:Net"}, "nothing.py"),
        ({"start_from": "nothing"}, "a training run"),
        ({"plateaus": 4}, "the schedule 'step'"),
        ({"blocks": (0, 1)}, "--blocks: expected numbers above 0, one per stage, found 0 1"),
        ({"seed": -1}, r"--seed: expected 0 or more, and below 2\*\*64, found -1"),
        ({"seed": 2**64}, r"--seed: expected 0 or more, and below 2\*\*64"),
        ({"teacher_weight": 0.1}, "a --teacher"),
    ],
    ids=str,
)
def test_what_is_refused_leaves_nothing_behind(options, words, tmp_path):
    with pytest.raises(InputError, match=words) as error:
        bitfactor.train("digits", out=tmp_path / "run", **SMALL | options)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_directory_of_a_run(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match="expected a directory, found a file"):
        bitfactor.train("digits", out=tmp_path / "run", **SMALL)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_corrupt_image_in_the_first_batch_does_not_block_the_next_try(tmp_path):
    data = write_images(tmp_path / "images", 0)
    for path in (data / "left").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(InputError):
        folder_run(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    write_images(data, 0)
    folder_run(data, tmp_path / "run", learning_rate=0.01)


def test_a_run_remembers_its_images(tmp_path):
    data, other = write_images(tmp_path / "images", 0), write_images(tmp_path / "others", 1)
    run = folder_run(data, tmp_path / "run")
    with pytest.raises(InputError, match="expected the images that it began with") as error:
        folder_run(other, tmp_path / "run")
    assert str(other) in str(error.value)
    again = folder_run(None, tmp_path / "run")
    assert again.history == run.history
    assert again.evaluate().images == run.evaluate(data=data).images
    moved = tmp_path / "moved"
    shutil.move(data, moved)
    assert folder_run(moved, tmp_path / "run").history == run.history
    assert folder_run(other, tmp_path / "run", other_data=True).history == run.history


def test_a_run_starts_from_the_weights_of_another(trained, tmp_path):
    sources = {
        "tucker": trained,
        "float": bitfactor.train("digits", out=tmp_path / "f", real=True, epochs=1, **SMALL),
    }
    for name, source in sources.items():
        again = bitfactor.train(
            "digits",
            out=tmp_path / name,
            start_from=source,
            latent="svd",
            epochs=1,
            learning_rate=1e-9,
            **SMALL,
        )
        old, new = source.model(), again.model()
        assert torch.allclose(old.fc.weight, new.fc.weight, atol=1e-5)
        layer = new.get_submodule("layer1.0.conv1")
        W = old.get_submodule("layer1.0.conv1").weight
        torch.testing.assert_close(
            layer.latent().detach(), torch.as_tensor(W.clone()).detach(), atol=1e-4, rtol=1e-3
        )
    record = json.loads((tmp_path / "tucker" / "recipe.json").read_text())
    assert record["from"] == str(trained.path)
    for trial in (False, True):
        wide = SMALL | {"widths": (12, 32), "dry_run": trial}
        with pytest.raises(
            InputError, match="--from: expected a network with layers of the same name and shape"
        ):
            bitfactor.train("digits", out=tmp_path / "wide", start_from=trained, **wide)


def test_a_run_starts_from_an_exported_file_and_from_the_zoo(trained, tmp_path, monkeypatch):
    file = tmp_path / "net.safetensors"
    trained.export(file)
    run = bitfactor.train(
        "digits", out=tmp_path / "run", start_from=file, latent="none", steps=1, learning_rate=1e-9, **SMALL
    )
    old, new = trained.model(), run.model()
    for name in ("layer1.0.conv1", "layer1.0.conv2"):
        layers = old.get_submodule(name), new.get_submodule(name)
        assert torch.equal(*(layer.binary_weight() for layer in layers))
    torch.testing.assert_close(*(layer.alpha() for layer in layers), rtol=1e-3, atol=1e-5)  # the last one's
    torch.testing.assert_close(new.fc.weight, old.fc.weight)
    (tmp_path / "digits").mkdir()  # the name of a network is no path
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    first = source_of("zoo:digits").network.state_dict()
    torch.manual_seed(2)
    again = source_of("zoo:digits").network.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    trained.export(tmp_path / "int8.safetensors", real="int8")
    levels = source_of(tmp_path / "int8.safetensors").network
    torch.testing.assert_close(levels.fc.weight, old.fc.weight, rtol=0, atol=0.01)
    reals = source_of(file).network
    torch.testing.assert_close(levels.conv1.weight, reals.conv1.weight, rtol=0, atol=0.01)
    zoo = bitfactor.train("digits", out=tmp_path / "zoo", start_from="zoo:digits", steps=1)
    assert json.loads((tmp_path / "zoo" / "recipe.json").read_text())["from"] == "zoo:digits"
    assert zoo.model()(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_a_network_to_start_from_gives_the_options_that_are_not_named(trained, tmp_path, capfd):
    run = bitfactor.train("digits", out=tmp_path / "run", start_from=trained, latent="none", steps=1)
    assert f"digits: blocks 1 1, widths 8 16, as {trained} has them" in capfd.readouterr().err
    assert run.model().fc.in_features == 16
    theirs = network_options("zoo:cifar10-resnet18", recipe_named("folder-resnet18"))
    assert theirs["widths"] == (32, 64, 128)
    assert "num_classes" not in theirs
    assert network_options("zoo:cifar10-resnet18", recipe_named("lsp-hourglass")) == {}
    assert "keypoints" not in network_options("zoo:lsp-hourglass", recipe_named("mpii-hourglass"))
    more = {"start_from": trained, "blocks": (1, 1, 1), "widths": (8, 16, 32), "latent": "none", "steps": 1}
    wider = bitfactor.train("digits", out=tmp_path / "wider", progress=False, **more)
    assert wider.model().fc.in_features == 32
    assert bitfactor.train("digits", out=tmp_path / "wider", progress=False, **more).history == wider.history


@pytest.mark.parametrize("name", ["best.ckpt", "log.jsonl", "recipe.json", "checkpoint.ckpt"])
def test_a_directory_with_files_of_others_is_not_written_to(name, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text('{"mine": 1}')
    with pytest.raises(InputError, match=f"found one with another's {name}; choose another --out"):
        bitfactor.train("digits", out=tmp_path / "run", steps=1, progress=False)
    assert (tmp_path / "run" / name).read_text() == '{"mine": 1}'


def test_a_finished_training_of_a_study_is_not_trained_over(trained, tmp_path):
    cell = shutil.copytree(trained.path, tmp_path / "cell")
    (cell / "outcome.json").write_text("{}")
    (cell / "checkpoint.ckpt").unlink()
    with pytest.raises(InputError, match="found a finished training of a study; choose another --out"):
        bitfactor.train("digits", out=cell, steps=1, progress=False)
    with pytest.raises(InputError, match=r"take net\.safetensors, which a study keeps, or train it with"):
        bitfactor.load(cell)


def test_a_network_of_ones_own_may_move_with_its_runs(tmp_path):
    code = "from torch import nn\ndef Net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "one").mkdir()
    (tmp_path / "one/my.py").write_text(code)
    same = {"real": True, "limit": 128, "progress": False, "epochs": 1}
    first = bitfactor.train("digits", model=f"{tmp_path}/one/my.py:Net", out=tmp_path / "one/run", **same)
    before = first.history
    (tmp_path / "one").rename(tmp_path / "two")
    again = bitfactor.train("digits", model=f"{tmp_path}/two/my.py:Net", out=tmp_path / "two/run", **same)
    assert again.history == before
    (tmp_path / "two/my.py").write_text(code.replace("Flatten()", "Flatten(), nn.Identity()"))
    with pytest.raises(InputError, match=r"found a run with (spec|sha256) = "):
        bitfactor.train("digits", model=f"{tmp_path}/two/my.py:Net", out=tmp_path / "two/run", **same)


def test_a_source_or_a_teacher_that_is_not_finished_is_told(tmp_path, monkeypatch):
    half = bitfactor.train("digits", out=tmp_path / "half", epochs=2, **SMALL)
    rows = Run(half.path).history()
    monkeypatch.setattr(Run, "history", lambda run: rows[:1] if run.path == half.path else rows)
    changes = {"progress": False, "steps": 1, **{name: SMALL[name] for name in SMALL if name != "progress"}}
    with pytest.warns(UserWarning, match="--from .*half: 1 of its 2 epochs are trained"):
        bitfactor.train("digits", out=tmp_path / "from", start_from=half, **changes)
    with pytest.warns(UserWarning, match="--teacher .*half: 1 of its 2 epochs are trained"):
        bitfactor.train("digits", out=tmp_path / "taught", teacher=str(half.path), **changes)


def test_signs_of_a_stage_of_real_weights_are_called_that(tmp_path, monkeypatch):
    run = bitfactor.train("digits", out=tmp_path / "run", latent="none", epochs=2, **SMALL)
    record = json.loads((run.path / "recipe.json").read_text())
    record["settings"]["optimization"] |= {"epochs": 4, "real_weight_epochs": 3}
    (run.path / "recipe.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="2 of the 3 epochs of real weights are trained; their signs are"):
        bitfactor.evaluate(run.path)


def test_a_run_goes_on_when_what_it_started_from_is_gone(trained, tmp_path):
    source = shutil.copytree(trained.path, tmp_path / "source")
    same = {"out": tmp_path / "run", "latent": "none", "steps": 1, "progress": False}
    first = bitfactor.train("digits", start_from=source, **same)
    shutil.rmtree(source)
    assert bitfactor.train("digits", start_from=source, **same).history == first.history
    with pytest.raises(InputError, match="other"):
        bitfactor.train("digits", start_from=tmp_path / "other", **same)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("zoo:digit", "digits"),
        ("nothing.safetensors", "expected the directory of a training run"),
        ("zoo:lsp-hourglass", "--from: expected a network with layers of the same name and shape"),
    ],
)
def test_a_network_to_start_from_that_is_none_or_of_another_shape(place, message, tmp_path):
    with pytest.raises(InputError, match=message):
        bitfactor.train("digits", out=tmp_path / "run", start_from=place, epochs=1)
    assert not (tmp_path / "run").exists()


def test_a_setting_that_this_version_does_not_know(trained, tmp_path, capsys):
    shutil.copytree(trained.path, tmp_path / "run")
    record = tmp_path / "run" / "recipe.json"
    record.write_text(record.read_text().replace('"tucker"', '"tuker"'))
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "tuker" in line


def test_a_trial_is_within_half_of_the_truth(tmp_path):
    """Of what a training takes on a machine that others use as well."""
    options = {"latent": "tucker", "epochs": 3, "progress": False, "limit": 720}
    trial = bitfactor.train("digits", out=tmp_path / "run", dry_run=True, **options)
    fastest, slowest = trial.hours_range
    assert fastest <= trial.hours <= slowest
    assert trial.to_dict()["hours_range"] == [fastest, slowest]
    assert f"{between(trial.hours_range)} by the fastest and the slowest" in str(trial)
    assert not (tmp_path / "run").exists()
    run = bitfactor.train("digits", out=tmp_path / "run", **options)
    seconds = sum(row["seconds"] for row in run.history)
    assert seconds / 4 < trial.hours * 3600 < 4 * seconds


OF_ONE_LAYOUT = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        x = self.second(self.first(x))
        return self.last(x.view(len(x), -1))
"""


HALF = "--precision bfloat16 --channels-last"


def test_a_trial_says_how_long_a_step_would_take_in_bfloat16(tmp_path, monkeypatch):
    def tried(quick, **options):
        monkeypatch.setattr("bitfactor.training.estimate._STEPS", 4)
        monkeypatch.setattr("bitfactor.training.estimate.cpu_multiplies_bfloat16", lambda: quick)
        return bitfactor.train("digits", out=tmp_path, dry_run=True, progress=False, limit=720, **options)

    (tmp_path / "net.py").write_text(OF_ONE_LAYOUT)
    trial = tried(True)
    assert [*trial.others] == [HALF]
    assert trial.others[HALF] > 0
    assert tried(True, precision="bfloat16", channels_last=True).others == {}
    assert tried(False).others == {}
    assert tried(True, model=f"{tmp_path / 'net.py'}:Net").others == {}
    tip = f"with {HALF} a step takes 0.500 s"
    assert tip in str(replace(trial, seconds=0.6, others={HALF: 0.5}))
    assert tip not in str(replace(trial, seconds=0.55, others={HALF: 0.5}))
    assert "compile" not in str(replace(trial, seconds=0.6, others={HALF: 0.5, f"{HALF} --compile": 0.5}))
    assert "--compile a step takes 0.4" in str(replace(trial, seconds=0.6, others={"--compile": 0.4}))


def test_a_trial_times_both_stages(tmp_path, monkeypatch):
    def steps(experiment, stepper, seconds, step):
        stage = {True: [2.0, 4.0], False: [1.0, 1.0]}[step > 0]
        stepper.set_stage(step)
        return 2.5, stage

    monkeypatch.setattr("bitfactor.training.estimate._first_steps", steps)
    same = {"out": tmp_path, "dry_run": True, "progress": False, "limit": 720, "precision": "bfloat16"}
    trial = bitfactor.train("digits", epochs=4, real_weight_epochs=1, **same)
    assert trial.seconds == (1 + 3 * 3) / 4
    assert trial.spread == ((1 + 3 * 2) / 4, (1 + 3 * 4) / 4)
    assert bitfactor.train("digits", epochs=4, **same).seconds == 1


def test_a_long_trial_says_how_long_a_step_of_a_compiled_network_would_take(tmp_path, monkeypatch):
    def tried(quick, **options):
        monkeypatch.setattr("bitfactor.training.estimate._STEPS", 4)
        monkeypatch.setattr("bitfactor.training.estimate.cpu_multiplies_bfloat16", lambda: quick)
        trial = bitfactor.train("digits", out=tmp_path, dry_run=True, progress=False, **options)
        return [*trial.others]

    built = []
    monkeypatch.setattr(torch, "compile", lambda network: built.append(network) or network)
    assert tried(False, limit=720, epochs=1) == []
    assert built == []
    assert tried(False, epochs=100_000) == ["--compile"]
    assert tried(False, epochs=100_000, diagnose=5) == []
    monkeypatch.setattr("bitfactor.training.estimate._QUICKER", 100.0)
    assert tried(True, epochs=100_000) == [HALF, f"{HALF} --compile"]
    assert tried(True, epochs=100_000, compile=True) == [HALF]


def flags(**options):
    """Return options as the command line has them."""
    for name, value in options.items():
        yield f"--{'no-' * (value is False)}{name.replace('_', '-')}"
        if not isinstance(value, bool):
            yield from value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(
    ("of", "name", "value", "needed"),
    [
        ({"latent": "none"}, "groups", "auto", "the latent holistic"),
        ({"latent": "none"}, "factor_rate", 0.1, "a latent with factors"),
        ({"scale": "analytic"}, "alpha_rate", 0.1, "a learned scale"),
        ({"latent": "window"}, "orthogonality", 0.1, "factors that start orthonormal"),
        ({"real": True}, "latent", "tucker", "a binary network"),
        ({"real": True}, "factor_rate", 0.1, "a binary network"),
        ({"real": True}, "latent_rate", 0.1, "a binary network"),
        ({"real": True}, "alpha_rate", 0.1, "a binary network"),
        ({"real": True}, "real_weight_epochs", 1, "a binary network"),
        ({"weights": False}, "weight_estimator", "rms", "binary weights"),
        ({"weights": False}, "real_weight_epochs", 1, "binary weights"),
        ({"activations": False}, "activation_estimator", "annealed", "binary activations"),
        ({"activations": False}, "input_scale", True, "binary activations"),
        ({"real": True}, "optimizer", "muon", "a binary network"),
        ({"weight_decay": 0.0}, "decayed", ("factors",), "a weight decay"),
        ({"crop": False}, "crop_area", 0.3, "crops at random"),
        ({"preset": "paper"}, "crop_area", 0.3, "the preset 'standard'"),
        ({"preset": "paper"}, "mirror", False, "the preset 'standard'"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(of, name, value, needed, tmp_path, capsys):
    with pytest.raises(InputError, match=re.escape(f"{name}: expected {needed} for {value!r}")):
        bitfactor.train("folder-resnet18", data=tmp_path, out=tmp_path / "run", **of, **{name: value})
    command = ["train", "folder-resnet18", "--data", tmp_path, *flags(**of, **{name: value})]
    assert main([*map(str, command), "--out", str(tmp_path / "run")]) == 2
    assert f"leave {name} out" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def half_slope(x):
    return 0.5 * (x.abs() < 1)


@pytest.fixture
def _estimators_as_before():
    before = [dict(table) for table in (ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS)]
    yield
    for table, entries in zip((ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS), before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("_estimators_as_before", "undrawn")
def test_objects_and_choices_by_layer_are_kept_as_words(tmp_path, capsys):
    chosen = {"latent": {"layer1": "svd", "*": Tucker}, "rank": {"layer1": 0.5}}
    options = chosen | {"activation_estimator": half_slope, "epochs": 1, "limit": 64}
    bitfactor.train("digits", out=tmp_path / "run", **SMALL | options)
    settings = json.loads((tmp_path / "run" / "recipe.json").read_text())["settings"]["binarization"]
    assert settings["latent"] == ["layer1=svd", "*=tucker"]
    assert settings["rank"] == ["layer1=0.5"]
    assert settings["activation_estimator"] == "half_slope"
    flags = "--latent layer1=svd *=tucker --rank layer1=0.5 --activation-estimator half_slope --epochs 1"
    flags += " --limit 64 --blocks 1 1 --widths 8 16 --seed 1"
    capsys.readouterr()
    assert main(["train", "digits", "--out", str(tmp_path / "run"), *flags.split()]) == 0
    assert "epoch 1 of 1" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "layer1=svd *=tucker" in page
    assert "half_slope" in page
