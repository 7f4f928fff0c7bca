"""Each kind of DSA on one image (channels × size × size), pixel by pixel, from its definition."""

from math import cos, floor, sin

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float64]


def slow_color(image: Image, brightness: float, saturation: float, contrast: float) -> Image:
    """Add, then stretch about each pixel's channel mean, then about the image's mean."""
    channels, height, width = image.shape
    out = image + brightness
    for row in range(height):
        for column in range(width):
            grey = sum(out[c, row, column] for c in range(channels)) / channels
            for c in range(channels):
                out[c, row, column] = grey + saturation * (out[c, row, column] - grey)
    mean = out.sum() / out.size
    return mean + contrast * (out - mean)


def slow_crop(image: Image, right: int, down: int) -> Image:
    """Each pixel shows what lies so far to its right and below; zero from outside."""
    _, height, width = image.shape
    out = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            if 0 <= row + down < height and 0 <= column + right < width:
                out[:, row, column] = image[:, row + down, column + right]
    return out


def slow_cutout(image: Image, top: int, left: int, side: int) -> Image:
    """A square of zeros, of which only what lies in the image is seen."""
    _, height, width = image.shape
    out = image.copy()
    for row in range(top, top + side):
        for column in range(left, left + side):
            if 0 <= row < height and 0 <= column < width:
                out[:, row, column] = 0
    return out


def slow_flip(image: Image, flipped: bool) -> Image:
    """Left to right."""
    _, _, width = image.shape
    out = image.copy()
    if flipped:
        for column in range(width):
            out[:, :, column] = image[:, :, width - 1 - column]
    return out


def slow_scale(image: Image, across: float, down: float) -> Image:
    """Each pixel shows what lies so many times as far from the centre."""
    size = image.shape[-1]
    centre = (size - 1) / 2
    out = np.zeros_like(image)
    for row in range(size):
        for column in range(size):
            y, x = centre + down * (row - centre), centre + across * (column - centre)
            out[:, row, column] = bilinear(image, y, x)
    return out


def slow_rotate(image: Image, angle: float) -> Image:
    """Each pixel shows what lies at the angle (radians) from it, around the centre."""
    size = image.shape[-1]
    centre = (size - 1) / 2
    out = np.zeros_like(image)
    for row in range(size):
        for column in range(size):
            down, right = row - centre, column - centre
            y = centre + sin(angle) * right + cos(angle) * down
            x = centre + cos(angle) * right - sin(angle) * down
            out[:, row, column] = bilinear(image, y, x)
    return out


def bilinear(image: Image, y: float, x: float) -> Image:
    """The image between its pixels' centres, which lie at whole numbers; zero outside."""
    _, height, width = image.shape
    value = np.zeros(image.shape[0])
    for row in (floor(y), floor(y) + 1):
        for column in (floor(x), floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                weight = (1 - abs(y - row)) * (1 - abs(x - column))
                value += weight * image[:, row, column]
    return value
