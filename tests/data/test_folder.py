"""A folder of images trains: any file in it is read as it looks, skipped or named."""

import io
import shutil
import warnings

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from bitfactor.common.errors import InputError
from bitfactor.data import ImageFolder
from bitfactor.data.augment import input_spec
from bitfactor.data.readers.check import check_data, images_in
from bitfactor.data.readers.evaluation_set import Wanted
from bitfactor.pose.images import prepare, read_image


def load(directory, **options):
    return ImageFolder.load(directory, size=32, **({"workers": 0} | options))


def same(batches, others):
    for (a, b), (c, d) in zip(batches, others, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def names(store):
    return [store.name(i) for i in range(len(store))]


def test_train_and_val(folder):
    data = load(folder)
    assert data.labels == ("cat", "dog")
    assert (len(data.train), len(data.test), data.steps(6)) == (20, 6, 3)
    inputs, labels = next(data.train_batches(6, seed=0, epoch=0))
    assert inputs.shape == (6, 3, 32, 32)
    assert inputs.dtype == torch.float32
    assert all(("cat", "dog")[data.train.read(i)[1]] in data.train.name(i) for i in range(20))
    assert set(labels.tolist()) <= {0, 1}


def test_test_set_images_are_what_predict_would_see(folder):
    data = load(folder)
    inputs = torch.cat([x for x, _ in data.test_batches(4)])
    expected = [prepare(read_image(folder / name, 3), data.input_spec) for name in names(data.test)]
    np.testing.assert_array_equal(inputs.numpy(), np.stack(expected))


@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_workers_change_nothing(folder, preset):
    alone, helped = (load(folder, preset=preset, workers=workers) for workers in (0, 2))
    same(alone.train_batches(6, 1, 2), helped.train_batches(6, 1, 2))
    same(alone.test_batches(4), helped.test_batches(4))


def test_an_epoch_can_be_entered_anywhere(folder):
    data = load(folder)
    same(list(data.train_batches(6, 3, 5))[1:], data.train_batches(6, 3, 5, start=1))


def test_processes_share_a_batch(folder):
    data = load(folder)
    parts = [data.train_batches(6, 0, 1, rank=rank, world=2) for rank in range(2)]
    for (inputs, labels), *shares in zip(data.train_batches(6, 0, 1), *parts, strict=True):
        for rank, (a, b) in enumerate(shares):
            assert torch.equal(a, inputs[rank::2])
            assert torch.equal(b, labels[rank::2])
    assert sum(len(y) for rank in range(4) for _, y in data.test_batches(4, rank, 4)) == 6


def test_order_and_views_differ_between_epochs(folder):
    data = load(folder)
    first, second, other = (next(data.train_batches(20, *key))[0] for key in ((0, 0), (0, 1), (1, 0)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_any_folder_holds_out_a_fixed_tenth_of_each_class(tmp_path, jpeg):
    for i in range(62):
        path = tmp_path / ("rose", "tulip")[i % 3 == 0] / "deeper" / f"{i}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(i, 8, 8))
    data = load(tmp_path)
    assert np.bincount(data.test.classes).tolist() == [4, 2]
    assert not set(names(data.train)) & set(names(data.test))
    assert len(data.train) == 56
    held = set(names(data.test))
    (tmp_path / "rose" / "new.jpg").write_bytes(jpeg(99))
    assert len(held & set(names(load(tmp_path).test))) >= 5

    validation = load(tmp_path, holdout="validation")
    assert not set(names(validation.test)) & held
    assert not set(names(validation.train)) & held


def test_a_class_of_one_image_is_trained_on(tmp_path, jpeg):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(jpeg(1))
    (tmp_path / "a" / "2.jpg").write_bytes(jpeg(2))
    data = load(tmp_path)
    assert (np.bincount(data.train.classes).tolist(), data.test.classes.tolist()) == ([1, 1], [0])


def test_limit(folder):
    data = load(folder, limit=6)
    assert np.bincount(data.train.classes).tolist() == [3, 3]
    assert len(data.test) == 6


def test_hidden_and_other_files_are_no_images(folder):
    (folder / "train" / ".cache").mkdir()
    (folder / "train" / "notes.txt").write_text("x")
    (folder / "train" / "cat" / "Thumbs.db").write_bytes(b"x")
    (folder / "train" / "cat" / "._train0.jpg").write_bytes(b"x")
    assert len(load(folder).train) == 20


def add(folder, name, data):
    (folder / "train" / "cat" / name).write_bytes(data)
    return load(folder, preset="paper", max_corrupt=0)


def saved(image, *arguments, **options):
    file = io.BytesIO()
    image.save(file, *arguments, **options)
    return file.getvalue()


def test_grey_cmyk_and_deep_images_are_shown_as_rgb(folder, smooth):
    image = Image.fromarray(smooth(1))
    odd = {
        "grey.jpg": saved(image.convert("L"), "jpeg"),
        "cmyk.jpg": saved(image.convert("CMYK"), "jpeg"),
        "deep.png": cv2.imencode(".png", smooth(1)[..., ::-1].astype(np.uint16) * 257)[1].tobytes(),
        "clear.png": saved(image.convert("RGBA"), "png"),
        "few.png": saved(image.convert("P", palette=Image.Palette.ADAPTIVE), "png"),
    }
    for name, content in odd.items():
        data = add(folder, name, content)
        shown = read_image(folder / "train" / "cat" / name, 3).astype(int)
        target = np.array(image.convert("L"))[..., None] if name == "grey.jpg" else smooth(1)
        assert np.abs(shown - target).mean() < 8, name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(len(labels) for _, labels in data.train_batches(25, 0, 0)) == 25


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "gone"])
def test_a_corrupt_image_is_named_once_counted_and_replaced(folder, jpeg, kind, workers):
    path = folder / "train" / "dog" / "bad.jpg"
    content = {"truncated": jpeg(5)[:-400], "text": b"not an image", "empty": b"", "gone": b""}[kind]
    path.write_bytes(content)
    data = load(folder, max_corrupt=0.05, workers=workers)
    if kind == "gone":
        path.unlink()
    with pytest.warns(UserWarning, match=r"dog/bad.jpg.*corrupt image 1 of train") as caught:
        epochs = [list(data.train_batches(7, 0, epoch)) for epoch in range(3)]
    assert sum("corrupt image" in str(one.message) for one in caught) == 1
    assert len(data.corrupt) == 1
    assert all(len(labels) == 7 for epoch in epochs for _, labels in epoch)
    same(epochs[1], data.train_batches(7, 0, 1))


def test_a_corrupt_image_is_left_out_of_the_test(folder):
    (folder / "val" / "cat" / "val0.jpg").write_bytes(b"text")
    data = load(folder, max_corrupt=0.2)
    with pytest.warns(UserWarning, match=r"val0.jpg.*corrupt image 1 of test"):
        assert [len(labels) for _, labels in data.test_batches(2)] == [1, 2, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_more_corrupt_images_than_stated_are_an_error(folder, workers):
    for i in (0, 4, 8):
        (folder / "train" / "cat" / f"train{i}.jpg").write_bytes(b"text")
    data = load(folder, max_corrupt=0.1, workers=workers)
    with (
        pytest.warns(UserWarning, match="corrupt image 2"),
        pytest.raises(
            InputError, match=r"at most 2 corrupt images of 20 \(10.0%\), found 3, the last of them .*jpg"
        ),
    ):
        list(data.train_batches(20, 0, 0))


def test_nothing_but_corrupt_images(folder):
    for path in (folder / "train").rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="expected an image that can be read, found the last of 20 in a row"):
        list(load(folder, max_corrupt=1).train_batches(20, 0, 0))


def test_an_empty_class_is_an_error(folder):
    (folder / "train" / "mouse").mkdir()
    with pytest.raises(InputError, match=r"train: .*found no images in mouse"):
        load(folder)


def test_a_class_without_test_set_images_is_fine(folder):
    shutil.rmtree(folder / "val" / "dog")
    data = load(folder)
    assert data.labels == ("cat", "dog")
    assert data.test.classes.tolist() == [0, 0, 0]


def test_test_set_images_of_an_unknown_class(folder):
    (folder / "val" / "cat").rename(folder / "val" / "mouse")
    with pytest.raises(InputError, match=r"val: .*found the class mouse"):
        load(folder)


def test_links_are_followed_but_not_back_up(folder):
    (folder / "train" / "cat" / "up").symlink_to("..")
    (folder / "train" / "dog" / "top").symlink_to(folder)
    (folder / "train" / "dog" / "itself").symlink_to("itself")
    assert len(load(folder).train) == 20
    (folder / "train" / "more").symlink_to(folder / "val" / "cat")
    assert len(load(folder).train) == 23


@pytest.mark.parametrize("place", ["train/cat/secret.jpg", "train/secret", "train/cat/deeper", "val"])
def test_links_out_of_the_data_are_refused(folder, tmp_path, jpeg, place):
    """Of an image, a class, a directory below one, a whole part."""
    secret = tmp_path / "elsewhere" / "secret"
    secret.mkdir(parents=True)
    (secret / "1.jpg").write_bytes(jpeg(1))
    if place == "val":
        shutil.rmtree(folder / "val")
    link = folder / place
    link.symlink_to(secret / "1.jpg" if link.suffix else secret.parent if place == "val" else secret)
    with pytest.raises(InputError, match="lie in the directory of the data, found links that lead out of it"):
        load(folder)
    assert len(check_data(folder).problems["links that lead out of the data, or nowhere"]) == 1
    wanted = Wanted(
        "net", ("cat", "dog"), input_spec(32, "paper"), "test" if place == "val" else "validation"
    )
    with pytest.raises(InputError, match="links that lead out"):
        images_in(folder, wanted)


def test_a_directory_of_data_may_itself_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert len(load(tmp_path / "link").train) == 20


def test_other_places(tmp_path, folder):
    with pytest.raises(InputError, match=r"--data: .*found none"):
        load(None)
    with pytest.raises(InputError, match="found no such directory"):
        load(tmp_path / "none")
    shutil.rmtree(folder / "train" / "dog")
    with pytest.raises(InputError, match="two or more classes, found cat"):
        load(folder)


def test_batches_on_another_device(folder):
    data = load(folder).to("meta")
    assert next(data.train_batches(4, 0, 0))[0].device.type == "meta"


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("Train", "Val"),
        ("TRAIN", "TEST"),
        ("training", "validation"),
        ("training", "testing"),
        ("train", "valid"),
        ("train", "dev"),
        ("train", "eval"),
        ("training_set", "test_set"),
        ("train2017", "val2017"),
        ("train-images", "validation images"),
    ],
)
def test_parts_are_known_however_they_are_spelled(folder, train, test):
    (folder / "train").rename(folder / "part")
    (folder / "part").rename(folder / train)
    (folder / "val").rename(folder / test)
    data = load(folder)
    assert (data.labels, len(data.train), len(data.test)) == (("cat", "dog"), 20, 6)


def test_validation_comes_before_test(folder):
    shutil.copytree(folder / "train", folder / "Testing")
    assert len(load(folder).test) == 6


def test_two_directories_of_one_part_are_an_error(folder):
    shutil.copytree(folder / "train", folder / "Training")
    with pytest.raises(InputError, match="one directory for train, found Training and train"):
        load(folder)


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        ({"train/cat": "Train", "val/cat": "Validation"}, "the classes Train, Validation"),
        (
            {"train/cat": "cat/train", "val/cat": "cat/test", "train/dog": "dog/train"},
            r"test, train within cat; name .*cat, or put classes into train/ and val/",
        ),
        ({"train": "images/train", "val": "images/val"}, "train, val within images; name .*images, or"),
    ],
)
def test_classes_that_look_like_parts_are_refused(folder, tmp_path, moves, found):
    for source, target in moves.items():
        (tmp_path / "made" / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder / source, tmp_path / "made" / target)
    for use in (load, check_data):
        with pytest.raises(InputError, match=f"directories of classes.*found {found}"):
            use(tmp_path / "made")


def test_a_class_may_be_called_as_a_part(folder):
    (folder / "train" / "dog").rename(folder / "train" / "train")
    assert load(folder / "train").labels == ("cat", "train")


def test_a_test_set_without_class_directories_is_not_passed_over(folder):
    for image in list((folder / "val").rglob("*.jpg")):
        image.rename(folder / "val" / image.name)
    shutil.rmtree(folder / "val" / "cat")
    shutil.rmtree(folder / "val" / "dog")
    with pytest.raises(InputError, match=r"images of the classes in .*, found none"):
        load(folder)


def test_a_class_called_train_does_not_hide_the_others(tmp_path, jpeg):
    for name in ("train/steam", "train/diesel", "car/small", "bus/city"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.jpg").write_bytes(jpeg(0))
    with pytest.raises(InputError, match="found train, which holds directories, beside bus, car"):
        load(tmp_path)
