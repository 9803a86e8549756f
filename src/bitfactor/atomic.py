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
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        usual_mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(usual_mode)  # some writers make files that only their owner can read
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            path, expected="a place that can be written", found=str(error), fix="free space or choose another"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
