"""The images and videos that a user names, and where what is made of them goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitfactor.errors import InputError

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"))
VIDEOS = frozenset((".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"))
_WRITABLE_VIDEOS = frozenset((".mp4", ".avi"))


def is_video(source: object) -> bool:
    """Return whether a source is a file with the name of a video."""
    return isinstance(source, Path) and source.suffix.lower() in VIDEOS


def sources_of(paths: Sequence[Any]) -> list[Any]:
    """Return the files that `paths` name; a folder stands for the images and videos in it, by name.

    Raises
    ------
    InputError
        If there are none, or none in a folder.
    """
    if not paths:
        raise InputError(
            "bitfactor predict", expected="an image", found="none", fix="name one after the model"
        )
    return [
        source
        for path in paths
        for source in (_in_folder(path) if isinstance(path, Path) and path.is_dir() else [path])
    ]


def _in_folder(folder: Path) -> list[Path]:
    known = PICTURES | VIDEOS
    sources = sorted(p for p in folder.rglob("*") if p.suffix.lower() in known and _is_shown(p, folder))
    if not sources:
        raise InputError(
            folder,
            expected="a folder with images or videos, at any depth",
            found="no file with such a name",
            fix=f"names end in {', '.join(sorted(known))}",
        )
    return sources


def _is_shown(path: Path, folder: Path) -> bool:
    """Return whether a path in a folder is a file, and neither it nor a folder above it is hidden."""
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def targets_of(sources: Sequence[Any], output: Path) -> list[Path]:
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
        targets = [output / _name(source, i) for i, source in enumerate(sources)]
    originals = {source.resolve() for source in sources if isinstance(source, Path)}
    for i, target in enumerate(targets):
        if target in targets[:i]:
            raise _bad(
                target, "a file for each image", "two images of that name", "rename one, or use two calls"
            )
        if target.resolve() in originals:
            raise _bad(target, "a new file", "an image to predict on", "choose another --output")
    return targets


def _single(sources: Sequence[Any], output: Path) -> Path:
    if len(sources) > 1:
        raise _bad(output, f"a folder for {len(sources)} images", "the name of a file", "name a folder")
    kinds = _WRITABLE_VIDEOS if is_video(sources[0]) else PICTURES
    if output.suffix.lower() not in kinds:
        raise _bad(output, f"a name that ends in {', '.join(sorted(kinds))}", output.name, "rename it")
    return output


def _name(source: Any, number: int) -> str:
    if not isinstance(source, Path):
        return f"{number}.png"
    written, otherwise = (_WRITABLE_VIDEOS, ".mp4") if is_video(source) else (PICTURES, ".png")
    return source.name if source.suffix.lower() in written else f"{source.stem}{otherwise}"


def _bad(target: Path, expected: str, found: str, fix: str) -> InputError:
    return InputError(f"--output {target}", expected=expected, found=found, fix=fix)
