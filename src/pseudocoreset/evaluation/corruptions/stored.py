"""Corrupted data sets on disk: the official arrays and our cache."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import UInt8
from platformdirs import user_cache_path
from torch import Tensor

from pseudocoreset.data import Split
from pseudocoreset.data.image_cache import cached_images
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.corruptions.images import corrupt
from pseudocoreset.evaluation.corruptions.table import SEVERITIES

VERSION = 1
"""Of the corruptions: what an older version made is made again."""
SEED = 0
"""Of the corrupted images that are scored."""


class Made:
    """Corrupted images of these points, kept in the user's cache folder.

    Args:
        points: what is to be corrupted
    """

    source = "made"

    def __init__(self, points: Split) -> None:
        self._images = points.inputs.cpu().contiguous()
        self._digest = hashlib.blake2b(self._images.numpy().data, digest_size=8).hexdigest()

    def images(self, name: str, severity: int) -> UInt8[Tensor, "n c h w"]:
        """The corrupted images.

        Args:
            name: the corruption
            severity: 1 to 5
        """

        def make() -> npt.NDArray[np.uint8]:
            return corrupt(self._images, name, severity, seed=SEED).numpy()

        folder = user_cache_path("pseudocoreset", appauthor=False) / "corruptions"
        if not folder.is_absolute():  # a user without a home
            return torch.from_numpy(make())
        shape = tuple(self._images.shape)
        listing = repr((VERSION, name, severity, SEED, self._digest, shape))
        file = f"{self._digest}-{name}-{severity}"
        return torch.from_numpy(cached_images(folder, file, listing, shape, make))


class Official:
    """Arrays such as those of CIFAR-10-C: NAME.npy and labels.npy, five severities in a row.

    Args:
        folder: where they are
        points: the clean points, in the same order
    """

    source = "official"

    def __init__(self, folder: Path, points: Split) -> None:
        self._folder, self._clean = folder, points.inputs
        labels = _array(folder / "labels.npy", "an array of classes")
        expected = points.targets.cpu().repeat(len(SEVERITIES)).numpy()
        numbers = labels.dtype.kind in "iuf" and labels.shape == expected.shape
        if not numbers or not np.array_equal(labels, expected):
            raise UserError(
                f"`corruptions_dir`: {folder / 'labels.npy'} does not have the classes of the "
                f"{len(points)} points that are scored, {len(SEVERITIES)} times in a row: give the "
                "arrays of these data's test images.",
                "corruptions_dir",
            )

    def has(self, name: str) -> bool:
        """Whether there is a file for this corruption."""
        return self._path(name).is_file()

    def check(self, name: str) -> npt.NDArray[np.uint8]:
        """The array of a corruption, mapped and not yet read; one that does not fit is refused.

        Args:
            name: the corruption
        """
        number, channels, side, _ = self._clean.shape
        shape = (len(SEVERITIES) * number, side, side, channels)
        array = _array(self._path(name), "an array of images")
        if array.shape != shape or array.dtype != np.uint8:
            found, expected = ("×".join(map(str, each)) for each in (array.shape, shape))
            raise UserError(
                f"`corruptions_dir`: {self._path(name)} is {array.dtype} of {found}; expected "
                f"uint8 of {expected}.",
                "corruptions_dir",
            )
        return array

    def images(self, name: str, severity: int) -> UInt8[Tensor, "n c h w"]:
        """The corrupted images.

        Args:
            name: the corruption
            severity: 1 to 5
        """
        number = len(self._clean)
        rows = self.check(name)[(severity - 1) * number : severity * number]
        return torch.from_numpy(np.ascontiguousarray(rows.transpose(0, 3, 1, 2)))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"


def _array(path: Path, what: str) -> npt.NDArray[Any]:
    """An .npy file, mapped into memory; Python objects are never loaded."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise UserError(f"`corruptions_dir`: {path} does not exist.", "corruptions_dir") from None
    except Exception:  # NumPy raises nearly anything on damaged bytes
        array = None
    if not isinstance(array, np.ndarray):
        raise UserError(
            f"`corruptions_dir`: {path} can't be read as {what} in .npy format.", "corruptions_dir"
        )
    return array
