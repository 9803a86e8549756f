"""`bitfactor predict FILE PICTURE...`: needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.predict_classes import predict_classes
from bitfactor.cli.predict_pose import predict_pose
from bitfactor.cli.sources import sources_of
from bitfactor.errors import InputError
from bitfactor.pose.finder import Box
from bitfactor.runtime import Session


@dataclass(frozen=True)
class Arguments:
    """Classify pictures with an exported network, or find the joints of the person in each and draw them."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    pictures: tyro.conf.Positional[tuple[Path, ...]]
    """Pictures of any size, folders of them; for poses also videos."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="PATH")] = None
    """For poses: where the drawings go, a folder, or a file for one picture or video."""
    box: Annotated[str | None, tyro.conf.arg(metavar="X,Y,W,H")] = None
    """For poses: left, top, width and height of the person in pixels; the whole picture if left out."""
    top: int = 3
    """For classes: how many to show."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print what the network says of each picture."""
    options = parse(Arguments, "predict", arguments)
    sources = sources_of(options.pictures)
    session = Session(options.model)
    spec = session.model.input_spec
    if spec is None:
        raise InputError(
            options.model,
            expected="a model that says how pictures are prepared",
            found="no input specification",
            fix="pass input_spec to bitfactor.export",
        )
    if session.model.skeleton is not None:
        predict_pose(session, sources, _box(options.box), options.output, options.json)
        return
    for name, value in {"--output": options.output, "--box": options.box}.items():
        if value is not None:
            raise InputError(
                name, expected="a network that finds joints", found="one that classifies", fix="leave it out"
            )
    predict_classes(session, spec, sources, options.top, options.json)


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
            fix="give four numbers with commas between, the last two above 0",
        )
    return left, top, width, height
