"""Networks of the Hugging Face Hub, `owner/name` or `owner/name@revision`; needs `bitfactor[hub]`."""

import os
import re
from pathlib import Path
from typing import Any

from bitfactor.common.errors import InputError, imported

FILE = "net.safetensors"
"""The exported network in a directory or repository of `bitfactor.save_pretrained`."""
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w.-]+))?")


def located(place: Any) -> Any:
    """Return the exported file that a place stands for: a directory's, or a repository's, after a download.

    Anything else, such as the path of a file, is returned as it is.

    Example
    -------
    >>> located("owner/name@4f2a9c1")
    PosixPath('.../snapshots/4f2a9c1.../net.safetensors')
    """
    if not isinstance(place, str | os.PathLike):
        return place
    if (Path(place) / FILE).is_file():
        return Path(place) / FILE
    return fetched(place, FILE) if is_repository(place) else place


def is_repository(place: str | os.PathLike[str]) -> bool:
    """Return whether a place can only be the name of a repository: it is no path that there is.

    >>> is_repository("owner/name@main"), is_repository("runs/net.safetensors"), is_repository("digits")
    (True, False, False)
    """
    found = _NAME.fullmatch(os.fspath(place))
    endings = (".safetensors", ".bfp", ".onnx")
    return found is not None and not Path(place).exists() and not found[1].endswith(endings)


def fetched(place: str | os.PathLike[str], file: str) -> Path:
    """Return a file of a repository as it lies in the cache, downloaded where it is not there yet.

    HF_ENDPOINT, HF_HUB_OFFLINE and the cache are those of huggingface_hub.

    Raises
    ------
    InputError
        If huggingface_hub is not installed, there is no such repository, or no network and no copy.
    """
    found = _NAME.fullmatch(os.fspath(place))
    assert found is not None
    hub = imported("huggingface_hub", place, "hub")
    try:
        return Path(hub.hf_hub_download(found[1], file, revision=found[2]))
    except (OSError, ValueError, hub.errors.HTTPError) as error:
        raise refused(
            place, f"a file or directory here, or a repository of the Hub with {file}", error
        ) from error


def refused(place: object, expected: str, error: Exception) -> InputError:
    """Return what to say where the Hub does not do what it is asked, or cannot be reached."""
    text = " ".join(str(error).split())
    fix = "check the name, or the network; HF_HUB_OFFLINE=1 takes what was downloaded before"
    return InputError(place, expected=expected, found=f"{type(error).__name__}: {text}"[:200], fix=fix)
