"""`digits`: 1,797 real handwritten digits of 8×8 pixels that come with the package."""

from dataclasses import replace
from pathlib import Path

from pseudocoreset.data.dataset import Data
from pseudocoreset.data.npz import read_npz


def read_digits(image_size: int | None) -> Data:
    """The embedded digits: 1,297 for training and 500, 50 of each class, for testing.

    digits.LICENSE.txt says where they come from.
    """
    data = read_npz(Path(__file__).with_name("digits.npz"), image_size)
    return replace(data, name="digits", mirror=False)
