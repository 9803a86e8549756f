"""Files that are whole or not there; and Python files of the user's own, which are run."""

import hashlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

from bitfactor.common.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path`, else it is removed.

    Neither a killed process nor a full disk leaves a half-written `path` behind, nor loses the one before.
    The temporary name is fixed, so what a killed process leaves is overwritten by the next one.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(
            path,
            expected="the name of a file",
            found="a directory",
            fix="name a file in it, or one beside it",
        )
    made_directory(path.parent)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.touch()
        usual_mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(usual_mode)  # some writers make files that only their owner can read
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise not_writable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write text, in UTF-8, or bytes: whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: str | os.PathLike[str], value: object, indent: int | None = 2) -> None:
    """Write an object, whole or not at all."""
    write_file(path, json.dumps(value, indent=indent) + "\n")


# What stands in the first bytes of a file that bitfactor writes.
_MARKS = (
    b'"__metadata__":{"bitfactor"',
    b"\x89BFP",
    b'content="bitfactor"',
    b"<metadata>bitfactor",
    b"\x12\x09bitfactor",
    b"written by bitfactor",
    b'parts.json{"parts"',
)
_LOOKED_AT = 4096


def expect_output(
    path: str | os.PathLike[str], endings: Collection[str] = (), *, overwrite: bool = False, flag: str = ""
) -> Path:
    """Return `path` if a file can be written there: its ending fits, and no other's file would be lost.

    Pages, exported files and drawings of networks say that bitfactor wrote them; they are replaced. Other
    files are kept, if `overwrite` does not say that they may be lost. `flag` is what gave the path.
    """
    path, where = Path(path), f"{flag} {path}".strip()
    if path.is_dir():
        fix = f"name a file in it{''.join(f', in {ending}' for ending in [*endings][:1])}"
        raise InputError(where, expected="a file to write", found="a directory", fix=fix)
    if endings and path.suffix.lower() not in endings:
        *others, last = endings
        expected = f"a name in {', '.join(others)} or {last}" if others else f"a name in {last}"
        found = path.suffix or "no ending"
        raise InputError(where, expected=expected, found=found, fix="rename it")
    if overwrite or not path.is_file():
        return path
    with path.open("rb") as file:
        first = file.read(_LOOKED_AT)
    if not any(mark in first for mark in _MARKS):
        raise InputError(
            where,
            expected="a new file, or one that bitfactor wrote",
            found="a file that does not say so" if first else "an empty file",
            fix="choose another name, or pass --overwrite (overwrite=True in Python)",
        )
    return path


def made_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory `path`, made with those above it where it is not there yet."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        file = next((part for part in (path, *path.parents) if part.is_file()), None)
        if file is None:
            raise not_writable(path, error) from error
        raise InputError(
            file, expected="a directory", found="a file", fix="name a directory, or move the file away"
        ) from error
    return path


def not_writable(path: Path, error: OSError) -> InputError:
    """Return what to say of a place where a file cannot be written."""
    # The text of an OSError ends in the path, which the message begins with.
    return InputError(
        path,
        expected="a place that can be written",
        found=error.strerror or str(error),
        fix="free space or choose another",
    )


_LOADED: dict[Path, tuple[ModuleType, str]] = {}  # with the digest of the file as it was run
_ASKED: set[Path] = set()


def run_file(path: str | os.PathLike[str]) -> ModuleType:
    """Return the module that a file holds; its folder can be imported from, and it runs once."""
    file = Path(path).resolve()
    if not file.is_file():
        beside = sorted(one.name for one in file.parent.glob("*.py")) if file.parent.is_dir() else []
        fix = f"there are {', '.join(beside[:5])}" if beside else "name it from the current directory"
        raise InputError(path, expected="a Python file", found="no such file", fix=fix)
    if file not in _LOADED:
        content = digest(file)
        _LOADED[file] = _run(file), content
    _ASKED.add(file)
    return _LOADED[file][0]


def files_run() -> dict[str, str]:
    """Return the files that were run and their SHA-256, so that another process can run them too."""
    return {str(file): content for file, (_, content) in _LOADED.items() if file in _ASKED}


def run_again(path: str | os.PathLike[str], sha256: str) -> ModuleType:
    """Run a file that a training has run; a warning says where it has changed since.

    Where it is no longer there, a file of the same content or name stands for it that was run already.
    """
    file = Path(path)
    if not file.is_file():
        now = files_run()
        moved = [one for one, content in now.items() if content == sha256]
        moved += [one for one in now if Path(one).name == file.name]
        if not moved:
            fix = f"say where it is now: bitfactor --import PATH/{file.name} COMMAND ..."
            raise InputError(file, expected="the Python file of the run", found="no such file", fix=fix)
        file = Path(moved[0])
    if sha256 and digest(file) != sha256:
        warnings.warn(f"{file} has changed since the run began", stacklevel=3)
    return run_file(file)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(file, expected="a Python file", found=str(error), fix="name another") from error


def _run(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(file, expected="a Python file", found=f"a name with {file.suffix}", fix="rename it")
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    known = sys.modules.setdefault(file.stem, module)  # so that what it defines can be pickled
    try:
        with redirect_stdout(sys.stderr):  # standard output is for what commands print
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if known is module:
            del sys.modules[file.stem]
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            file, expected="a file that can be imported", found=reason, fix=f"try `python {file.name}`"
        ) from error
    return module


def expect_name(path: str | os.PathLike[str], *, onnx: bool) -> None:
    """Raise InputError where a file of one format would get the name of the other."""
    ending = ".onnx" if onnx else ".safetensors"
    if Path(path).suffix != ending:
        elsewhere = {".onnx": "bitfactor.targets.onnx.export_onnx", ".c": "bitfactor.targets.c99.export_c"}
        function = elsewhere.get(Path(path).suffix, "bitfactor.exporter.export" if onnx else "")
        raise InputError(
            path,
            expected=f"a name in {ending}",
            found=f"one in {Path(path).suffix}" if Path(path).suffix else "no ending",
            fix=f"rename it, or give the exported file to {function}" if function else "rename it",
        )
