"""A skeleton of one's own, in COCO's layout, is trained, evaluated and exported by its recipe."""

import json

import cv2
import numpy as np

import bitfactor

PAWS = ["left_paw", "right_paw", "nose"]


def write(folder, part, count):
    (folder / "images").mkdir(exist_ok=True)
    draw = np.random.default_rng(count)
    images, annotations = [], []
    for i in range(count):
        name = f"{part}{i}.png"
        cv2.imwrite(str(folder / "images" / name), draw.integers(0, 256, (60, 80, 3), np.uint8))
        images.append({"id": i, "file_name": name, "width": 80, "height": 60})
        points = [v for x, y in draw.integers(10, 50, (3, 2)).tolist() for v in (x, y, 2)]
        annotations.append({"id": i, "image_id": i, "keypoints": points, "bbox": [5, 5, 50, 50]})
    category = {"keypoints": PAWS, "skeleton": [[1, 3]]}
    content = {"images": images, "annotations": annotations, "categories": [category]}
    (folder / f"{part}.json").write_text(json.dumps(content))


def test_a_skeleton_of_ones_own_is_trained_evaluated_and_exported(tmp_path):
    data = tmp_path / "cats"
    data.mkdir()
    write(data, "train", 4)
    write(data, "val", 2)
    small = {
        "size": 64,
        "channels": 8,
        "depth": 2,
        "epochs": 1,
        "batch_size": 2,
        "limit": 2,
        "warmup_epochs": 0.5,
    }
    run = bitfactor.train("coco-hourglass", out=tmp_path / "run", data=data, progress=False, **small)
    assert len(run.evaluate(data=data).truth) == 2
    run.export(tmp_path / "cats.safetensors")
    found = bitfactor.Session(tmp_path / "cats.safetensors").predict(np.zeros((60, 80, 3), np.uint8))
    assert [point.keypoint for point in found.keypoints] == PAWS
