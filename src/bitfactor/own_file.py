"""Python files of the user's own: networks, and latents or recipes that they register."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from bitfactor.errors import InputError

_LOADED: dict[Path, ModuleType] = {}


def run_file(path: str | os.PathLike[str]) -> ModuleType:
    """Return the module that a file holds; its folder can be imported from, and it runs once.

    Raises
    ------
    InputError
        If there is no such file, or it ends in an error.

    Example
    -------
    >>> run_file("my.py").Net
    <class 'my.Net'>
    """
    file = Path(path).resolve()
    if not file.is_file():
        beside = sorted(one.name for one in file.parent.glob("*.py")) if file.parent.is_dir() else []
        fix = f"there are {', '.join(beside[:5])}" if beside else "name it from the current directory"
        raise InputError(path, expected="a Python file", found="no such file", fix=fix)
    if file not in _LOADED:
        _LOADED[file] = _run(file)
    return _LOADED[file]


def files_run() -> list[str]:
    """Return the files that were run, so that another process can run them too."""
    return [str(file) for file in _LOADED]


def _run(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(file, expected="a Python file", found=f"a name with {file.suffix}", fix="rename it")
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    known = sys.modules.setdefault(file.stem, module)  # so that what it defines can be pickled
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if known is module:
            del sys.modules[file.stem]
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            file, expected="a file that can be imported", found=reason, fix=f"try `python {file.name}`"
        ) from error
    return module
