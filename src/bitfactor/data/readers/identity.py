"""What tells the images of a data set from others: so that a run notices when they are other ones."""

import json
import re
from collections.abc import Mapping, Sized
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfactor.common.checks import shown
from bitfactor.common.errors import InputError
from bitfactor.data.readers.files import LOOKED_AT, evenly
from bitfactor.data.readers.instances import Instances

if TYPE_CHECKING:
    from bitfactor.data.in_memory import DataSet

Identity = dict[str, Any]
"""`path` (a string, or None where no directory was named), `train` and `test`, the numbers of images, and
`fingerprint`: hexadecimal digits, 16 of the training images and 16 of those for evaluation."""

RECORD, KEY = "recipe.json", "data_identity"
"""Where a run keeps the identity of its data; a file exported from it keeps it under the same key."""


def identity_of(data: "DataSet", directory: Path | None) -> Identity:
    """Return what tells a data set, whole and not limited, from others, in much less than a second.

    A data set's own method `identity()` comes first; it may leave out the path. Else the fingerprint is of
    names, sizes and a sample of contents. Of a data set whose parts this package does not know, it is of the
    first batches. The same images in another directory have the same fingerprint.

    Example
    -------
    >>> identity_of(Digits.load(), None)
    {'path': None, 'train': 1437, 'test': 360, 'fingerprint': 'e7a0...'}
    """
    path = None if directory is None else str(directory.resolve())
    if hasattr(data, "identity"):
        return {"path": path, **data.identity()}
    train, test = getattr(data, "train", None), getattr(data, "test", None)
    if _known(train) and _known(test):
        fingerprint = digest_of(train) + digest_of(test)
        return {"path": path, "train": _count(train), "test": _count(test), "fingerprint": fingerprint}
    batches = data.train_batches(1, 0, 0), data.test_batches(LOOKED_AT)
    fingerprint = "".join(_digest_of_batch(next(iter(batch), ())) for batch in batches)
    number = len(test) if isinstance(test, Sized) else None
    return {"path": path, "train": data.steps(1), "test": number, "fingerprint": fingerprint}


def remembered(run: Path) -> Identity | None:
    """Return what a run's directory says of the data that it was trained with; None where it says nothing."""
    try:
        identity = json.loads((run / RECORD).read_text()).get(KEY)
    except (OSError, ValueError, AttributeError):
        return None  # that it is no run is said where its settings are read
    return _expected(identity, run / RECORD)


def published(run: Path) -> dict[str, str]:
    """Return what the provenance of a file exported from a run says of its data: all but their place."""
    identity = remembered(run)
    if identity is None:
        return {}
    kept = {name: value for name, value in identity.items() if name != "path"}
    if "evaluated" in kept:
        kept["evaluated"] = without_place(kept["evaluated"])
    return {KEY: json.dumps(kept)}


def without_place(evaluated: str) -> str:
    """Return what a run says that it was evaluated on, with the last name of its directory alone."""
    return re.sub(r"(?<= in )(/|[A-Za-z]:[/\\])([^,)]*[/\\])?", "", evaluated)


def identity_in(provenance: Mapping[str, str], where: object) -> Identity | None:
    """Return what the provenance of a file says of the data that it was trained with, see `published`."""
    try:
        identity = json.loads(provenance.get(KEY, "null"))
    except ValueError:
        identity = provenance[KEY]
    return _expected(identity, where)


def _expected(identity: Any, where: object) -> Identity | None:
    if identity is None or (isinstance(identity, dict) and isinstance(identity.get("fingerprint"), str)):
        return identity
    raise InputError(
        where,
        expected=f"under {KEY} counts and fingerprint of its data",
        found=shown(identity),
        fix="restore the file",
    )


def which_images(data: "DataSet", number: int, limit: int | None = None) -> str:
    """Return which images a figure of a data set is about, and how many of how many."""
    name = getattr(data, "test_name", "test images")
    if limit is None or limit >= number:
        return f"{number:,} {name}"
    evenly = ", equally many of each class" if hasattr(data, "limited") else ""
    return f"{limit:,} of {number:,} {name}{evenly}"


def digest_of(part: Any) -> str:
    """Return 16 hexadecimal digits of one part: a store, instances, or arrays of images and classes."""
    if hasattr(part, "digest"):
        return str(part.digest())
    if isinstance(part, Instances):
        return _digest_of_instances(part)
    images, classes = part
    chosen = evenly(len(classes), LOOKED_AT)
    return _hexadecimal(len(classes), array_of(classes), array_of(images[chosen]).reshape(len(chosen), -1))


def _known(part: Any) -> bool:
    arrays = isinstance(part, tuple) and len(part) == 2 and all(hasattr(one, "shape") for one in part)
    return arrays or hasattr(part, "digest") or isinstance(part, Instances)


def _count(part: Any) -> int:
    return len(part[1]) if isinstance(part, tuple) else len(part)


def _digest_of_instances(instances: Instances) -> str:
    names = [path.name for path in instances.images]
    chosen = [path for i in evenly(len(instances), LOOKED_AT) if (path := instances.images[i]).is_file()]
    sizes = [path.stat().st_size for path in chosen]
    return _hexadecimal(
        *names, *sizes, instances.labelled, np.where(instances.labelled[..., None], instances.keypoints, 0)
    )


def _digest_of_batch(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return _digest_of_batch(tuple(batch[name] for name in sorted(batch)))
    if isinstance(batch, tuple | list):
        return _hexadecimal(*map(_digest_of_batch, batch))
    return _hexadecimal(array_of(batch))


def array_of(values: Any) -> np.ndarray[Any, Any]:
    """Return a tensor on any device, or what numpy takes, as an array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _hexadecimal(*values: Any) -> str:
    digest = blake2b(digest_size=8)
    for value in values:
        array = isinstance(value, np.ndarray)
        digest.update(np.ascontiguousarray(value).tobytes() if array else f"{value}\0".encode())
    return digest.hexdigest()
