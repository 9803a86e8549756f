"""Networks in a web page: the core as WebAssembly, a module for it, and a page for photos and the camera."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import made_directory, write_file
from bitfactor.common.result import Result
from bitfactor.format import ModelFile
from bitfactor.runtime.prediction import gives_probabilities

__all__ = ["MODULE", "PACKAGE", "Page", "write_page"]


PACKAGE = Path(__file__).parent  # laid out as a package of npm
MODULE = (
    "bitfactor.js",
    "thread.js",
    "images.js",
    "answers.js",
    "bitfactor.wasm",
    "bitfactor-relaxed.wasm",
    "page.js",
    "page.css",
)


@dataclass(frozen=True)
class Page(Result):
    """A page that was written; `files` with their bytes."""

    directory: Path
    files: dict[str, int]

    def __str__(self) -> str:
        total = sum(self.files.values())
        return (
            f"{self.directory / 'index.html'}: {len(self.files)} files, {total:,} bytes\n"
            f"to look at it: python -m http.server --directory {self.directory}"
        )


@checked
def write_page(model: ModelFile, program: bytes, title: str, directory: str | os.PathLike[str]) -> Page:
    """Write a page for a network to a directory: `program` is the same as `bitfactor freeze` writes it.

    Raises
    ------
    InputError
        If the network does not say how an image becomes its input, or gives neither classes nor keypoints; or
        the directory cannot be written.
    """
    _expect_answer(model)
    directory = made_directory(directory)
    title = title.encode("utf-8", "replace").decode()  # a name of a file may be other bytes
    what = {
        "title": title,
        "network": "net.bfp",
        "finds": "keypoints" if model.skeleton else "classes",
        "heatmaps": model.provenance.get("heatmaps", "linear"),
        "probabilities": gives_probabilities(model),
    }
    index = Template((PACKAGE / "page.html").read_text(encoding="utf-8")).substitute(
        title=_escaped(title), options=json.dumps(what).replace("<", "\\u003c")
    )
    for name in MODULE:
        write_file(directory / name, (PACKAGE / name).read_bytes())
    write_file(directory / "net.bfp", program)
    write_file(directory / "index.html", index)
    names = sorted([*MODULE, "net.bfp", "index.html"])
    return Page(directory, {name: (directory / name).stat().st_size for name in names})


def _expect_answer(model: ModelFile) -> None:
    shape = model.graph.values[model.graph.outputs[0]].shape
    if model.input_spec is None or not model.input_spec.of_images:
        found = "no input specification of images, with one channel or three"
    elif model.skeleton is not None:
        from bitfactor.runtime.finder import PoseFinder  # here, as poses alone need OpenCV

        finder = PoseFinder.of(model, lambda x: np.zeros((1, *shape), np.float32))
        finder(np.zeros((*model.input_spec.size, 3), np.uint8))  # it says what does not fit
        return
    elif len(shape) != 1 or (shape == (1,) and not gives_probabilities(model)):
        found = f"an output shaped {shape}"
    else:
        return
    raise InputError(
        "page",
        expected="a network for images that gives classes or keypoints",
        found=found,
        fix="use the module bitfactor.js in a page of your own",
    )


def _escaped(text: str) -> str:
    import html  # here, for a quick import of the rest

    return html.escape(text)
