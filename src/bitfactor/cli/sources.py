"""The pictures and videos that a user names, and where what is made of them goes."""

from collections.abc import Sequence
from pathlib import Path

from bitfactor.errors import InputError

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"))
VIDEOS = frozenset((".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"))
_WRITABLE_VIDEOS = frozenset((".mp4", ".avi"))


def is_video(path: Path) -> bool:
    """Return whether the name is that of a video."""
    return path.suffix.lower() in VIDEOS


def sources_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files that `paths` name; a folder stands for the pictures and videos in it, by name.

    Raises
    ------
    InputError
        If there are none, or none in a folder.
    """
    if not paths:
        raise InputError(
            "bitfactor predict", expected="a picture", found="none", fix="name one after the model"
        )
    return [source for path in paths for source in (_in_folder(path) if path.is_dir() else [path])]


def _in_folder(folder: Path) -> list[Path]:
    known = PICTURES | VIDEOS
    sources = sorted(p for p in folder.iterdir() if p.suffix.lower() in known and not p.name.startswith("."))
    if not sources:
        raise InputError(
            folder,
            expected="a folder with pictures or videos",
            found="no file with such a name",
            fix=f"names end in {', '.join(sorted(known))}",
        )
    return sources


def targets_of(sources: Sequence[Path], output: Path) -> list[Path]:
    """Return the file that is made of each source.

    `output` is a file if its name ends as that of one and there is one source, else the folder in which each
    keeps its name; with another ending where that kind of file is not written.

    Raises
    ------
    InputError
        If two would be the same file, one would replace a source, or `output` is a file for several.
    """
    if output.suffix.lower() in PICTURES | VIDEOS and not output.is_dir():
        targets = [_single(sources, output)]
    else:
        targets = [output / _name(source) for source in sources]
    originals = {source.resolve() for source in sources}
    for i, target in enumerate(targets):
        if target in targets[:i]:
            raise _bad(
                target, "a file for each picture", "two pictures of that name", "rename one, or use two calls"
            )
        if target.resolve() in originals:
            raise _bad(target, "a new file", "a picture to predict on", "choose another --output")
    return targets


def _single(sources: Sequence[Path], output: Path) -> Path:
    if len(sources) > 1:
        raise _bad(output, f"a folder for {len(sources)} pictures", "the name of a file", "name a folder")
    kinds = _WRITABLE_VIDEOS if is_video(sources[0]) else PICTURES
    if output.suffix.lower() not in kinds:
        raise _bad(output, f"a name that ends in {', '.join(sorted(kinds))}", output.name, "rename it")
    return output


def _name(source: Path) -> str:
    written, otherwise = (_WRITABLE_VIDEOS, ".mp4") if is_video(source) else (PICTURES, ".png")
    return source.name if source.suffix.lower() in written else f"{source.stem}{otherwise}"


def _bad(target: Path, expected: str, found: str, fix: str) -> InputError:
    return InputError(f"--output {target}", expected=expected, found=found, fix=fix)
