"""Shards are read once each, by any number of processes, and resumed anywhere."""

import io
import json
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Shards
from bitfactor.data.readers.check import check_data


@pytest.fixture
def load(tmp_path):
    def load(directory, **options):
        return Shards.load(directory, size=16, **({"workers": 0, "cache": tmp_path / "cache"} | options))

    return load


@pytest.fixture
def server(tmp_path):
    """The address at which a directory is served, and the paths that were asked for."""
    (tmp_path / "shards").mkdir(exist_ok=True)
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            asked.append(self.path)

    handler = partial(Handler, directory=tmp_path / "shards")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def same(batches, others):
    for (a, b), (c, d) in zip(batches, others, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_samples_are_what_was_written(shards, load, jpeg):
    data = load(shards())
    assert data.labels == ("a", "b", "c")
    assert (len(data.train), len(data.test), data.steps(10)) == (32, 7, 3)
    for store, first in ((data.train, 0), (data.test, 32)):
        for i in range(len(store)):
            assert store.read(i) == (jpeg(first + i), (first + i) % 3)
    assert data.train.name(8).endswith("train-1.tar: train1_1")


def test_two_processes_with_two_workers_read_each_sample_once(shards, load):
    directory = shards()
    kept = []
    for epoch in range(2):
        parts = [
            load(directory, workers=2).train_batches(8, 0, epoch, rank=rank, world=2) for rank in range(2)
        ]
        joined = [(torch.cat([a, c]), torch.cat([b, d])) for (a, b), (c, d) in zip(*parts, strict=True)]
        assert len(joined) == 4
        whole = list(load(directory).train_batches(8, 0, epoch))
        for (inputs, labels), (a, b) in zip(whole, joined, strict=True):
            order = [*range(0, 8, 2), *range(1, 8, 2)]
            assert torch.equal(inputs[order], a)
            assert torch.equal(labels[order], b)
        kept.append(torch.cat([labels for _, labels in whole]))
    assert kept[0].bincount().tolist() == [11, 11, 10]
    assert not torch.equal(*kept)


def test_an_epoch_has_every_index_once(shards, load):
    train = load(shards()).train
    for seed in range(3):
        order = train.shuffled(np.random.default_rng(seed))
        assert sorted(order) == list(range(32))


def test_only_few_shards_are_read_at_a_time(shards, load):
    train = load(shards(trained=[2] * 40)).train
    order = train.shuffled(np.random.default_rng(0)) // 2
    assert len(set(order[:32])) == 16
    assert len(set(order[:16])) > 8
    assert not set(order[:32]) & set(order[32:64])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_can_be_entered_anywhere(shards, load, workers):
    data = load(shards(), workers=workers)
    whole = list(data.train_batches(4, 3, 5))
    for start in (1, 5, 8):
        same(whole[start:], data.train_batches(4, 3, 5, start=start))


def test_limit_and_test_set_shards(shards, load):
    directory = shards()
    data = load(directory, limit=9)
    assert (len(data.train), len(data.test)) == (9, 7)
    assert sorted(data.train.shuffled(np.random.default_rng(0))) == list(range(9))
    data = load(directory, holdout="validation")
    assert (len(data.train), len(data.test)) == (27, 5)
    described = json.loads((directory / "shards.json").read_text())
    del described["val"]
    (directory / "shards.json").write_text(json.dumps(described))
    assert (len(load(directory).train), len(load(directory).test)) == (27, 5)
    many = load(shards([2] * 21), holdout="validation")
    assert (len(many.train), len(many.test)) == (38, 4), "of 21 shards two are for validation"


def test_what_is_written_by_webdataset(tmp_path, load, jpeg):
    import webdataset

    with webdataset.ShardWriter(str(tmp_path / "x-%03d.tar"), maxcount=4, verbose=0) as writer:
        for i in range(10):
            writer.write({"__key__": f"dir/{i}", "jpg": jpeg(i), "cls": i % 2, "json": {"width": 3}})
    (tmp_path / "shards.json").write_text(json.dumps({"train": "x-{000..002}.tar", "labels": ["a", "b"]}))
    train = load(tmp_path, holdout="validation").train
    assert [train.read(i) for i in range(8)] == [(jpeg(i), i % 2) for i in range(8)]


def test_names_that_are_no_utf_8(tmp_path, load, jpeg):
    with tarfile.open(tmp_path / "x-0.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        for i in range(10):
            for ending, content in (("jpg", jpeg(i)), ("cls", b"%d" % (i % 2))):
                entry = tarfile.TarInfo(f"caf\xe9-{i}.{ending}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    (tmp_path / "shards.json").write_text(
        json.dumps({"train": "x-0.tar", "val": "x-0.tar", "labels": ["a", "b"]})
    )
    train = load(tmp_path).train
    assert [train.read(i) for i in range(10)] == [(jpeg(i), i % 2) for i in range(10)]
    assert "caf\ufffd-3" in train.name(3)


def test_shards_at_urls_are_fetched_once_when_they_are_wanted(shards, load, server):
    address, asked = server
    counts = {f"train-{i}.tar": n for i, n in enumerate((7, 5, 9, 6, 5))} | {"val-0.tar": 3, "val-1.tar": 4}
    local = load(shards())
    urls = {"train": f"{address}/train-{{0..4}}.tar", "val": f"{address}/val-{{0..1}}.tar"}
    directory = shards(samples=counts, **urls)
    data = load(directory, workers=2)
    assert data.steps(8) == 4
    assert asked == []
    for epoch in range(2):
        same(local.train_batches(8, 0, epoch), data.train_batches(8, 0, epoch))
    same(local.test_batches(3), data.test_batches(3))
    assert sorted(asked) == sorted(f"/{name}" for name in counts)


def test_a_url_without_a_count_and_one_that_leads_nowhere(shards, load, server):
    address, _ = server
    with pytest.raises(InputError, match=r'the number of its samples under "samples" in shards\.json'):
        load(shards(val=f"{address}/none.tar"))
    data = load(shards(val=f"{address}/none.tar", samples={"none.tar": 3}))
    with pytest.raises(InputError, match=r"none.tar: expected a shard that can be fetched"):
        list(data.test_batches(2))
    assert not [path for path in (data.test.shards[0].cache).iterdir() if path.suffix == ".tar"]


@pytest.mark.parametrize(("held", "found"), [((3, 5), "5"), ((2, 3), "2")])
def test_shards_to_test_on_are_held_against_what_is_stated_before_training(shards, load, held, found):
    wrong = 1 if held[0] == 3 else 0
    with pytest.raises(InputError, match=rf"val-{wrong}.tar: expected \d samples, as .*, found {found}"):
        load(shards(held=held, samples={"val-0.tar": 3, "val-1.tar": 4 if wrong else 3}))


@pytest.mark.parametrize("workers", [0, 2])
def test_another_number_of_samples_than_stated(shards, load, workers):
    data = load(shards(samples={"train-1.tar": 6}), workers=workers)
    with pytest.raises(InputError, match=r"train-1.tar: expected 6 samples, as shards.json says, found 5"):
        list(data.train_batches(33, 0, 0))


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ({"labels": ["a", "b"]}, "train-0.tar: expected classes from 0 to 1, found 2"),
        ({"train": "none.tar"}, "none.tar: .* found No such file"),
        ({"labels": "a"}, "expected labels to be a list, found str"),
        ({"trian": ""}, "expected the keys train, labels"),
        ({"train": "pipe:touch owned"}, "found the command 'pipe:touch owned'"),
        ({"val": "val-0.tar::pipe:touch owned"}, "found the command 'pipe:touch owned'"),
    ],
)
def test_descriptions_that_do_not_fit(shards, load, description, found):
    with pytest.raises(InputError, match=found):
        load(shards(**description))


def test_damaged_shards_and_descriptions(shards, load, tmp_path):
    directory = shards()
    path = directory / "train-2.tar"
    whole = path.read_bytes()
    for content, found in (
        (whole[:700], "cannot be read"),
        (b"text" * 200, "cannot be read"),
        (b"", "cannot be"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"train-2.tar: expected a shard.*{found}"):
            load(directory)
    path.write_bytes(whole.replace(b"train2_3.cls", b"train2_x.cls"))
    with pytest.raises(InputError, match="train2_3 with image alone"):
        load(directory)
    (directory / "shards.json").write_text("{")
    with pytest.raises(InputError, match="in JSON"):
        load(directory)
    with pytest.raises(InputError, match=r"none: expected the directory of shards.json, found no such"):
        load(tmp_path / "none")


def test_a_corrupt_sample_is_named(shards, load, jpeg):
    directory = shards()
    path = directory / "train-0.tar"
    path.write_bytes(path.read_bytes().replace(jpeg(3)[300:], bytes(len(jpeg(3)) - 300)))
    data = load(directory, max_corrupt=0.1)
    with pytest.warns(UserWarning, match=r"train-0.tar: train0_3: .*corrupt image 1 of train"):
        assert sum(len(labels) for _, labels in data.train_batches(8, 0, 0)) == 32


def test_without_the_library(shards, load, monkeypatch):
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(InputError, match=r"not installed; pip install 'bitfactor\[shards\]'"):
        load(shards())


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ("../train-{0..4}.tar", "which is not"),
        ("/etc/train-0.tar", "which is not"),
        ("train-{0..99999999999}.tar", "more than 65536 shards"),
        ("{a,b}{0..999}{0..999}.tar", "more than 65536 shards"),
        ("{" * 30 + "a,b" + "}" * 30 + "{{0..99},x}" * 20, "more than 65536 shards"),
        ("train-{0..4.tar", "braces"),
    ],
)
def test_places_that_are_refused(shards, train, words):
    with pytest.raises(InputError, match=words):
        check_data(shards(train=train))


def test_a_link_out_of_the_directory_is_refused(shards, tmp_path):
    directory = shards()
    (directory / "train-0.tar").rename(tmp_path / "elsewhere.tar")
    (directory / "train-0.tar").symlink_to(tmp_path / "elsewhere.tar")
    with pytest.raises(InputError, match="which is not"):
        check_data(directory)
