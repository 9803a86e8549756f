"""Networks of the Hugging Face Hub, `owner/name` or `owner/name@revision`; needs `bitfactor[hub]`."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

from bitfactor.common.errors import InputError

FILE = "net.safetensors"
"""The exported network in a directory or repository of `bitfactor.save_pretrained`."""
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w.-]+))?")


def located(place: Any) -> Any:
    """Return the exported file that a place stands for: a directory's, or a repository's, after a download.

    Anything else, such as the path of a file, is returned as it is.
    """
    if not isinstance(place, str | os.PathLike):
        return place
    if (Path(place) / FILE).is_file():
        return Path(place) / FILE
    return fetched(place, FILE) if is_repository(place) else place


def is_repository(place: str | os.PathLike[str]) -> bool:
    """Return whether a place can only be the name of a repository: neither it nor its folder is here."""
    found = _NAME.fullmatch(os.fspath(place))
    endings = (".safetensors", ".bfp", ".onnx")
    return found is not None and not Path(place).parent.is_dir() and not found[1].endswith(endings)


def fetched(place: str | os.PathLike[str], file: str) -> Path:
    """Return a file of a repository as it lies in the cache, downloaded where it is not there yet.

    HF_ENDPOINT, HF_HUB_OFFLINE and the cache are those of huggingface_hub.

    Raises
    ------
    InputError
        If huggingface_hub is not installed, there is no such repository, or no network and no copy.
    """
    name = _NAME.fullmatch(os.fspath(place))
    assert name is not None
    expected = f"a file or directory here, or a repository of the Hub with {file}"
    hub = library(place, expected)
    reachable = _reachable(hub)
    try:
        return Path(hub.hf_hub_download(name[1], file, revision=name[2], local_files_only=not reachable))
    except (OSError, ValueError, hub.errors.HTTPError) as error:
        found = error if reachable else "no copy in the cache, and the Hub cannot be reached"
        raise refused(place, expected, found) from error


def library(place: object, expected: str) -> Any:
    """Return huggingface_hub, which imports its parts when they are first used."""
    try:
        for part in ("constants", "errors", "utils"):
            importlib.import_module(f"huggingface_hub.{part}")
        return importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        fix = "check the path; for a repository, pip install 'bitfactor[hub]'"
        raise InputError(
            place, expected=expected, found="neither, without huggingface_hub", fix=fix
        ) from error


def _reachable(hub: Any) -> bool:
    """Return whether the Hub answers: else each download is tried for half a minute."""
    try:
        hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=10)
    except (OSError, hub.errors.HTTPError):  # HF_HUB_OFFLINE too
        return False
    return True


def refused(place: object, expected: str, found: object) -> InputError:
    """Return what to say where the Hub does not do what it is asked, or cannot be reached."""
    text = " ".join(str(found).split()) or type(found).__name__
    fix = "check the name, or the network; HF_HUB_OFFLINE=1 takes what was downloaded before"
    return InputError(place, expected=expected, found=text[:200], fix=fix)
