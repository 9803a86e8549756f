"""`bitfactor.page`: an exported file as a web page. Needs no torch."""

import os

from bitfactor.common.checks import checked
from bitfactor.format import load
from bitfactor.runtime.zoo import locate
from bitfactor.targets.frozen import flat_program
from bitfactor.targets.page import Page, write_page


@checked
def page(model: str | os.PathLike[str], output: str | os.PathLike[str]) -> Page:
    """Write a static web page that runs an exported network on photos and on the camera, in the browser.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    output
        Directory of the page, for any web server.

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
    path = locate(model)
    loaded = load(path)
    loaded.expect_one_input(output)
    return write_page(loaded, flat_program(loaded).content, path.stem, output)
