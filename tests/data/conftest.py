"""Small data sets in their published layouts."""

import io
import json
import tarfile

import cv2
import numpy as np
import pytest


@pytest.fixture(scope="session")
def smooth():
    """An image that survives JPEG: (seed, height, width) -> (H, W, 3) uint8."""

    def smooth(seed, height=48, width=64):
        coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
        return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)

    return smooth


@pytest.fixture(scope="session")
def jpeg(smooth):
    """The bytes of such an image as a JPEG."""
    return lambda *arguments: cv2.imencode(".jpg", smooth(*arguments)[..., ::-1])[1].tobytes()


@pytest.fixture
def folder(tmp_path, jpeg):
    """Images in train/ and val/ of two classes."""
    for part, count in (("train", 20), ("val", 6)):
        for i in range(count):
            path = tmp_path / "images" / part / ("cat", "dog")[i % 2] / f"{part}{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(i + 100 * (part == "val")))
    return tmp_path / "images"


@pytest.fixture
def shards(tmp_path, jpeg):
    """Write shards of so many samples each, and their description -> the directory."""

    def write(trained=(7, 5, 9, 6, 5), held=(3, 4), **description):
        directory, seed = tmp_path / "shards", 0
        directory.mkdir(exist_ok=True)
        for part, counts in (("train", trained), ("val", held)):
            for number, count in enumerate(counts):
                with tarfile.open(directory / f"{part}-{number}.tar", "w") as tar:
                    for i in range(count):
                        for extension, data in (("jpg", jpeg(seed)), ("cls", str(seed % 3).encode())):
                            info = tarfile.TarInfo(f"{part}{number}_{i}.{extension}")
                            info.size = len(data)
                            tar.addfile(info, io.BytesIO(data))
                        seed += 1
        description = {
            "train": f"train-{{0..{len(trained) - 1}}}.tar",
            "val": f"val-{{0..{len(held) - 1}}}.tar",
            "labels": ["a", "b", "c"],
        } | description
        (directory / "shards.json").write_text(json.dumps(description))
        return directory

    return write
