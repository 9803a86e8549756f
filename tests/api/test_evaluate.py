"""Which images a figure is of, how many, and that it is the same with and without torch."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bitfactor.api.evaluate import _confidence, classify, evaluate, images_of
from bitfactor.api.network import Network
from bitfactor.common.errors import InputError
from bitfactor.data.readers.evaluation_set import EvaluationSet
from bitfactor.data.readers.identity import published
from bitfactor.format.file import load, save
from bitfactor.recipes import RECIPES
from bitfactor.recipes.resnet import folder_resnet18

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

sys.meta_path.insert(0, Missing())
from bitfactor.cli import main
sys.exit(main(sys.argv[2:]))
"""


TRAINING = "torch torchmetrics lightning_fabric tensorboard matplotlib jinja2 webdataset h5py"
OTHERS = " sklearn scipy"


def without_torch(*arguments, missing=TRAINING):
    command = [sys.executable, "-c", WITHOUT, missing, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_needs_no_data_named(of_parted, parted):
    found = evaluate(of_parted[0])
    assert found.images == f"15 test images in {parted}/val"
    assert found.notes == ()
    assert f"% of 15 test images in {parted}/val ({found.correct} of 15 right)\n" in str(found)
    assert evaluate(SimpleNamespace(path=of_parted[0])).to_dict() == found.to_dict()


@pytest.mark.parametrize(
    ("evaluated", "expected"),
    [
        ("15 test images in /a b/val", "15 test images in val"),
        (
            "3 validation images (a tenth of the training images in /a/b)",
            "3 validation images (a tenth of the training images in b)",
        ),
        ("6 of the 15 test images in /a/val, equally many", "6 of the 15 test images in val, equally many"),
        (r"15 test images in C:\a\val", "15 test images in val"),
        ("360 digits", "360 digits"),
    ],
)
def test_a_file_does_not_say_where_its_images_were(evaluated, expected, tmp_path):
    identity = {"path": "/a", "fingerprint": "0", "evaluated": evaluated}
    (tmp_path / "recipe.json").write_text(json.dumps({"data_identity": identity}))
    told = json.loads(published(tmp_path)["data_identity"])
    assert told == {"fingerprint": "0", "evaluated": expected}


@pytest.mark.parametrize("place", ["val", "."])
def test_a_file_and_its_run_say_the_same(of_parted, parted, place):
    run, file = of_parted
    in_torch, from_file = (evaluate(path, data=parted / place) for path in (run, file))
    assert in_torch.to_dict() == from_file.to_dict()
    assert from_file.images == f"15 test images in {parted}/val"
    assert from_file.notes == ()


def test_without_torch_the_same_as_with(of_parted, parted):
    file = of_parted[1]
    done = without_torch("evaluate", file, "--data", parted, "--json", missing=TRAINING + OTHERS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == evaluate(file, data=parted).to_dict()


def test_digits_without_torch(exported):
    done = without_torch("evaluate", exported, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == evaluate(exported).to_dict()


def test_check_data_without_torch(parted):
    done = without_torch("check-data", parted, missing=TRAINING + OTHERS)
    assert done.returncode == 0, done.stderr
    assert "no problems" in done.stdout


def test_what_needs_torch_says_so(of_parted, exported, tmp_path):
    line = without_torch("evaluate", of_parted[0]).stderr
    assert (
        "expected the package torch, found that it is not installed; pip install 'bitfactor[train]'" in line
    )
    model = load(exported)
    model.provenance["heatmaps"] = "linear"
    save(tmp_path / "poses.safetensors", model)
    line = without_torch("evaluate", tmp_path / "poses.safetensors", "--data", "x").stderr
    assert line.startswith("bitfactor evaluate: evaluating the poses of ")
    assert "pip install 'bitfactor[train]'" in line


def test_class_directories_of_the_training_are_not_measured_whole(of_flat, flat):
    run, file = of_flat
    expected = f"6 validation images (a tenth of the training images in {flat})"
    for found in (evaluate(run), evaluate(run, data=flat), evaluate(file, data=flat)):
        assert (found.images, found.notes) == (expected, ())


def test_a_test_set_alone_is_measured_whole(of_flat, colours, tmp_path):
    place = colours(tmp_path / "new", 4, seed=7)
    for path in of_flat:
        found = evaluate(path, data=place)
        assert found.images == f"12 test images in {place}"
        assert found.notes == ("not the test images of its training",)


@pytest.mark.parametrize("name", ["val", "test", "valid", "validation"])
def test_a_directory_with_nothing_but_val(of_parted, parted, tmp_path, name):
    shutil.copytree(parted / "val", tmp_path / name)
    found = evaluate(of_parted[1], data=tmp_path)
    assert (found.images, found.notes) == (f"15 test images in {tmp_path}/{name}", ())


def test_the_images_that_it_was_trained_with(of_parted, parted):
    assert evaluate(of_parted[1], data=parted / "train").notes == (
        "these are the images that it was trained with",
    )


def test_training_images_without_others_beside_them(of_parted, parted, tmp_path):
    shutil.copytree(parted / "train", tmp_path / "train")
    found = evaluate(of_parted[1], data=tmp_path)
    assert found.images == f"3 validation images (a tenth of the training images in {tmp_path}/train)"


def test_other_images_of_the_same_classes(of_parted, colours, tmp_path):
    colours(tmp_path / "train", 12, seed=3)
    colours(tmp_path / "val", 5, seed=4)
    found = evaluate(of_parted[0], data=tmp_path)
    assert found.notes == ("other images than it was trained with",)
    assert "note: other images than it was trained with" in str(found)


def test_a_moved_directory_holds_the_same_images(of_parted, of_flat, parted, flat, tmp_path):
    for (run, _), place in ((of_parted, parted), (of_flat, flat)):
        moved = shutil.copytree(place, tmp_path / place.name)
        found = evaluate(run, data=moved)
        assert found.notes == ()
        assert len(found.expected) == len(evaluate(run).expected)


def test_a_run_chosen_by_validation_images(parted, trained):
    run, file = trained(parted, "--holdout", "validation")
    for found in (evaluate(run), evaluate(file, data=parted)):
        assert found.images == f"3 validation images (a tenth of the training images in {parted}/train)"
        assert found.notes == ()


def test_data_that_are_gone(of_parted, tmp_path):
    run = shutil.copytree(of_parted[0], tmp_path / "run")
    settings = json.loads((run / "recipe.json").read_text())
    settings["data_identity"]["path"] = str(tmp_path / "gone")
    (run / "recipe.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=r"expected its data in .*gone.*, found no such.*; name .* --data"):
        evaluate(run)


def nameless(file, path, **changes):
    """A file that names no recipe."""
    model = load(file)
    model.provenance.clear()
    for name, value in changes.items():
        object.__setattr__(model, name, value)
    save(path, model)
    return path


def test_a_file_without_a_recipe(of_parted, parted, tmp_path):
    file = nameless(of_parted[1], tmp_path / "net.safetensors")
    found = evaluate(file, data=parted / "val")
    assert found.notes == ("which images it was trained with is not known: it may have seen these",)
    assert np.array_equal(found.found, evaluate(of_parted[1], data=parted).found)
    for changes, said in (({"labels": ()}, "no names of classes"), ({"input_spec": None}, "no input spec")):
        with pytest.raises(InputError, match=said):
            evaluate(nameless(of_parted[1], file, **changes), data=parted)


def test_classes_are_matched_by_name(of_parted, colours, tmp_path):
    some = colours(tmp_path / "some", 4, seed=1, classes=("red", "blue"))
    found = evaluate(of_parted[1], data=some)
    assert "no images of 1 of its 3 classes: green" in found.notes
    assert found.expected.tolist() == [0] * 4 + [2] * 4
    one = colours(tmp_path / "one", 4, seed=1, classes=("red",))
    assert "no images of 2 of its 3 classes: blue, green" in evaluate(of_parted[1], data=one).notes
    (some / "red").rename(some / "reed")
    with pytest.raises(InputError, match=r"found the class reed; did you mean red or green\?"):
        evaluate(of_parted[1], data=some)


def test_top5_of_few_classes_is_not_told(of_parted, exported):
    few, many = evaluate(of_parted[0]), evaluate(exported)
    assert few.top5 is None
    assert "top5" not in few.to_dict()
    assert "top-5" not in str(few)
    assert many.top5 > many.accuracy
    assert f"top-5 {many.top5:.2%}" in str(many)


def test_a_limit_takes_equally_many_of_each_class(of_parted, exported, parted):
    found = evaluate(of_parted[1], data=parted, limit=6)
    assert found.images == f"6 of the 15 test images in {parted}/val, equally many of each class"
    assert np.bincount(found.expected).tolist() == [2, 2, 2]
    assert evaluate(of_parted[1], data=parted, limit=100).images == f"15 test images in {parted}/val"
    digits = evaluate(exported, limit=20)
    assert np.bincount(digits.expected).tolist() == [2] * 10
    assert digits.images == "20 of the 360 test images (scikit-learn's digits), equally many of each class"


def test_a_corrupt_image_is_left_out_and_said(of_parted, colours, tmp_path):
    place = colours(tmp_path, 50, seed=9)
    (place / "red" / "7.png").write_bytes(b"text")
    with pytest.warns(UserWarning, match=r"red/7.png"):
        found = evaluate(of_parted[1], data=place)
    assert found.images.startswith("149 test images")
    assert "1 corrupt left out" in found.notes
    for path in (place / "red").iterdir():
        path.write_bytes(b"text")
    with pytest.raises(InputError, match="corrupt"), pytest.warns(UserWarning, match="red"):
        evaluate(of_parted[1], data=place)


def empty(place):
    for name in ("blue", "green"):
        (place / name).mkdir()
    return place


def images_without_class(place):
    (place / "a.png").write_bytes(b"x")
    return place


def a_file(place):
    (place / "file").write_bytes(b"x")
    return place / "file"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda place: place / "none", "found no such directory"),
        (a_file, "found a file"),
        (empty, "found no images in blue, green"),
        (images_without_class, "found none, but 1 files"),
        (lambda place: place, "found none, but 0 files"),
    ],
)
def test_directories_without_images(of_parted, tmp_path, make, said):
    with pytest.raises(InputError, match=said) as caught:
        evaluate(of_parted[1], data=make(tmp_path))
    assert "\n" not in str(caught.value)


def test_options_that_would_have_no_effect(of_parted, exported, run, parted, tmp_path):
    file = of_parted[1]
    for path in (exported, run):
        with pytest.raises(InputError, match=r"--data: expected none: the digits come with scikit-learn"):
            evaluate(path, data=tmp_path / "nope")
    for options, flag in (
        ({"best": True}, "--best"),
        ({"device": "cuda"}, "--device cuda"),
        ({"flip": True}, "--flip"),
        ({"page": "x.html"}, "--page"),
    ):
        with pytest.raises(InputError, match=f"^{flag}: expected"):
            evaluate(file, data=parted, **options)
    assert not Path("x.html").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "--limit: expected 1 or more, found 0"),
        ({"limit": -3}, "--limit: expected 1 or more, found -3"),
        ({"limit": "3"}, "expected an integer or None, found '3'; write 3 without quotes"),
        ({"limit": True}, "expected an integer or None, found True"),
        ({"data": 3}, r"evaluate\(data\): expected"),
        ({"best": "yes"}, r"evaluate\(best\): expected True or False"),
        ({"dat": "x"}, "did you mean data"),
        ({"device": "gpu"}, "--device: expected auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:99"}, "--device: expected auto, cpu, cuda or cuda:N"),
        ({"confusion": "x.gif"}, "a name in .png or .svg"),
    ],
)
def test_wrong_options(run, options, said):
    with pytest.raises(InputError, match=said):
        evaluate(run, **options)


@pytest.mark.parametrize("subject", [3, None, "digit", "none.safetensors"])
def test_wrong_subjects(subject):
    with pytest.raises(InputError):
        evaluate(subject)


def test_scores_that_are_no_numbers(of_parted, parted, monkeypatch):
    from bitfactor.api import network

    class Session(network.Session):
        def __call__(self, x):
            return np.full((len(x), 3), np.nan, np.float32)

    monkeypatch.setattr(network, "Session", Session)
    with pytest.raises(InputError, match="expected scores that are numbers, found NaN"):
        evaluate(of_parted[1], data=parted)


def test_a_run_on_the_cpu(run):
    assert evaluate(run, device="cpu").to_dict() == evaluate(run).to_dict()


class Own:
    """A data set of a user's own: constant images of two classes."""

    input_spec, labels, test_name = None, ("a", "b"), "images of mine"

    def steps(self, batch_size):
        return 8 // batch_size

    def train_batches(self, batch_size, seed, epoch, start=0, rank=0, world=1):
        for _ in range(start, self.steps(batch_size)):
            yield torch.zeros(batch_size, 3, 8, 8), torch.zeros(batch_size, dtype=torch.int64)

    def test_batches(self, batch_size, rank=0, world=1):
        for start in range(0, 5, batch_size):
            size = min(batch_size, 5 - start)
            yield torch.ones(size, 3, 8, 8), torch.tensor([0, 1, 0, 1, 1])[start : start + size]


def own_recipe(labels=("a", "b")):
    data = Own()
    data.labels = labels
    return replace(folder_resnet18(), name="mine", data=lambda directory: data)


def test_data_of_ones_own(monkeypatch, tmp_path):
    monkeypatch.setitem(RECIPES, "mine", own_recipe)
    network = Network(
        tmp_path,
        lambda x: np.tile(np.float32([1, 0]), (len(x), 1)),
        ("a", "b"),
        None,
        False,
        "mine",
        own_recipe,
        "test",
        {"path": None, "train": 8, "test": 5, "fingerprint": "other"},
    )
    found = classify(network, images_of(network))
    assert (found.images, found.correct) == ("5 images of mine", 2)
    assert found.notes == ("other images than it was trained with",)
    assert classify(network, images_of(network, limit=3)).images == "3 of the images of mine, the first"
    with pytest.raises(InputError, match=r"Own: expected the 2 classes of the network, found 3 classes"):
        images_of(replace(network, full_recipe=lambda: own_recipe(("a", "b", "c"))))
    wide = replace(network, outputs=lambda x: np.zeros((len(x), 4), np.float32))
    with pytest.raises(InputError, match=r"expected scores of shape \(5, 2\), found shape \(5, 4\)"):
        classify(wide, images_of(wide))


def test_a_file_of_a_recipe_that_is_not_known_here(of_parted, parted, tmp_path):
    model = load(of_parted[1])
    model.provenance["recipe"] = "somebody-elses"
    save(tmp_path / "net.safetensors", model)
    assert evaluate(tmp_path / "net.safetensors", data=parted).images.startswith("15 test images")


def test_the_confidence_of_probabilities_is_the_largest():
    scores = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert _confidence(scores) == pytest.approx(probabilities.max(1))
    assert _confidence(probabilities) == pytest.approx(probabilities.max(1))


def test_a_class_name_is_no_formula():
    from bitfactor.api.evaluate import confusion_drawing
    from bitfactor.study.figures import gallery

    labels = ["$1 {to $2", "over $2"]
    confusion_drawing(np.eye(2, dtype=np.int64), labels).savefig(io.BytesIO())
    assert "<svg" in gallery(np.zeros((2, 4, 4)), labels, labels[::-1])


def test_targets_of_another_task_are_refused():
    """A task of one's own may train and export, but has no classes to count."""
    network = SimpleNamespace(path=Path("runs/a"), labels=(), outputs=lambda x: np.zeros((len(x), 2)))
    batch = np.zeros((3, 1, 8, 8), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(InputError, match=r"a network that classifies or .*, found targets of shape \(3, 2\)"):
        classify(network, EvaluationSet(lambda: iter([batch]), (), "images"))
