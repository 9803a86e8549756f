"""Files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bitfactor.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path`, else it is removed.

    Neither a killed process nor a full disk leaves a half-written `path` behind, nor loses the one before.
    The temporary name is fixed, so what a killed process leaves is overwritten by the next one.

    Example
    -------
    >>> with replacing("notes.txt") as temporary:
    ...     temporary.write_text("all of it")

    Raises
    ------
    InputError
        If `path` is a directory, stands below a file, or cannot be written.
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
        raise _not_writable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def made_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory `path`, made with those above it where it is not there yet.

    Raises
    ------
    InputError
        If it, or one above it, is a file, or it cannot be made.

    Example
    -------
    >>> made_directory("runs/a")
    PosixPath('runs/a')
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        file = next((part for part in (path, *path.parents) if part.is_file()), None)
        if file is None:
            raise _not_writable(path, error) from error
        raise InputError(
            file,
            expected="a directory",
            found="a file",
            fix="name a directory, or move the file away",
        ) from error
    return path


def _not_writable(path: Path, error: OSError) -> InputError:
    # The text of an OSError ends in the path, which the message begins with.
    return InputError(
        path,
        expected="a place that can be written",
        found=error.strerror or str(error),
        fix="free space or choose another",
    )
