"""Images per second of the ImageNet pipeline on one core, against OpenCV decoding the same JPEGs alone.

    python benchmarks/dataloading.py [--images 1024] [--rounds 5] [--json]

Generated images of 500x375 pixels at quality 90, with the spectrum of photographs and about as many bytes
as ImageNet's, lie in class directories. `decode` is `cv2.imdecode` over their bytes in memory. The pipeline
goes from the files to batches of 64 at 224x224 with one worker process, with either preset: once up to
normalised float32 on the CPU, once up to the uint8 batch that goes to another device and is normalised
there. The process and its worker keep to one core. All take turns, over all batches and over the last four:
the difference is the time of those before, without starting the worker and without the first use of its
memory, four batches. Reported are medians over the rounds of images per second of CPU time, and of the ratio
to `decode` in a round.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import torch

from bitfactor.common.machine import cpu_name
from bitfactor.data import ImageFolder

HEIGHT, WIDTH, QUALITY, BATCH = 375, 500, 90, 64


def image(generator: np.random.Generator) -> np.ndarray:
    """Return (375, 500, 3) uint8: an amplitude of 1/frequency, brightness far stronger than colour."""
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None]
    amplitude = 1 / np.maximum(np.hypot(fy, fx), 1 / WIDTH)

    def field() -> np.ndarray:
        phase = np.exp(2j * np.pi * generator.random(amplitude.shape))
        plane = np.fft.irfft2(amplitude * phase, (HEIGHT, WIDTH))
        return plane / plane.std()

    planes = np.stack([128 + 42 * field(), 128 + 15 * field(), 128 + 15 * field()], axis=2)
    return cv2.cvtColor(planes.clip(0, 255).astype(np.uint8), cv2.COLOR_YCrCb2BGR)


def generate(directory: Path, images: int) -> list[np.ndarray]:
    """Write the images in two classes and return their encoded bytes; those that differ are 256."""
    generator, quality = np.random.default_rng(0), [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    different = [cv2.imencode(".jpg", image(generator), quality)[1] for _ in range(256)]
    encoded = [different[i % len(different)] for i in range(images)]
    for i, data in enumerate(encoded):
        path = directory / "train" / str(i % 2) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.tobytes())
    (directory / "val").symlink_to("train")
    return encoded


def candidates(directory: Path, encoded: list[np.ndarray]) -> dict[str, Callable[[int], int]]:
    """Return name -> a function that goes over the batches from a number on and returns how many images."""

    def decode(start: int) -> int:
        for data in encoded[start * BATCH :]:
            cv2.imdecode(data, cv2.IMREAD_COLOR)
        return len(encoded) - start * BATCH

    def pipeline(preset: str, device: str) -> Callable[[int], int]:
        data = ImageFolder.load(directory, preset=preset, workers=1).to(device)
        return lambda start: sum(len(labels) for _, labels in data.train_batches(BATCH, 0, 0, start))

    kinds = {"for a device": "meta", "normalised": "cpu"}
    named = {f"{preset}, {kind}": (preset, kinds[kind]) for preset in ("paper", "standard") for kind in kinds}
    return {"decode": decode} | {name: pipeline(*options) for name, options in named.items()}


def cpu_seconds() -> float:
    """Return the CPU time that this process and its finished workers took, which others cannot slow."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def rates(runs: dict[str, Callable[[int], int]], batches: int, rounds: int) -> dict[str, list[float]]:
    """Return name -> images per second in each round, after one that does not count."""
    measured: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            begin = cpu_seconds()
            images = run(0)
            middle = cpu_seconds()
            images -= run(batches - 4)
            measured[name].append(images / (2 * middle - begin - cpu_seconds()))
    return {name: values[1:] for name, values in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as directory:
        encoded = generate(Path(directory), options.images // BATCH * BATCH)
        runs = candidates(Path(directory), encoded)
        measured = rates(runs, len(encoded) // BATCH, options.rounds)
    rows = {
        name: {
            "images_per_second": round(median(values), 1),
            "of_decode": round(median(v / d for v, d in zip(values, measured["decode"], strict=True)), 3),
        }
        for name, values in measured.items()
    }
    report = {
        "machine": {"cpu": cpu_name(), "core": core, "platform": platform.platform()},
        "versions": {
            "python": platform.python_version(),
            "opencv": cv2.__version__,
            "torch": torch.__version__,
        },
        "bytes_per_image": round(sum(data.nbytes for data in encoded) / len(encoded)),
        "rates": rows,
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(report["machine"], report["versions"], f"{report['bytes_per_image']} bytes an image", sep="\n")
    for name, row in rows.items():
        print(f"{name:24} {row['images_per_second']:8.1f} images/s {row['of_decode']:7.1%} of decode")


if __name__ == "__main__":
    main()
