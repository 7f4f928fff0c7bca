"""`cifar10:DIR` and `cifar100:DIR`: the binary and the python version of the official archives."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pseudocoreset.data.assemble import (
    check_class_names,
    find_folder,
    make_image_data,
    make_split,
    read_class_names,
    require_file,
    require_folder,
)
from pseudocoreset.data.dataset import Data, Scaling, Split
from pseudocoreset.data.restricted_pickle import PickledArray, load_pickle
from pseudocoreset.errors import UserError

PIXELS = 3 * 32 * 32
# The field's own figures, which dataset distillation uses for CIFAR-100 too.
NORMALISATION = Scaling((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
# Records read at a time: a small buffer, since a larger one is no faster.
BLOCK = 256


@dataclass(frozen=True)
class BinaryLayout:
    """The files of a binary archive: records of labels, the last of them the class, and pixels."""

    folder: str
    train: tuple[tuple[str, int], ...]  # file, images in it
    test: tuple[tuple[str, int], ...]
    names: str
    classes: int
    label_bytes: int


@dataclass(frozen=True)
class PythonLayout:
    """The files of a python archive: pickled dictionaries, and the keys of what they hold."""

    folder: str
    train: tuple[tuple[str, int], ...]
    test: tuple[tuple[str, int], ...]
    names: str
    classes: int
    label_key: bytes
    names_key: bytes


CIFAR10_BINARY = BinaryLayout(
    folder="cifar-10-batches-bin",
    train=tuple((f"data_batch_{number}.bin", 10_000) for number in range(1, 6)),
    test=(("test_batch.bin", 10_000),),
    names="batches.meta.txt",
    classes=10,
    label_bytes=1,
)
CIFAR10_PYTHON = PythonLayout(
    folder="cifar-10-batches-py",
    train=tuple((f"data_batch_{number}", 10_000) for number in range(1, 6)),
    test=(("test_batch", 10_000),),
    names="batches.meta",
    classes=10,
    label_key=b"labels",
    names_key=b"label_names",
)
CIFAR100_BINARY = BinaryLayout(
    folder="cifar-100-binary",
    train=(("train.bin", 50_000),),
    test=(("test.bin", 10_000),),
    names="fine_label_names.txt",
    classes=100,
    label_bytes=2,
)
CIFAR100_PYTHON = PythonLayout(
    folder="cifar-100-python",
    train=(("train", 50_000),),
    test=(("test", 10_000),),
    names="meta",
    classes=100,
    label_key=b"fine_labels",
    names_key=b"fine_label_names",
)


def read_cifar10(root: Path, image_size: int | None) -> Data:
    """CIFAR-10: 50,000 and 10,000 colour images of 32×32 pixels."""
    return _read("cifar10", root, CIFAR10_BINARY, CIFAR10_PYTHON, image_size)


def read_cifar100(root: Path, image_size: int | None) -> Data:
    """CIFAR-100 with its 100 fine classes."""
    return _read("cifar100", root, CIFAR100_BINARY, CIFAR100_PYTHON, image_size)


def _read(
    name: str, root: Path, binary: BinaryLayout, python: PythonLayout, image_size: int | None
) -> Data:
    expected = f"{binary.folder} or {python.folder}, or the files of one of them"
    require_folder(root, expected)
    for layout in (binary, python):
        files = [file for file, _ in (*layout.train, *layout.test)]
        folder = find_folder(root, (layout.folder,), files)
        if folder is None:
            continue
        if isinstance(layout, BinaryLayout):
            names = read_class_names(folder / layout.names, layout.classes)
            train, test = (_binary_split(folder, f, layout) for f in (layout.train, layout.test))
        else:
            names = _pickled_names(folder / layout.names, layout)
            train, test = (_pickled_split(folder, f, layout) for f in (layout.train, layout.test))
        return make_image_data(
            name, folder, train, test, names, scaling=NORMALISATION, image_size=image_size
        )
    raise UserError(f"{root}: no such files; give a folder that holds {expected}.")


def _binary_split(folder: Path, files: Sequence[tuple[str, int]], layout: BinaryLayout) -> Split:
    """Read the records straight into the arrays that stay."""
    record = layout.label_bytes + PIXELS
    for name, count in files:
        require_file(folder / name)
        size = (folder / name).stat().st_size
        if size != count * record:
            raise UserError(
                f"{folder / name}: expected {count * record} bytes ({count} images), found {size}; "
                "download or unpack the archive again."
            )
    total = sum(count for _, count in files)
    images = np.empty((total, PIXELS), np.uint8)
    labels = np.empty(total, np.uint8)
    block = np.empty((BLOCK, record), np.uint8)
    start = 0
    for name, count in files:
        end = start + count
        with (folder / name).open("rb", buffering=0) as stream:
            for position in range(start, end, BLOCK):
                here = block[: min(BLOCK, end - position)]
                if stream.readinto(here.data) != here.nbytes:
                    raise UserError(f"{folder / name}: changed while it was read; try again.")
                labels[position : position + len(here)] = here[:, layout.label_bytes - 1]
                images[position : position + len(here)] = here[:, layout.label_bytes :]
        _check_labels(folder / name, labels[start:end], layout.classes)
        start = end
    return make_split(folder, images.reshape(-1, 3, 32, 32), labels, layout.classes)


def _pickled_split(folder: Path, files: Sequence[tuple[str, int]], layout: PythonLayout) -> Split:
    images, labels = [], []
    for name, count in files:
        path = folder / name
        content = _dictionary(path)
        pixels, classes = content.get(b"data"), content.get(layout.label_key)
        if (
            not isinstance(pixels, PickledArray)
            or pixels.shape != (count, PIXELS)
            or not isinstance(classes, list)
            or len(classes) != count
            or not all(type(label) is int for label in classes)
        ):
            raise UserError(
                f"{path}: expected 'data' of {count} images and '{layout.label_key.decode()}' of "
                f"{count} whole numbers, found something else; download or unpack the archive "
                "again."
            )
        images.append(pixels.to_numpy())
        labels.append(_check_labels(path, classes, layout.classes))
    return make_split(
        folder,
        np.concatenate(images).reshape(-1, 3, 32, 32),
        np.concatenate(labels),
        layout.classes,
    )


def _check_labels(
    path: Path, labels: "npt.NDArray[np.uint8] | list[int]", classes: int
) -> npt.NDArray[np.uint8]:
    """The labels as bytes; one out of range is refused with the name of its file."""
    lowest, highest = int(np.min(labels)), int(np.max(labels))
    if lowest < 0 or highest >= classes:
        raise UserError(
            f"{path}: found label {lowest if lowest < 0 else highest}; expected 0 to "
            f"{classes - 1}, so download or unpack the archive again."
        )
    return np.asarray(labels, np.uint8)


def _pickled_names(path: Path, layout: PythonLayout) -> tuple[str, ...]:
    names = _dictionary(path).get(layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise UserError(
            f"{path}: expected '{layout.names_key.decode()}', a list of names; download or "
            "unpack the archive again."
        )
    return check_class_names(
        path, [name.decode(errors="replace") for name in names], layout.classes
    )


def _dictionary(path: Path) -> dict[Any, Any]:
    require_file(path)
    content = load_pickle(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path}: expected a pickled dictionary; download or unpack the archive again."
        )
    return content
