"""Checks for all readers, and functions that make `Data`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from pseudocoreset.data.columns import Column
from pseudocoreset.data.dataset import Data, Scaling, Split, Task
from pseudocoreset.errors import UserError

# Called with (files done, files in all, what they are) while many files are read.
Progress = Callable[[int, int, str], None]
ALWAYS_UNPACKED = 256 << 20
"""Compressed files may always unpack to this many bytes."""
MOST_COMPRESSED = 100
"""In larger files, one compressed byte may become this many bytes."""


@contextmanager
def blame(parameter: str) -> Iterator[None]:
    """Name the parameter in errors that name none."""
    try:
        yield
    except UserError as error:
        error.parameter = error.parameter or parameter
        raise


def require_folder(path: Path, contents: str) -> None:
    """Refuse a folder that isn't there; `contents` says what it should hold."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; give one that holds {contents}.")


def require_file(path: Path) -> None:
    """Refuse a file that isn't there."""
    if not path.is_file():
        raise UserError(f"{path}: the file is missing; download or unpack the data set again.")


def refuse_bomb(path: Path, inside: int, outside: int) -> None:
    """Refuse a compressed file that would take far more memory than it should, before it does.

    Args:
        path: the file
        inside: bytes that it unpacks to
        outside: bytes that these take in it
    """
    if inside > max(ALWAYS_UNPACKED, MOST_COMPRESSED * outside):
        raise UserError(
            f"{path}: {outside} bytes would unpack to {inside}, which is far too much; don't "
            "trust this file, and download or save it again."
        )


def find_folder(root: Path, places: Sequence[str], files: Sequence[str]) -> Path | None:
    """The folder that is or looks like what an archive unpacks to: `root` or a place in it."""
    folders = [root, *(root / place for place in places)]
    for folder in folders:
        if any((folder / name).is_file() for name in files):
            return folder
    # An unpacked folder with every file gone: reading it will name the first that is missing.
    return next((folder for folder in folders if folder.is_dir() and folder.name in places), None)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that aren't blank."""
    require_file(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: expected UTF-8 text, found other bytes; download or unpack the data set "
            "again."
        ) from None
    return [line.strip() for line in text.split("\n") if line.strip()]


def read_class_names(path: Path, classes: int) -> tuple[str, ...]:
    """The class names in a text file, one on each line."""
    return check_class_names(path, read_lines(path), classes)


def check_class_names(path: Path, names: Sequence[str], classes: int) -> tuple[str, ...]:
    """Refuse a file that doesn't name every class."""
    if len(names) != classes:
        raise UserError(
            f"{path}: expected {classes} class names, found {len(names)}; "
            "download or unpack the data set again."
        )
    return tuple(names)


def make_split(
    source: "Path | str",
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.integer],
    classes: int,
) -> Split:
    """A `Split` of images (n×c×h×w) and labels, once they are known to fit each other."""
    if len(images) != len(labels):
        raise UserError(
            f"{source}: {len(images)} images and {len(labels)} labels don't match; "
            "give one label for each image."
        )
    if len(labels) == 0:
        raise UserError(f"{source}: holds no images; give at least one for each class.")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise UserError(
            f"{source}: label {labels[wrong[0]]} of image {wrong[0]} is out of range; "
            f"expected 0 to {classes - 1}."
        )
    return Split(
        torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64))
    )


def make_image_data(
    name: str,
    source: "Path | str",
    train: Split,
    test: Split,
    class_names: Sequence[str],
    *,
    scaling: Scaling | None = None,
    mirror: bool = True,
    image_size: int | None = None,
) -> Data:
    """The `Data` of two splits of images, resized where a size is asked for.

    They are for regression if the targets are numbers.
    """
    shape, test_shape = tuple(train.inputs.shape[1:]), tuple(test.inputs.shape[1:])
    if shape[1] != shape[2] or shape[1] == 0 or shape[0] not in (1, 3):
        raise UserError(
            f"{source}: images are {describe(shape)}; expected square ones of 1 or 3 channels."
        )
    if shape != test_shape:
        raise UserError(
            f"{source}: training images are {describe(shape)} and test images "
            f"{describe(test_shape)}; give both the same size and channels."
        )
    if image_size is not None:
        train, test = (Split(resize(s.inputs, image_size), s.targets) for s in (train, test))
    return _put_together(
        name, source, train, test, class_names, scaling or Scaling.measured(train.inputs), mirror
    )


def make_table_data(
    name: str,
    source: "Path | str",
    train: Split,
    test: Split,
    class_names: Sequence[str],
    columns: tuple[Column, ...],
) -> Data:
    """The `Data` of two splits of a table's rows; for regression if the targets are numbers."""
    scaling = Scaling.measured(train.inputs)
    return _put_together(name, source, train, test, class_names, scaling, False, columns)


def _put_together(
    name: str,
    source: "Path | str",
    train: Split,
    test: Split,
    class_names: Sequence[str],
    scaling: Scaling,
    mirror: bool,
    columns: tuple[Column, ...] = (),
) -> Data:
    task: Task = "regression" if train.targets.is_floating_point() else "classification"
    target_scaling = None
    if task == "regression":
        target_scaling = Scaling.measured(train.targets)
    else:
        _check_classes(source, train, class_names, "row" if columns else "image")
    return Data(
        name,
        train,
        test,
        # Names of folders can hold bytes that no terminal or file takes.
        tuple(text.encode(errors="replace").decode() for text in class_names),
        scaling,
        mirror,
        task=task,
        target_scaling=target_scaling,
        columns=columns,
    )


def _check_classes(
    source: "Path | str", train: Split, class_names: Sequence[str], what: str
) -> None:
    if len(class_names) < 2:
        raise UserError(f"{source}: has only one class; give two or more.")
    twice = [name for name, times in Counter(class_names).items() if times > 1]
    if twice:
        raise UserError(f"{source}: two classes are called {twice[0]!r}; rename one.")
    counts = torch.bincount(train.targets, minlength=len(class_names))
    for count, class_name in zip(counts.tolist(), class_names, strict=True):
        if count == 0:
            raise UserError(
                f"{source}: class {class_name!r} has no training {what}; add some or remove it."
            )


def describe(shape: Sequence[int]) -> str:
    """A c×h×w shape in words."""
    channels, height, width = shape
    return f"{height}×{width} with {channels} channel{'' if channels == 1 else 's'}"


def resize(images: UInt8[Tensor, "n c h w"], side: int) -> UInt8[Tensor, "n c s s"]:
    """Images of another size, bilinear and antialiased, as Pillow resizes them."""
    if images.shape[-1] == side:
        return images
    # In blocks, so that the floats take little memory.
    blocks = [
        interpolate(block.float(), (side, side), mode="bilinear", antialias=True)
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        for block in torch.split(images, 1024)
    ]
    return torch.cat(blocks)
