"""A model file gives back what was saved, and damage is found and named."""

import json
import resource
import signal
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec, load, save
from bitfactor.format.document import digest_of as _digest
from bitfactor.format.model import golden_input


@pytest.fixture
def path(tmp_path, model):
    path = tmp_path / "net.safetensors"
    save(path, model)
    return path


def test_load_gives_what_was_saved(path, model):
    found = load(path)
    assert found.graph.values == model.graph.values
    assert (found.input_spec, found.labels, found.provenance) == (
        model.input_spec,
        model.labels,
        model.provenance,
    )
    for a, b in zip(found.graph.nodes, model.graph.nodes, strict=True):
        assert (a.name, a.op, a.inputs, dict(a.attributes)) == (b.name, b.op, b.inputs, dict(b.attributes))
        for role, tensor in b.tensors.items():
            np.testing.assert_array_equal(a.tensors[role], tensor)
    np.testing.assert_array_equal(found.golden_outputs[0], model.golden_outputs[0])


def test_a_binary_weight_takes_one_bit(model):
    assert model.tensor_bytes()["binary"] == 3 * 3 * 3 * 2 * 8  # 70 channels are 2 words


def test_the_same_model_gives_the_same_bytes(path, tmp_path, model):
    save(tmp_path / "again.safetensors", model)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no such file"),
        (b"", "an empty file"),
        (b"weights: none\n" * 20, "a text file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "a PNG image"),
        (b"\xff\xd8\xff\xe0" + bytes(64), "a JPEG image"),
        (b"PK\x03\x04" + bytes(64), "a zip archive or torch checkpoint"),
        (bytes(range(1, 200)) + b"\0", "data of another format"),
    ],
)
def test_another_file_is_named_for_what_it_is(tmp_path, content, found):
    path = tmp_path / "net.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"expected a bitfactor model file, found {found}"):
        load(path)


def test_a_directory_is_named(tmp_path):
    with pytest.raises(InputError, match="found a directory"):
        load(tmp_path)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
def test_truncation_is_found(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match="truncated or damaged"):
        load(path)


def test_one_flipped_bit_is_found(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="do not match their checksum"):
        load(path)


def test_a_plain_checkpoint_is_named(path):
    safetensors.numpy.save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(InputError, match="without a bitfactor graph"):
        load(path)


def rewrite(path, change):
    """Store the file again with another document and a right checksum."""
    with safe_open(path, framework="numpy") as stored:
        metadata, tensors = stored.metadata(), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    document = json.loads(metadata["bitfactor"])
    change(document)
    del document["sha256"]
    document["sha256"] = _digest(document, tensors)
    safetensors.numpy.save_file(tensors, path, {"bitfactor": json.dumps(document)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format_version=99), "expected 1 to 3, found 99; update bitfactor$"),
        (lambda d: d["nodes"][1].update(op="warp"), "found 'warp'"),
        (lambda d: d["nodes"][1].update(shape=[9, 8, 8]), "unreadable graph.*stated as"),
        (lambda d: d["nodes"][1].update(tensors=["missing"]), "unreadable graph"),
        (lambda d: d.pop("nodes"), "expected the field 'nodes', found none; export it again$"),
        (lambda d: d.update(input_spec={"size": [8, 8]}), "unreadable graph"),
    ],
)
def test_a_document_that_does_not_fit_is_an_error(path, change, message):
    rewrite(path, change)
    with pytest.raises(InputError, match=message):
        load(path)


def test_a_document_that_is_too_deep_is_an_error(path):
    with safe_open(path, framework="numpy") as stored:
        metadata, tensors = stored.metadata(), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    for depth in range(800, 1000):
        deep = f'{metadata["bitfactor"][:-1]}, "deep": {"[" * depth}{"]" * depth}}}'
        content = safetensors.numpy.save(tensors, {"bitfactor": deep})
        with pytest.raises(InputError, match=r"cannot be read|checksum"):
            load(content)


def test_what_files_came_to_hold_later_may_be_missing(path):
    def as_it_was(document):
        for name in ("skeleton", "other_shapes", "report"):
            del document[name]
        del document["input_spec"]["keep_aspect"]

    rewrite(path, as_it_was)
    found = load(path)
    assert (found.skeleton, found.other_shapes, found.report) == (None, (), {})
    assert found.input_spec is not None
    assert not found.input_spec.keep_aspect


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(path, model):
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match="free space"):
            save(path, model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_path_that_cannot_be_written_is_an_error(tmp_path, model):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a directory, found a file"):
        save(tmp_path / "file" / "net.safetensors", model)


def test_the_golden_input_is_the_same_everywhere():
    x = golden_input((3, 32, 32))
    assert x.shape == (1, 3, 32, 32)
    np.testing.assert_array_equal(x.ravel()[:3], np.array([1.156286, 1.6670737, 1.9847128], np.float32))
    assert abs(x.mean()) < 0.05
    assert -2 <= x.min() < -1.9 < 1.9 < x.max() < 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"graph": 3}, "graph"),
        ({"golden_outputs": (1.0,)}, "golden_outputs"),
        ({"input_spec": (8, 8)}, "input_spec"),
        ({"labels": "abc"}, "labels"),
        ({"labels": (1, 2)}, "labels"),
        ({"labels": ("a", "b\0c")}, "text without a zero"),
        ({"labels": ("a", "\ud800")}, "half a letter"),
        ({"input_spec": InputSpec((9, 8), (9, 8), (0.0,) * 70, (1.0,) * 70)}, "one of the graph's input"),
        ({"skeleton": "mpii"}, "skeleton"),
        ({"provenance": {"epoch": 3}}, "provenance"),
        ({"other_shapes": (3,)}, "other_shapes"),
    ],
    ids=str,
)
def test_a_model_file_is_checked_where_it_is_made(model, changes, words):
    with pytest.raises(InputError, match=words):
        replace(model, **changes)


@pytest.mark.parametrize("path", [3, None, ["net"]])
def test_what_is_no_path(model, path):
    with pytest.raises(InputError, match=r"load\(path\): expected a string, a path, bytes or an OpenFile"):
        load(path)
    with pytest.raises(InputError, match=r"save\(path\): expected a string or a path"):
        save(path, model)


def test_what_is_no_model(tmp_path, model, graph):
    with pytest.raises(InputError, match="expected 1 golden outputs, as the graph has, found 0"):
        save(tmp_path / "net.safetensors", replace(model, golden_outputs=()))
    with pytest.raises(InputError, match=r"save\(model\): expected a ModelFile"):
        save(tmp_path / "net.safetensors", graph)
    assert not list(tmp_path.iterdir())


def test_a_shape_that_the_network_does_not_take(model):
    with pytest.raises(InputError, match="shape"):
        model.graph_for("8x8")
