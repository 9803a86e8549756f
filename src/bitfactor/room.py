"""A package that can be called: `bitfactor.bench` and `bitfactor.report` are also functions."""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package whose call is that of the function in `_home` which has the package's name."""

    _home: str

    def _function(self) -> Any:
        return getattr(importlib.import_module(self._home), self.__name__.rpartition(".")[2])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function())


def callable_as(package: str, home: str) -> None:
    """Let the package be called as the function of its name in the module `home`, imported at the first call.

    Importing a package binds its name in `bitfactor`, in place of a function of that name, so the two have to
    be one.
    """
    module = sys.modules[package]
    module.__class__ = _Callable
    module.__dict__["_home"] = home
