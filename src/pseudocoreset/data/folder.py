"""`folder:DIR`: image files of any kind, one sub-folder a class."""

from pathlib import Path

import numpy as np
import torch

from pseudocoreset.data.assemble import (
    Progress,
    make_image_data,
    make_split,
    require_folder,
)
from pseudocoreset.data.decode import probe_images, read_images
from pseudocoreset.data.image_data import ImageData, Split
from pseudocoreset.errors import UserError

TEST_SHARE = 0.2  # of each class, where there is no test/
LAYOUT = "train/ and test/, or the classes themselves, one sub-folder of images a class"

# The files of each class, by the class's name, which is its folder's.
Classes = dict[str, list[Path]]


def read_folder(root: Path, image_size: int | None, progress: Progress | None) -> ImageData:
    """Images in `train/CLASS/` and `test/CLASS/`, or in `CLASS/`, of which a fifth is for testing.

    Classes are numbered in the order of their names. An image that isn't `image_size` square is
    resized to cover it, and cropped in the middle. Images are grey if all of them are.
    """
    require_folder(root, LAYOUT)
    if (root / "train").is_dir() or (root / "test").is_dir():
        for part in ("train", "test"):
            require_folder(root / part, "one sub-folder of images a class")
        train, test = _list_classes(root / "train"), _list_classes(root / "test")
        _check_same_classes(root, train, test)
    else:
        train, test = _draw_test_images(root, _list_classes(root))
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


def _list_classes(folder: Path) -> Classes:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise UserError(f"{folder}: has no class in it; expected {LAYOUT}.")
    return {name: _list_images(folder / name) for name in names}


def _list_images(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: expected an image file; move other things out of the class.")
    if not files:
        raise UserError(f"{folder}: the class has no image; add some or remove the folder.")
    return files


def _check_same_classes(root: Path, train: Classes, test: Classes) -> None:
    for name in sorted(train.keys() ^ test.keys()):
        here, there = ("train", "test") if name in train else ("test", "train")
        raise UserError(
            f"{root / there / name}: no such folder, though {here} has this class; expected the "
            "same classes in both, so add or remove one."
        )


def _draw_test_images(root: Path, classes: Classes) -> tuple[Classes, Classes]:
    """Draw the same share of each class for testing, the same images every time."""
    generator = torch.Generator().manual_seed(0)
    train: Classes = {}
    test: Classes = {}
    for name, files in classes.items():
        if len(files) < 2:
            raise UserError(
                f"{root / name}: has 1 image; expected at least 2, one of them for testing, so "
                "add some or make train/ and test/ yourself."
            )
        number = max(1, round(TEST_SHARE * len(files)))
        drawn = set(torch.randperm(len(files), generator=generator)[:number].tolist())
        train[name] = [path for place, path in enumerate(files) if place not in drawn]
        test[name] = [path for place, path in enumerate(files) if place in drawn]
    return train, test


def _common_shape(files: list[Path], image_size: int | None) -> tuple[int, int]:
    """The side and the channels that all images will have."""
    shapes = probe_images(files)
    side = image_size or shapes[0][0]
    if image_size is None:
        for path, (width, height, _) in zip(files, shapes, strict=True):
            if (width, height) != (side, side):
                raise UserError(
                    f"{path}: is {height}×{width} pixels, and the images aren't all of one square "
                    "size; give --image-size N to resize them."
                )
    return side, 1 if all(grey for _, _, grey in shapes) else 3
