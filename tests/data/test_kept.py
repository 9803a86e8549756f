"""Decoded images that are kept: the same batches, from files that may be changed, damaged or shared."""

import os
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import ImageFolder, Shards
from bitfactor.data.readers.kept import keep_images


@pytest.fixture
def load(folder, tmp_path):
    def load(**options):
        return ImageFolder.load(
            folder, size=32, cache=tmp_path / "cache", **({"workers": 0, "decoded_cache": 1.0} | options)
        )

    return load


def batches(data):
    return [*data.train_batches(5, 0, 0), *data.test_batches(4)]


def expect_same(some, others):
    for (a, b), (c, d) in zip(some, others, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def unable(*arguments):
    raise AssertionError("decoded again")


@pytest.mark.parametrize("preset", ["paper", "standard"])
def test_what_is_kept_gives_the_same_batches_without_decoding(load, monkeypatch, preset):
    first = batches(load(preset=preset))
    monkeypatch.setattr("bitfactor.data.stored.decode_about", unable)
    monkeypatch.setattr("bitfactor.data.readers.evaluation_set.decode_image", unable)
    expect_same(batches(load(preset=preset)), first)
    expect_same(batches(load(preset=preset, workers=2)), first)


def test_test_images_are_the_same_as_without(load):
    expect_same([*load().test_batches(4)], [*load(decoded_cache=0.0).test_batches(4)])


def test_a_preset_has_its_own_test_images(load):
    batches(load(preset="standard"))
    squashed = [*load(preset="paper").test_batches(4)]
    expect_same(squashed, [*load(preset="paper", decoded_cache=0.0).test_batches(4)])


def test_training_images_are_shrunk_whether_or_not_they_can_be_kept(load, tmp_path):
    first = batches(load())
    (tmp_path / "cache" / "images").rename(tmp_path / "away")
    (tmp_path / "cache" / "images").write_bytes(b"no directory")
    with pytest.warns(UserWarning, match=r"cache/images cannot be written: each epoch decodes"):
        expect_same(batches(load()), first)


def test_a_changed_file_is_decoded_again(load, jpeg):
    data = load()
    before = batches(data)
    changed = data.test.name(1)
    with open(changed, "wb") as file:
        file.write(jpeg(777))
    os.utime(changed, ns=(1, time.time_ns() + 5))
    after, fresh = batches(data), batches(load(decoded_cache=0.0))
    assert torch.equal(after[-2][0], fresh[-2][0])
    assert not torch.equal(after[-2][0], before[-2][0])


@pytest.mark.parametrize("damage", ["cut", "flipped", "zeros", "noise"])
def test_a_damaged_file_is_written_anew(load, tmp_path, damage):
    first = batches(load())
    for file in (tmp_path / "cache" / "images").iterdir():
        content = bytearray(file.read_bytes())
        noise = np.random.default_rng(0).bytes(len(content))
        file.write_bytes(
            {
                "cut": content[: len(content) // 3 + 5],
                "flipped": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
                "zeros": bytes(len(content)),
                "noise": noise,
            }[damage]
        )
    expect_same(batches(load()), first)
    expect_same(batches(load()), first)


def _read(load):
    for _ in range(3):
        batches(load())


def test_two_processes_share_them(load):
    context = get_context("fork")
    others = [context.Process(target=_read, args=(load,)) for _ in range(2)]
    for other in others:
        other.start()
    mine = [batches(load()) for _ in range(3)]
    for other in others:
        other.join(60)
        assert other.exitcode == 0
    expect_same(mine[0], mine[2])


def test_what_was_used_the_longest_ago_is_removed(load, tmp_path):
    directory = tmp_path / "cache" / "images"
    sizes = {}
    for number, pixels in enumerate((1000, 1001, 1002)):
        kept = keep_images(directory, {"train": (load().train, pixels)}, 1.0)
        os.utime(kept["train"].path, (number, number))
        sizes[pixels] = kept["train"].size
    keep_images(directory, {"train": (load().train, 1003)}, (sizes[1002] * 2.5) / 2**30)
    left = sorted(path.stem.rpartition("-")[2] for path in directory.iterdir())
    assert left == ["1002", "1003"]


def test_files_that_another_process_removes_first(load, tmp_path, monkeypatch):
    directory = tmp_path / "cache" / "images"
    kept = keep_images(directory, {"train": (load().train, 1000)}, 1.0)
    found = kept["train"].path
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [found, found.with_name("gone.pixels")])
    assert keep_images(directory, {"train": (load().train, 1001)}, 1.5 * kept["train"].size / 2**30)
    assert not found.exists()


def test_images_of_shards_are_kept_too(tmp_path, jpeg, monkeypatch):
    import tarfile
    from io import BytesIO

    with tarfile.open(tmp_path / "train-0.tar", "w") as tar, tarfile.open(tmp_path / "val-0.tar", "w") as val:
        for i in range(6):
            for name, content in ((f"{i}.jpg", jpeg(i)), (f"{i}.cls", b"%d" % (i % 2))):
                for file in (tar, val):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    file.addfile(entry, BytesIO(content))
    (tmp_path / "shards.json").write_text(
        '{"train": "train-0.tar", "val": "val-0.tar", "labels": ["cat", "dog"]}'
    )
    options = {"size": 32, "workers": 0, "decoded_cache": 1.0, "cache": tmp_path / "cache"}
    first = batches(Shards.load(tmp_path, **options))
    monkeypatch.setattr("bitfactor.data.stored.decode_about", unable)
    expect_same(batches(Shards.load(tmp_path, **options)), first)


def test_more_than_the_limit_is_not_kept_and_one_line_says_so(load):
    data = load(decoded_cache=1e-6)
    with pytest.warns(UserWarning, match=r"need .* GiB, more than --decoded-cache 1e-06: each epoch decodes"):
        assert data.note == ""
    expect_same(batches(data), batches(load()))


def test_more_than_the_disk_has_left_is_not_kept(load, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.warns(UserWarning, match=r"more than .*cache/images has left: each epoch decodes"):
        batches(load())


def test_a_limit_is_a_number_of_gib(load):
    with pytest.raises(InputError, match="decoded_cache: expected 0 or more GiB"):
        load(decoded_cache=-1.0)
