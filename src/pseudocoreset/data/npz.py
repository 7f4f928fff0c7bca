"""`npz:FILE`: four arrays in a NumPy archive."""

import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pseudocoreset.data.assemble import make_image_data, make_split, refuse_bomb
from pseudocoreset.data.dataset import Data
from pseudocoreset.errors import UserError

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def read_npz(path: Path, image_size: int | None) -> Data:
    """Read `train_images`, `train_labels`, `test_images`, `test_labels`, and maybe `class_names`.

    Images are uint8: n×h×w, n×h×w×c or n×c×h×w, where c is 1 or 3 and h = w. A shape that could
    be both of the last two (n×3×3×3, n×1×1×1) is taken as n×h×w×c.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give an .npz file with {', '.join(ARRAYS)}.")
    arrays = read_arrays(path, ARRAYS, ("class_names",))
    names = _class_names(path, arrays)
    train, test = (
        make_split(
            f"{path}, {part}",
            channels_first(path, f"{part}_images", arrays[f"{part}_images"]),
            _labels(path, f"{part}_labels", arrays[f"{part}_labels"]),
            len(names),
        )
        for part in ("train", "test")
    )
    return make_image_data(f"npz:{path.stem}", path, train, test, names, image_size=image_size)


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names in an .npz file; no Python object is ever unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in required if name not in members]
            if missing:
                raise UserError(
                    f"{path}: has no array {missing[0]!r}; expected {', '.join(required)}."
                )
            wanted = [*required, *(name for name in optional if name in members)]
            return {name: _read_array(path, archive, members[name], name) for name in wanted}
    except (UserError, PermissionError):
        raise
    # zipfile and NumPy raise nearly anything on damaged bytes: zlib.error, struct.error, EOFError,
    # NotImplementedError for an unknown compression, SyntaxError for a header, MemoryError ...
    except Exception:
        raise UserError(
            f"{path}: expected a whole .npz file, found a damaged or truncated one; save or copy "
            "it again."
        ) from None


def _read_array(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str
) -> npt.NDArray[Any]:
    """One array, read only if its header promises as many bytes as the archive does."""
    with archive.open(member) as stream:
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, dtype = readers[np.lib.format.read_magic(stream)](stream)
        if dtype.hasobject:
            raise UserError(
                f"{path}: {name!r} holds Python objects, which are never loaded; save it as "
                "uint8 images, integer labels or text."
            )
        if prod(shape) * dtype.itemsize != member.file_size - stream.tell():
            raise ValueError("the header and the size disagree")
        refuse_bomb(path, member.file_size, member.compress_size)
    with archive.open(member) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read()  # zipfile compares its checksum once it sees the end
    return array


def channels_first(
    path: "Path | str", name: str, images: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Square uint8 images as n×c×h×w."""
    if images.dtype != np.uint8:
        raise UserError(
            f"{path}: {name!r} is {images.dtype}; expected uint8, whole numbers from 0 to 255."
        )
    if images.ndim == 3 and images.shape[1] == images.shape[2]:
        return images[:, None]
    if images.ndim == 4:
        _, one, two, three = images.shape
        if three in (1, 3) and one == two:
            return images.transpose(0, 3, 1, 2)
        if one in (1, 3) and two == three:
            return images
    raise UserError(
        f"{path}: {name!r} is {'×'.join(map(str, images.shape))}; expected square images, n×h×w, "
        "n×h×w×c or n×c×h×w with 1 or 3 channels."
    )


def _labels(path: Path, name: str, labels: npt.NDArray[Any]) -> npt.NDArray[np.integer]:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"{path}: {name!r} is {labels.dtype} of {labels.ndim} dimensions; expected integers of "
            "one dimension, one class number for each image."
        )
    return labels


def _class_names(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """The given names, or the class numbers that the training labels use."""
    if "class_names" in arrays:
        names = arrays["class_names"]
        if names.ndim != 1 or names.dtype.kind != "U":
            raise UserError(
                f"{path}: 'class_names' is {names.dtype} of {names.ndim} dimensions; expected text "
                "of one dimension, a list of names."
            )
        try:
            return tuple(str(name) for name in names)
        except ValueError:  # four bytes that are no character
            raise UserError(f"{path}: 'class_names' isn't text; save a list of names.") from None
    labels = _labels(path, "train_labels", arrays["train_labels"])
    highest = int(labels.max(initial=0))
    # A class number far beyond the images can only leave classes empty: don't list them all.
    return tuple(str(label) for label in range(min(highest, len(labels)) + 1))
