"""`bitfactor predict FILE IMAGE...`: needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bitfactor.api.predict import predict
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.output import print_result
from bitfactor.common.errors import InputError
from bitfactor.runtime.finder import Box


@dataclass(frozen=True)
class Arguments:
    """Classify images with an exported network, or find the keypoints of the person in each and draw them."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    images: tyro.conf.Positional[tuple[Path, ...]]
    """Images of any size, folders of them at any depth; for poses also videos."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="PATH")] = None
    """For poses: where the drawings go, a folder, or a file for one image or video."""
    box: Annotated[str | None, tyro.conf.arg(metavar="X,Y,W,H")] = None
    """For poses: left, top, width and height of the person in pixels; the whole image if left out."""
    top: int = 3
    """For classes: how many to show."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print what the network says of each image."""
    options = parse(Arguments, "predict", arguments)
    found = predict(
        options.model, options.images, top=options.top, output=options.output, box=_box(options.box)
    )
    print_result(found, as_json=options.json)


def _box(text: str | None) -> Box | None:
    if text is None:
        return None
    try:
        left, top, width, height = (float(part) for part in text.split(","))
    except ValueError:
        left = top = width = height = math.nan
    if not all(map(math.isfinite, (left, top, width, height))) or width <= 0 or height <= 0:
        raise InputError(
            "--box",
            expected="left, top, width and height in pixels, as in 40,10,120,300",
            found=repr(text),
            fix="give four values with commas between, the last two above 0",
        )
    return left, top, width, height
