"""Images in directories that are named after their classes."""

from pathlib import Path

from bitfactor.checks import checked
from bitfactor.data.files import FileStore, Tree, existing, file_store, parts, some
from bitfactor.data.presets import Preset
from bitfactor.data.split import Holdout, balanced, validation_name
from bitfactor.data.stored import StoredImages
from bitfactor.errors import InputError


class ImageFolder(StoredImages):
    """Images in class directories: ImageNet's `train/` and `val/`, or any of the user's own.

    Example
    -------
    >>> data = ImageFolder.load(Path("imagenet"), preset="paper")   # imagenet/train/n01440764/1.JPEG ...
    >>> data = ImageFolder.load(Path("flowers"), size=128)          # flowers/rose/1.jpg ...
    """

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        preset: Preset = "standard",
        size: int = 224,
        limit: int | None = None,
        holdout: Holdout = "test",
        workers: int | None = None,
        max_corrupt: float = 0.01,
        crop: bool = True,
        mirror: bool = True,
    ) -> "ImageFolder":
        """Look which images there are.

        Parameters
        ----------
        directory
            With `train/` and `val/` (or `valid`, `validation`, `test`), or with the class directories
            themselves: then a fixed tenth of each class is for validation. A class's images may lie in
            directories below its own; links are followed, but not back up.
        preset, size
            How images become inputs, of `size` x `size` pixels.
        limit
            At most so many images to train on and as many in the test set, classes equally often.
        holdout
            "validation" takes a fixed tenth of the training images in place of the test images.
        workers
            Processes that read and decode: 0 for none, by default one for each core.
        max_corrupt
            The fraction of the images that may be corrupt.
        crop, mirror
            Whether training images are cropped at random, and half of them mirrored; see `Preset`.

        Raises
        ------
        InputError
            If there are no classes, one has no images, test images are of no known class, or an argument is
            not what is said here.
        """
        where = existing(
            directory, "a directory with train/ and val/, or with one directory of images for each class"
        )
        train, test, labels, name = _stores(where)
        if holdout == "validation":
            (train, test), name = train.split(), validation_name(train.directory)
        train, test = (store.chosen(balanced(store.classes, limit)) for store in (train, test))
        return cls.of(
            str(directory), train, test, labels, preset, size, workers, max_corrupt, crop, mirror, name
        )


def _stores(directory: Path) -> tuple[FileStore, FileStore, tuple[str, ...], str]:
    """Return training images, test images, the names of the classes and what the test images are called."""
    train_directory, test_directory = parts(directory)
    tree = Tree.scan(train_directory)
    labels = tuple(tree.classes)
    if len(labels) < 2 or tree.empty:
        raise InputError(
            train_directory,
            expected="a directory of images for each of two or more classes",
            found=f"no images in {some(tree.empty)}" if len(labels) > 1 else some(labels) or "none",
            fix="add images or remove the directory; `bitfactor check-data` tells more",
        )
    store = file_store(tree, labels)
    if test_directory is None:
        return (*store.split(), labels, validation_name(train_directory))
    test = Tree.scan(test_directory)
    unknown = sorted(set(test.classes) - set(labels))
    if unknown or len(test.empty) == len(test.classes):
        raise InputError(
            test_directory,
            expected=f"images of the classes in {train_directory}",
            found=f"the class {some(unknown)}" if unknown else "none",
            fix="let both have the same class directories",
        )
    return store, file_store(test, labels), labels, f"test images in {test_directory}"
