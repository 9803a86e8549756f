"""`bitfactor.page`: an exported file as a web page. Needs no torch."""

import os
from pathlib import Path

from bitfactor.common.checks import checked
from bitfactor.common.files import expect_output
from bitfactor.format import load
from bitfactor.runtime.zoo import locate
from bitfactor.targets.frozen import flat_program
from bitfactor.targets.page import PACKAGE, Page, write_page


@checked
def page(model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False) -> Page:
    """Write a static web page that runs an exported network on photos and on the camera, in the browser.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    output
        Directory of the page, for any web server.

    overwrite
        Replace files in it that bitfactor did not write.

    Raises
    ------
    InputError
        If the file cannot be read, does not say how an image becomes its input, or gives neither classes nor
        keypoints; or `output` cannot be written.

    Example
    -------
    >>> bitfactor.page("lsp-hourglass", "site").directory
    PosixPath('site')
    """
    path, index = locate(model), Path(output) / "index.html"
    names = [] if index.is_file() else [*(file.name for file in PACKAGE.iterdir()), "net.bfp"]
    for name in ("index.html", *names):
        expect_output(Path(output) / name, overwrite=overwrite, flag="--output")
    loaded = load(path)
    loaded.expect_one_input(output)
    return write_page(loaded, flat_program(loaded).content, path.stem, output)
