"""`folder:DIR`: image files of any kind, a sub-folder for each class."""

import hashlib
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pseudocoreset.data.assemble import (
    Progress,
    make_image_data,
    make_split,
    require_folder,
)
from pseudocoreset.data.content_split import BYTES, choose_test, number_of
from pseudocoreset.data.dataset import Data, Split
from pseudocoreset.data.decode import is_image_file, probe_images, read_images
from pseudocoreset.errors import UserError

LAYOUT = "train/ and test/, or the classes themselves, one sub-folder of images for each class"
SYSTEM = ("thumbs.db", "desktop.ini", "__macosx")

# The files of each class, by the class's name, which is its folder's.
Classes = dict[str, list[Path]]


def read_folder(root: Path, image_size: int | None, progress: Progress | None) -> Data:
    """Images in `train/CLASS/` and `test/CLASS/` (or `val/CLASS/`), or in `CLASS/`.

    Without a test folder about a fifth of each class is for testing, chosen by the content of the
    files: adding or removing some moves no other, and copies stay together. Classes are numbered in
    the order of their names. An image that isn't `image_size` square is resized to cover it, and
    cropped in the middle. Images are grey if all of them are. Hidden files and those of the
    system are ignored; other files that are no images are skipped with a warning.
    """
    require_folder(root, LAYOUT)
    skipped: list[Path] = []
    unread = 0
    if (root / "train").is_dir() or (root / "test").is_dir():
        part = "val" if (root / "val").is_dir() and not (root / "test").is_dir() else "test"
        for name in ("train", part):
            require_folder(root / name, "one sub-folder of images for each class")
        train, test = (_list_classes(root / name, skipped) for name in ("train", part))
        _check_same_classes(root, part, train, test)
        if part == "test" and (root / "val").is_dir():
            unread = sum(path.is_file() for path in (root / "val").glob("*/*") if _is_ours(path))
    else:
        train, test = _split_by_content(root, _list_classes(root, skipped))
    _tell_skipped(root, len(skipped), unread)
    files = [path for members in (*train.values(), *test.values()) for path in members]
    side, channels = _common_shape(files, image_size)

    def read(classes: Classes, what: str) -> Split:
        paths = [path for members in classes.values() for path in members]
        images = read_images(
            paths, channels, side, fit=image_size is not None, progress=progress, what=what
        )
        labels = np.repeat(np.arange(len(classes)), [len(members) for members in classes.values()])
        return make_split(root, images, labels, len(classes))

    return make_image_data(
        f"folder:{root.resolve().name}",
        root,
        read(train, "decoding training images"),
        read(test, "decoding test images"),
        list(train),
    )


def _is_ours(path: Path) -> bool:
    """Whether a file or folder is neither hidden nor one that systems leave behind."""
    return not path.name.startswith(".") and path.name.lower() not in SYSTEM


def _list_classes(folder: Path, skipped: list[Path]) -> Classes:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and _is_ours(path))
    if not names:
        raise UserError(f"{folder}: has no class folders; expected {LAYOUT}.")
    return {name: _list_images(folder / name, skipped) for name in names}


def _list_images(folder: Path, skipped: list[Path]) -> list[Path]:
    """The images of a class; what is none is added to `skipped`."""
    images: list[Path] = []
    for path in sorted(path for path in folder.iterdir() if _is_ours(path)):
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "not a file"
            raise UserError(f"{path}: is {kind}; a class folder must hold its images directly.")
        (images if is_image_file(path) else skipped).append(path)
    if not images:
        raise UserError(f"{folder}: the class has no images; add some or remove the folder.")
    return images


def _tell_skipped(root: Path, skipped: int, unread: int) -> None:
    said = []
    if skipped:
        files = (
            "1 file that is no image was"
            if skipped == 1
            else f"{skipped} files that are no images were"
        )
        said.append(f"{files} skipped")
    if unread:
        said.append(f"val/ ({unread} files) was not read, as test/ is the test split")
    if said:
        warnings.warn(f"{root}: {'; '.join(said)}.", RuntimeWarning, stacklevel=4)


def _check_same_classes(root: Path, part: str, train: Classes, test: Classes) -> None:
    for name in sorted(train.keys() ^ test.keys()):
        here, there = ("train", part) if name in train else (part, "train")
        raise UserError(
            f"{root / there / name}: no such folder, but {here} has this class; both must have "
            "the same classes, so add or remove one."
        )


def _split_by_content(root: Path, classes: Classes) -> tuple[Classes, Classes]:
    """The files for training and for testing, by digests of their bytes."""
    files = [path for members in classes.values() for path in members]
    labels = [label for label, members in enumerate(classes.values()) for _ in members]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = list(pool.map(_digest, files))
    advice = " or make train/ and test/ yourself"
    tested = choose_test(root, digests, labels, list(classes), "image", advice)
    in_test = dict(zip(files, tested, strict=True))
    train = {name: [p for p in members if not in_test[p]] for name, members in classes.items()}
    test = {name: [p for p in members if in_test[p]] for name, members in classes.items()}
    return train, test


def _digest(path: Path) -> int:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=BYTES))
    return number_of(digest.digest())


def _common_shape(files: list[Path], image_size: int | None) -> tuple[int, int]:
    """The side and the channels that all images will have."""
    shapes = probe_images(files)
    side = image_size or shapes[0][0]
    if image_size is None:
        for path, (width, height, _) in zip(files, shapes, strict=True):
            if (width, height) != (side, side):
                raise UserError(
                    f"{path}: is {height}×{width} pixels, and the images aren't all of one square "
                    "size; give `image_size` to resize them.",
                    "image_size",
                )
    return side, 1 if all(grey for _, _, grey in shapes) else 3
