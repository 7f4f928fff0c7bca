"""`mnist:DIR` and `fashion-mnist:DIR`: the four idx files, plain or gzipped."""

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pseudocoreset.data.assemble import (
    find_folder,
    make_image_data,
    make_split,
    refuse_bomb,
    require_folder,
)
from pseudocoreset.data.dataset import Data, Scaling, Split
from pseudocoreset.errors import UserError

DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
FILES = ("images-idx3-ubyte", "labels-idx1-ubyte")
AGAIN = "so get the file again"
# Twenty times the largest real file: a few damaged or hostile bytes can't fill the memory.
LARGEST_CONTENT = 1 << 30


def read_mnist(root: Path, image_size: int | None) -> Data:
    """Handwritten digits, 28×28 and grey."""
    train, test = _read_splits(root, ("MNIST/raw", "raw", "mnist"))
    normalisation = Scaling((0.1307,), (0.3081,))
    return make_image_data(
        "mnist",
        root,
        train,
        test,
        DIGITS,
        scaling=normalisation,
        mirror=False,
        image_size=image_size,
    )


def read_fashion_mnist(root: Path, image_size: int | None) -> Data:
    """Pictures of clothes, 28×28 and grey."""
    places = ("FashionMNIST/raw", "raw", "fashion-mnist", "data/fashion")
    train, test = _read_splits(root, places)
    normalisation = Scaling((0.2860,), (0.3530,))
    return make_image_data(
        "fashion-mnist",
        root,
        train,
        test,
        CLOTHES,
        scaling=normalisation,
        image_size=image_size,
    )


def _read_splits(root: Path, places: tuple[str, ...]) -> tuple[Split, Split]:
    stems = [f"{part}-{file}" for part in ("train", "t10k") for file in FILES]
    expected = f"{', '.join(stems)}, plain or .gz"
    require_folder(root, expected)
    folder = find_folder(root, places, [stem + end for stem in stems for end in ("", ".gz")])
    if folder is None:
        raise UserError(f"{root}: the files are missing; give a folder that holds {expected}.")
    train, test = (
        make_split(
            f"{folder / part}-*",
            read_idx(folder / f"{part}-{FILES[0]}", 3)[:, None],
            read_idx(folder / f"{part}-{FILES[1]}", 1),
            10,
        )
        for part in ("train", "t10k")
    )
    return train, test


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The bytes of an idx file, or of the same with .gz after its name, in the header's shape."""
    if not path.is_file():
        path = path.with_name(path.name + ".gz")
    if not path.is_file():
        raise UserError(
            f"{path.with_suffix('')}: this file and {path.name} are both missing; download one "
            "of them."
        )
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            header = stream.read(4 + 4 * dimensions)
            shape = _shape(path, header, dimensions)
            if path.suffix == ".gz":
                refuse_bomb(path, prod(shape), path.stat().st_size)
            # Read by the block: a header can promise any size, and only what is there is kept.
            content = bytearray()
            while len(content) <= prod(shape) and (block := stream.read(1 << 20)):
                content += block
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: the gzip file is truncated or damaged, {AGAIN}.") from None
    if len(content) != prod(shape):
        found = "more" if len(content) > prod(shape) else str(len(content))
        raise UserError(
            f"{path}: the header announces {prod(shape)} bytes ({'×'.join(map(str, shape))}) and "
            f"the file holds {found}, {AGAIN}."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    magic = bytes((0, 0, 8, dimensions))  # 8: unsigned bytes
    if len(header) < 4 + 4 * dimensions:
        raise UserError(f"{path}: truncated within its header, {AGAIN}.")
    if header[:4] != magic:
        raise UserError(
            f"{path}: wrong magic number {header[:4].hex()}; expected {magic.hex()}, {AGAIN}."
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if prod(shape) > LARGEST_CONTENT:
        raise UserError(
            f"{path}: the header announces {prod(shape)} bytes; expected at most "
            f"{LARGEST_CONTENT}, "
            f"{AGAIN}."
        )
    return shape
