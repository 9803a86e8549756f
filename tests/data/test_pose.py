"""What all pose data sets have in common, on images with a dot at each keypoint: red left, blue right."""

import io
import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from bitfactor.common.errors import InputError
from bitfactor.data import CocoKeypoints, Lsp, Mpii
from bitfactor.data.poses import LspOptions
from bitfactor.data.readers.instances import CropMovement
from bitfactor.pose import COCO, LSP, MPII, decode, transform, warp
from bitfactor.pose.images import normalise

SIZE, PEOPLE, TEST = 96, 24, 6
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def colour(name):
    return RED if name.startswith("left") else BLUE if name.startswith("right") else GREEN


def draw(path, keypoints, skeleton):
    image = np.zeros((200, 240, 3), np.uint8)
    for (x, y), name in zip(keypoints.round().astype(int), skeleton.keypoints, strict=True):
        cv2.circle(image, (int(x), int(y)), 7, colour(name), -1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(".png", image[..., ::-1])[1].tobytes())


def grid(skeleton, rng):
    """Keypoints on a grid, so that no dot covers another; in an order that differs between instances."""
    cells = np.array([(x, y) for y in range(50, 150, 20) for x in range(60, 180, 20)], float)
    return cells[rng.permutation(len(cells))[: len(skeleton.keypoints)]] + rng.uniform(-2, 2, 2)


def make_lsp(path, instances, labelled):
    table = np.concatenate([instances, labelled[..., None]], 2)
    scipy.io.savemat(path / "joints.mat", {"joints": table.transpose(1, 2, 0)})
    for i, keypoints in enumerate(instances, start=1):
        draw(path / "images" / f"im{i:05d}.jpg", keypoints, LSP)


def make_mpii(path, instances, labelled):
    for part, rows in (("train", range(TEST, PEOPLE)), ("valid", range(TEST))):
        content = [
            {
                "image": f"{i}.jpg",
                "center": [121.0, 101 - 15 * 0.6],
                "scale": 0.6,
                "joints": (instances[i] + 1).tolist(),
                "joints_vis": labelled[i].astype(int).tolist(),
            }
            for i in rows
        ]
        (path / "annot").mkdir(exist_ok=True)
        (path / "annot" / f"{part}.json").write_text(json.dumps(content))
    for i, keypoints in enumerate(instances):
        draw(path / "images" / f"{i}.jpg", keypoints, MPII)


def make_coco(path, instances, labelled):
    for part, rows in (("train", range(TEST, PEOPLE)), ("val", range(TEST))):
        annotations = [
            {
                "image_id": i,
                "keypoints": np.concatenate([instances[i], 2 * labelled[i][:, None]], 1).ravel().tolist(),
                "bbox": [50, 40, 140, 120],
            }
            for i in rows
        ]
        images = [{"id": i, "file_name": f"{i}.png"} for i in rows]
        (path / f"{part}.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    for i, keypoints in enumerate(instances):
        draw(path / "images" / f"{i}.png", keypoints, COCO)


SETS = {
    "lsp": (Lsp, LSP, make_lsp),
    "mpii": (Mpii, MPII, make_mpii),
    "coco": (CocoKeypoints, COCO, make_coco),
}


@pytest.fixture(scope="module", params=SETS)
def directory(request, tmp_path_factory):
    """A directory in the layout of each data set, and the data set."""
    kind, skeleton, make = SETS[request.param]
    path = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(0)
    instances = np.stack([grid(skeleton, rng) for _ in range(PEOPLE)])
    make(path, instances, rng.random((PEOPLE, len(skeleton.keypoints))) < 0.9)
    return path, kind


@pytest.fixture(scope="module")
def data(directory):
    path, kind = directory
    return kind.load(path, size=SIZE, workers=0)


def same(a, b):
    pairs = [(a[0], b[0]), *((a[1][name], b[1][name]) for name in a[1])]
    return all(torch.equal(x.nan_to_num(-1), y.nan_to_num(-1)) for x, y in pairs)


def test_shapes(data):
    keypoints = len(data.skeleton.keypoints)
    inputs, target = next(data.train_batches(4, seed=0, epoch=0))
    assert inputs.shape == (4, 3, SIZE, SIZE)
    assert {name: tuple(tensor.shape) for name, tensor in target.items()} == {
        "heatmaps": (4, keypoints, SIZE // 4, SIZE // 4),
        "weight": (4, keypoints),
        "keypoints": (4, keypoints, 2),
        "labelled": (4, keypoints),
        "norm": (4,),
    }
    assert inputs.dtype == target["heatmaps"].dtype == target["keypoints"].dtype == torch.float32
    assert data.labels == ()
    assert data.input_spec.size == (SIZE, SIZE)
    assert len(data.test) > 0
    assert len(data.train) + len(data.test) == PEOPLE


def test_keypoints_lie_on_the_body_however_it_was_moved(data):
    """Each keypoint on a dot of its side's colour; the sides change place in a mirrored crop."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.input_spec.mean, data.input_spec.std))
    seen, mirrored = 0, 0
    for epoch in range(3):
        order = []
        for inputs, target in data.train_batches(3, seed=1, epoch=epoch):
            for crop, keypoints, labelled, weight in zip(
                inputs * std + mean, target["keypoints"], target["labelled"], target["weight"], strict=True
            ):
                votes = []
                for keypoint in torch.nonzero(weight)[:, 0].tolist():
                    x, y = keypoints[keypoint].round().int().clamp(0, SIZE - 1).tolist()
                    found = crop[:, y, x]
                    expected = torch.tensor(colour(data.skeleton.keypoints[keypoint])) / 255
                    if expected[1]:
                        assert found[1] > 0.3
                    else:
                        assert found.max() > 0.3
                        votes.append(bool((found - expected).abs().sum() > 1))
                assert len(set(votes)) <= 1
                mirrored += any(votes)
                seen += 1
                assert (weight <= labelled).all()
                order.append(keypoints)
    assert 0.25 < mirrored / seen < 0.75


def test_heatmaps_show_the_keypoints(data):
    for batches in (data.train_batches(6, 0, 0), data.test_batches(6)):
        for _, target in batches:
            found, _ = decode(target["heatmaps"].numpy(), 4)
            drawn = target["weight"].numpy() > 0
            assert drawn.mean() > 0.5
            assert np.abs(found - target["keypoints"].numpy())[drawn].max() <= 2.01


def test_gaussians_are_as_wide_as_the_recipe_says(tmp_path):
    """The sum over the cells of one with peak 1 is 2 pi sigma^2, where none of it lies outside."""
    rng = np.random.default_rng(0)
    make_lsp(tmp_path, np.stack([grid(LSP, rng) for _ in range(PEOPLE)]), np.ones((PEOPLE, 14), bool))
    for sigma in (0.5, 1.0):
        recipe = LspOptions(size=96, margin=3.0, sigma=sigma)
        _, target = next(recipe(tmp_path).test_batches(PEOPLE))
        np.testing.assert_allclose(target["heatmaps"].sum((2, 3)), 2 * np.pi * sigma**2, rtol=0.05)


@pytest.mark.parametrize("sigma", [-1.0, 0.0, 0.19, float("nan"), float("inf")])
def test_gaussians_that_are_none(data, sigma):
    with pytest.raises(InputError, match=r"--sigma: expected 0\.2 to 10 cells"):
        replace(data, sigma=sigma)


@pytest.mark.parametrize("margin", [-1.0, 0.0, float("nan"), float("inf")])
def test_margins_that_are_none(tmp_path, margin):
    with pytest.raises(InputError, match=r"margin.*: expected a (finite number|number above 0)"):
        Lsp.load(tmp_path, margin=margin)


def test_an_epoch_can_be_entered_anywhere(data):
    whole = list(data.train_batches(4, seed=3, epoch=5))
    rest = list(data.train_batches(4, seed=3, epoch=5, start=2))
    assert len(whole) == data.steps(4) > 2
    assert all(same(a, b) for a, b in zip(whole[2:], rest, strict=True))


def order(data, seed, epoch):
    """The instances of an epoch, in order, by number; and their norms."""
    seen = Seen(data.images)
    batches = list(replace(data, images=seen).train_batches(3, seed, epoch))
    instances = [data.train.images.index(path) for path in seen.paths]
    return instances, torch.cat([target["norm"] for _, target in batches]).numpy()


class Seen:
    """Images that remember which were asked for."""

    def __init__(self, images):
        self.images, self.paths = images, []

    def __getitem__(self, path):
        self.paths.append(path)
        return self.images[path]

    def fill(self, instances):
        pass


def test_everybody_comes_once_in_an_order_of_its_own(data):
    orders = [order(data, *key)[0] for key in ((0, 0), (0, 1), (1, 0))]
    for instances in orders:
        assert len(set(instances)) == len(instances) == 3 * data.steps(3)
    assert len({tuple(instances) for instances in orders}) == 3


def test_instances_grow_by_the_scale_that_is_drawn_for_them(data):
    """Whatever the order; so the norm, in pixels of the crop, grows too."""
    for key in ((0, 0), (0, 1), (1, 0)):
        instances, norm = order(data, *key)
        drawn = np.array([CropMovement()(*key, person)[0] for person in instances])
        plain = data.train.norm[instances] * SIZE / data.train.side[instances]
        np.testing.assert_allclose(norm, drawn * plain, rtol=1e-5)


def test_movements_differ_between_seeds_epochs_and_instances():
    movement = CropMovement()
    drawn = [movement(*key) for key in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))]
    assert len({scale for scale, _, _ in drawn}) == 4
    assert movement(0, 1, 0) == drawn[2]


def test_processes_share_a_batch(data):
    whole = next(data.train_batches(6, 0, 0))
    parts = [next(data.train_batches(6, 0, 0, rank=rank, world=3)) for rank in range(3)]
    for rank, part in enumerate(parts):
        assert torch.equal(part[0], whole[0][rank::3])
        assert torch.equal(part[1]["heatmaps"], whole[1]["heatmaps"][rank::3])


def test_test_set_instances_come_once_and_in_order(data):
    whole = torch.cat([target["keypoints"] for _, target in data.test_batches(4)])
    assert len(whole) == len(data.test)
    shares = [torch.cat([t["keypoints"] for _, t in data.test_batches(4, rank, 2)]) for rank in range(2)]
    assert torch.equal(shares[0], whole[::2])
    assert torch.equal(shares[1], whole[1::2])
    for i in range(len(data.test)):
        image, matrix = data.test_image(i)
        assert image.shape == (200, 240, 3)
        labelled = data.test.labelled[i]
        expected = transform(data.test.keypoints[i], matrix)[labelled]
        np.testing.assert_allclose(whole[i].numpy()[labelled], expected, atol=1e-3)


def test_inputs_are_prepared_as_for_inference(data):
    inputs, _ = next(data.test_batches(1))
    image, matrix = data.test_image(0)
    assert np.array_equal(inputs[0].numpy(), normalise(warp(image, matrix, SIZE), data.input_spec))


def test_the_norm_is_in_pixels_of_the_crop(data):
    norm = torch.cat([target["norm"] for _, target in data.test_batches(4)]).numpy()
    np.testing.assert_allclose(norm, data.test.norm * SIZE / data.test.side, rtol=1e-5)


def test_workers_make_the_same_batches(data, directory):
    path, kind = directory
    with_workers = kind.load(path, size=SIZE, workers=2)
    for a, b in zip(with_workers.train_batches(5, 0, 1), data.train_batches(5, 0, 1), strict=True):
        assert same(a, b)


def test_limit_and_validation(directory, data):
    path, kind = directory
    few = kind.load(path, size=SIZE, limit=3, workers=0)
    assert (len(few.train), len(few.test)) == (3, 3)
    validation = kind.load(path, size=SIZE, holdout="validation", workers=0)
    n = len(data.train)
    assert (len(validation.train), len(validation.test)) == (n - n // 10, n // 10)
    assert {*validation.train.images, *validation.test.images} == {*data.train.images}


def test_a_missing_image_is_named_before_the_first_step(directory):
    path, kind = directory
    data = kind.load(path, size=SIZE, workers=0)
    missing = data.test.images[1]
    whole = missing.read_bytes()
    missing.unlink()
    try:
        with pytest.raises(InputError, match=f"{missing.name}: expected the {PEOPLE} images .* found 1 of"):
            next(data.train_batches(2, 0, 0))
    finally:
        missing.write_bytes(whole)


def test_an_image_that_exif_turns_is_refused(directory):
    path, kind = directory
    data = kind.load(path, size=SIZE, workers=0)
    turned = data.test.images[1]
    whole, exif = turned.read_bytes(), Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(whole)).save(turned, "png", exif=exif)
    try:
        with pytest.raises(InputError, match=f"{turned.name}: expected an image as it is stored, found"):
            list(data.test_batches(2))
    finally:
        turned.write_bytes(whole)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_named(directory, tmp_path, workers):
    path, kind = directory
    data = kind.load(path, size=SIZE, workers=workers)
    damaged = data.test.images[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(b"no image")
    try:
        with pytest.raises(InputError, match=f"{damaged.name}: expected an image"):
            list(data.test_batches(2))
    finally:
        damaged.write_bytes(whole)


@pytest.mark.parametrize("size", [0, 8, 98, -4])
def test_sizes_that_have_no_heatmap(directory, size):
    path, kind = directory
    with pytest.raises(InputError, match="multiple of 4"):
        kind.load(path, size=size)


def test_a_directory_that_is_another(directory, tmp_path):
    _, kind = directory
    for wrong in (None, tmp_path, tmp_path / "none"):
        with pytest.raises(InputError):
            kind.load(wrong, size=SIZE)


@pytest.mark.parametrize(("degrees", "zoom"), [(30, 0.3), (90, 0.05)])
def test_movements_cover_their_range(degrees, zoom):
    """Of a fixed sample: uniform in the range, half of them mirrored."""
    movement = CropMovement(degrees, zoom)
    scale, rotation, flip = np.array([movement(0, 0, person) for person in range(4000)]).T
    for values, low, high in ((scale, 1 - zoom, 1 + zoom), (rotation, -degrees, degrees)):
        shares, _ = np.histogram(values, bins=10, range=(low, high))
        assert shares.sum() == 4000
        assert shares.min() > 320
    assert abs(flip.mean() - 0.5) < 0.03
    assert np.abs(np.corrcoef([scale, rotation, flip])[np.triu_indices(3, 1)]).max() < 0.05


def test_instances_are_moved_as_far_as_the_data_set_says(data):
    still = replace(data, movement=CropMovement(rotation=0, zoom=0))
    instances, norm = order(still, 0, 0)
    np.testing.assert_allclose(
        norm, still.train.norm[instances] * SIZE / still.train.side[instances], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "values"), [("rotation", (-1, 0)), ("rotation", (181, 0)), ("zoom", (0, 1)), ("zoom", (0, -0.1))]
)
def test_movements_that_are_none(name, values):
    with pytest.raises(InputError, match=f"--{name}"):
        CropMovement(*values)
