"""Data sets, each in its file. They need torch; what looks at files, `check_data` say, does not.

A name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from bitfactor.common.errors import imported

if TYPE_CHECKING:
    from bitfactor.data.in_memory import Batch as Batch
    from bitfactor.data.in_memory import Cifar10 as Cifar10
    from bitfactor.data.in_memory import Cifar100 as Cifar100
    from bitfactor.data.in_memory import DataSet as DataSet
    from bitfactor.data.in_memory import Digits as Digits
    from bitfactor.data.in_memory import Target as Target
    from bitfactor.data.poses import CocoKeypoints as CocoKeypoints
    from bitfactor.data.poses import Lsp as Lsp
    from bitfactor.data.poses import Mpii as Mpii
    from bitfactor.data.readers.check import check_data as check_data
    from bitfactor.data.readers.identity import identity_of as identity_of
    from bitfactor.data.stored import ImageFolder as ImageFolder
    from bitfactor.data.stored import Shards as Shards

_HOMES = {
    "Batch": "in_memory",
    "Cifar10": "in_memory",
    "Cifar100": "in_memory",
    "CocoKeypoints": "poses",
    "DataSet": "in_memory",
    "Digits": "in_memory",
    "ImageFolder": "stored",
    "Lsp": "poses",
    "Mpii": "poses",
    "Shards": "stored",
    "Target": "in_memory",
    "check_data": "readers.check",
    "identity_of": "readers.identity",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitfactor.data' has no attribute {name!r}")
    value = getattr(imported(f"bitfactor.data.{_HOMES[name]}", f"bitfactor.data.{name}", "train"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
