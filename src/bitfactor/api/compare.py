"""`bitfactor compare`: one bit or eight on images of one's own, from networks trained in equal time.

A binary network, the same network in full precision and a compact one are trained on the same images. The
two in full precision are quantised to int8. All are measured on this machine, and the figures name one.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binomtest

from bitfactor.api.bench import interleaved
from bitfactor.api.candidates import ENDS, Made, written
from bitfactor.api.train import train
from bitfactor.common.arrays import expect_above_0
from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, write_json
from bitfactor.common.machine import cpu_name
from bitfactor.common.result import Result, text_table
from bitfactor.data.stored import FolderOptions, StoredImages
from bitfactor.engines import peak_memory
from bitfactor.recipes import recipe_named
from bitfactor.recipes.fitting import TooShortError
from bitfactor.study.documents import Chapter, Document, Figure, Table, write_html
from bitfactor.study.figures import front
from bitfactor.training.estimate import duration

_SHARE = 0.95  # of the time is for training, the rest for what is measured afterwards
_FEWEST = 30  # images, below which an interval says nothing
_SURE = 1.96  # standard errors: 95 %
_SAME_TIME = 1.05  # times as long is no difference
_PAGE, _FIGURES = "compare.html", "compare.json"

NETWORKS = {
    "binary": ("folder-resnet18", False),
    "float": ("folder-resnet18", True),
    "compact": ("folder-compact", True),
}
"""What is trained: name -> recipe, and whether in full precision. The second is the first without signs."""


@dataclass(frozen=True)
class Compared(Result):
    """One network in one engine.

    `weights` are 1 bit, int8 or float32. `side` is that of its images, in pixels. `interval` are the ends of
    the 95 % interval of `accuracy` (Wilson). `right` (N,) says which images are classified right. `memory`
    is the most that a process takes which loads the file and runs one image, in bytes.
    """

    network: str
    weights: str
    engine: str
    file: str
    side: int
    accuracy: float
    interval: tuple[float, float]
    minimum_ms: float
    bytes: int
    memory: int | None
    right: NDArray[np.bool_] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The network with its weights."""
        return f"{self.network}, {self.weights}"

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name != "right"}

    def lead_over(self, other: "Compared") -> tuple[float, float]:
        """Return by how much it is more accurate on the same images, and half of the 95 % interval."""
        mine, theirs = int((self.right & ~other.right).sum()), int((other.right & ~self.right).sum())
        count, difference = len(self.right), mine - theirs
        error = np.sqrt(max(mine + theirs - difference**2 / count, 0.0)) / count
        return difference / count, _SURE * float(error)


@dataclass(frozen=True)
class Comparison(Result):
    """What was compared on which images, and the network to take."""

    out: Path
    images: str
    machine: str
    minutes: float
    threads: int
    rows: tuple[Compared, ...]

    @property
    def recommended(self) -> Compared:
        """The fastest of those not clearly less accurate than the best; the smallest of equal times."""
        best = max(self.rows, key=lambda row: row.accuracy)
        level = [row for row in self.rows if np.less_equal(*best.lead_over(row))]
        fastest = min(row.minimum_ms for row in level)
        return min(
            (row for row in level if row.minimum_ms <= _SAME_TIME * fastest), key=lambda row: row.bytes
        )

    @property
    def sentence(self) -> str:
        """Which to take, and what the most accurate of the other kind is: of int8 for one bit, or one bit."""
        taken = self.recommended
        kind = "int8" if taken.weights == "1 bit" else "1 bit"
        others = [row for row in self.rows if row.weights == kind]
        other = max(others, key=lambda row: row.accuracy)
        lead, half = taken.lead_over(other)
        points = f"{100 * abs(lead):.1f} points {'more' if lead > 0 else 'less'} (±{100 * half:.1f})"
        accuracy = points if lead else "as accurate"
        times = f"{taken.minimum_ms / other.minimum_ms:.2f} times its latency"
        sizes = f"{taken.bytes / other.bytes:.2f} times its bytes"
        said = f"Take {taken.name}: {taken.accuracy:.1%} in {taken.minimum_ms:.2f} ms."
        return f"{said} Beside {other.name}, that is {accuracy}, at {times} and {sizes}."

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "recommended": self.recommended.name, "sentence": self.sentence}

    def __str__(self) -> str:
        table = text_table(_HEAD, _cells(self.rows), right=range(3, 9))
        return f"{table}\n{self.images}; {self.caption}\n\n{self.sentence}\n{self.out / 'compare.html'}"

    @property
    def caption(self) -> str:
        """What the figures were taken on."""
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.machine}, {threads}, batch 1; each network was trained for the same time"


@checked
def compare(
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    minutes: float = 60.0,
    threads: int = 1,
    runs: int = 200,
    device: str = "auto",
    overwrite: bool = False,
    progress: bool = True,
) -> Comparison:
    """Train a binary, a full-precision and a compact network on images of your own, and say which to take.

    Each gets a third of the time. The two in full precision are also quantised to int8. All are measured on
    the same images and on this machine. The same call resumes where an interrupted one stopped.

    Parameters
    ----------
    data
        Directory of class directories, or with train/ and val/ (or valid, validation, test) of them.
    out
        Directory of the comparison: a run of each network, their files (.safetensors, .onnx), a page.
    minutes
        How long the trainings may take together.
    threads
        Threads of each engine when it is timed.
    runs
        Timed runs of each.
    device
        Where torch trains: auto, cpu, cuda or cuda:N.
    overwrite
        Replace files in `out` that bitfactor did not write.
    progress
        Show progress on stderr.

    Raises
    ------
    InputError
        If the images cannot be read or are too few. If the time is too short for one of the networks, or an
        engine is not installed.

    Example
    -------
    >>> print(bitfactor.compare("photos", out="runs/compared", minutes=60).sentence)
    Take compact, int8: 76.1% in 0.38 ms. Beside binary, 1 bit, that is 0.4 points more (±1.2), at ...
    """
    expect_above_0("minutes", minutes)
    for argument, value in {"runs": runs, "threads": threads}.items():
        expect_that(value > 0, argument, expected="1 or more", found=value)
    imported("bitfactor.engines.with_openvino", "bitfactor compare", "bench")
    folder, images = Path(out), Path(data)
    _expect_place(folder, minutes, overwrite)
    _expect_enough(images, folder)
    console = Console(stderr=True, highlight=False, quiet=not progress)
    for number, name in enumerate(NETWORKS, 1):
        console.print(f"{name}: network {number} of {len(NETWORKS)}")
        _train(name, folder, images, minutes, device, progress)
    console.print("all are trained; now latency, accuracy and memory")
    timed = _fastest(
        [one for name in NETWORKS for one in written(folder / name, folder / name, threads)], runs
    )
    rows, described = _measured(timed, images, threads)
    found = Comparison(folder, described, cpu_name(), minutes, threads, rows)
    write_json(folder / _FIGURES, found.to_dict())
    write_html(_document(found, images), folder / _PAGE)
    return found


def _train(name: str, folder: Path, data: Path, minutes: float, device: str, progress: bool) -> None:
    recipe, real = NETWORKS[name]
    share, out = minutes * _SHARE / len(NETWORKS), folder / name
    noting = SimpleNamespace(on_train_start=lambda _: _note(folder, minutes))
    try:
        train(
            recipe,
            out=out,
            data=data,
            minutes=share,
            real=real,
            device=device,
            progress=progress,
            callbacks=[noting],
        )
    except TooShortError as error:
        needed = error.needed * len(NETWORKS) / _SHARE
        raise InputError(
            "minutes",
            expected=f"{needed:.1f} or more, a third for each network",
            found=f"{minutes}, which is too little for {name}",
            fix="give it more time",
        ) from error


def _note(folder: Path, minutes: float) -> None:
    """Note the time of a comparison that begins: one that is resumed must have the same."""
    if not (folder / _FIGURES).exists():
        write_json(folder / _FIGURES, {"minutes": minutes})


def _fastest(made: Sequence[Made], runs: int) -> list[Made]:
    """Time all in turns, and return the faster engine of each network with the same weights."""
    inputs = [np.zeros((1, *one.shape), np.float32) for one in made]
    calls = {str(i): partial(one.call, x) for i, (one, x) in enumerate(zip(made, inputs, strict=True))}
    timed = [
        replace(one, minimum_ms=row["minimum_ms"])
        for one, row in zip(made, interleaved(calls, runs), strict=True)
    ]
    best: dict[tuple[str, str, str], Made] = {}
    for one in sorted(timed, key=lambda one: one.minimum_ms):
        best.setdefault((one.network, one.weights, one.precision), one)
    return [one for one in timed if one in best.values()]


def _measured(timed: Sequence[Made], data: Path, threads: int) -> tuple[tuple[Compared, ...], str]:
    """Return a row for each, and which images they were evaluated on."""
    rows, described = [], ""
    for one in timed:
        found = one.on(data)
        described, right = found.images, found.expected == found.found
        ends = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
        rows.append(
            Compared(
                network=one.network,
                weights=one.weights,
                engine=one.engine,
                file=one.file.name,
                side=one.shape[-1],
                accuracy=found.accuracy,
                interval=(float(ends.low), float(ends.high)),
                minimum_ms=one.minimum_ms,
                bytes=one.file.stat().st_size,
                memory=peak_memory(one.engine.partition(",")[0], one.file, one.shape, threads, one.precision),
                right=right,
            )
        )
    return tuple(rows), described


def _expect_place(folder: Path, minutes: float, overwrite: bool) -> None:
    """Raise InputError unless `folder` has no files of others, or a comparison of as many minutes."""
    fix = "name another directory"
    expect_that(not folder.is_file(), f"--out {folder}", expected="a directory", found="a file", fix=fix)
    begun = folder / _FIGURES
    if not begun.exists():
        for name in (_PAGE, *(f"{one}{end}" for one in NETWORKS for end in ENDS)):
            expect_output(folder / name, overwrite=overwrite, flag="--out")
        return
    try:
        before = float(json.loads(begun.read_text())["minutes"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            begun, expected="a file that compare wrote", found="one that it cannot read", fix=fix
        ) from error
    expect_that(
        before == minutes,
        "minutes",
        expected=f"{before:g}, with which {folder} was begun",
        found=f"{minutes:g}",
        fix="pass that, or another --out",
    )


def _expect_enough(data: Path, folder: Path) -> None:
    images = FolderOptions()(data)
    assert isinstance(images, StoredImages)
    if len(images.test) < _FEWEST:
        raise InputError(
            images.test_name,
            expected=f"{_FEWEST} images or more, for an interval",
            found=str(len(images.test)),
            fix="add images to val/, or to all classes",
        )
    begins = [recipe for name, (recipe, _) in NETWORKS.items() if not (folder / name).exists()]
    batch = max((recipe_named(recipe).optimization.batch_size for recipe in begins), default=1)
    expect_that(
        len(images.train) >= batch,
        data,
        expected=f"{batch} training images or more, for a batch",
        found=len(images.train),
        fix="add images",
    )


_HEAD = (
    "network",
    "weights",
    "engine",
    "side",
    "accuracy",
    "95 % interval",
    "ms",
    "kB",
    "MB of memory",
    "file",
)


def _cells(rows: Sequence[Compared]) -> list[list[str]]:
    return [
        [
            row.network,
            row.weights,
            row.engine,
            str(row.side),
            f"{row.accuracy:.2%}",
            " to ".join(f"{100 * end:.1f}" for end in row.interval),
            f"{row.minimum_ms:.3f}",
            f"{row.bytes / 1000:,.0f}",
            "" if row.memory is None else f"{row.memory / 1e6:,.0f}",
            row.file,
        ]
        for row in rows
    ]


def _document(found: Comparison, data: Path) -> Document:
    points = {
        f"{row.name}, {row.engine}": (row.weights, row.minimum_ms, row.accuracy, row.interval)
        for row in found.rows
    }
    table = Table(_HEAD, _cells(found.rows), found.caption, words=(0, 1, 2, 9))
    caption = "Up and to the left is better. A line joins those that no other beats. Bars are 95 % intervals."
    drawn = Figure("front", front(points).encode(), caption)
    words = ["bitfactor", "compare", str(data), "--minutes", f"{found.minutes:g}", "--out", str(found.out)]
    again = shlex.join([*words, *(["--threads", str(found.threads)] if found.threads > 1 else [])])
    return Document(
        f"One bit or eight: {data.name}",
        [found.sentence, *_ABOUT],
        [("images", found.images), ("machine", found.machine), ("training", duration(found.minutes / 60))],
        [
            Chapter("Accuracy, latency and bytes", (), [table], [drawn]),
            Chapter("Again", (), commands=[("the same comparison", again)]),
        ],
    )


_ABOUT = (
    "The fastest network is named of those that are not clearly less accurate than the best one.",
    "Another time of training, another machine or other images can give another answer.",
)
