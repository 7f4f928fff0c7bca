"""Blurs. Lengths are in pixels of 32×32 images, and grow with the side."""

import numpy as np
import torch
from torch.nn.functional import conv2d

from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.linear import (
    OFFICIAL_SIDE,
    both_ways,
    filter_matrix,
    folded,
    gaussian_matrix,
    gaussian_weights,
    motion_blurred,
    rounded_down,
    taken,
    zoom_matrix,
)
from pseudocoreset.evaluation.corruptions.noise import Images


def gaussian_blur(x: Images, draws: Draws, sigma: float) -> Images:  # noqa: ARG001
    """A Gaussian, the border's pixels repeated."""
    side = x.shape[-1]
    return both_ways(x, gaussian_matrix(side, sigma * side / OFFICIAL_SIDE))


def defocus_blur(x: Images, draws: Draws, radius: float, sigma: float) -> Images:  # noqa: ARG001
    """A disk whose edge is softened by a Gaussian of 3×3, borders mirrored."""
    side = x.shape[-1]
    grown = side / OFFICIAL_SIDE
    reach = int(radius * grown) + 2  # room for the softened edge
    away = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (away[:, None] ** 2 + away**2 <= (radius * grown) ** 2).double()
    soft = filter_matrix(len(away), gaussian_weights(sigma * grown, 1), "mirror")
    kernel = both_ways(disk / disk.sum(), soft)
    around = folded(torch.arange(-reach, side + reach), side, "mirror")
    padded = x[:, :, around][..., around].flatten(0, 1)[:, None]
    return conv2d(padded, kernel[None, None]).view_as(x)


def glass_blur(x: Images, draws: Draws, sigma: float, delta: float, iterations: float) -> Images:
    """A Gaussian; pixels taken from up to `delta` above and left of their place; a Gaussian.

    The official program means to swap pixels, and copies them: row by row from the end, pixel
    (h, w) becomes what is at (h + d, w + d'), with both shifts from −delta to delta − 1. For
    delta 1 those are pixels that were not yet changed.
    """
    side = x.shape[-1]
    blur = gaussian_matrix(side, sigma * side / OFFICIAL_SIDE)
    reach = max(1, round(delta * side / OFFICIAL_SIDE))
    x = rounded_down(both_ways(x, blur) * 255) / 255
    for _ in range(int(iterations)):
        x = _shuffled(x, draws, reach)
    return both_ways(x, blur)


def _shuffled(x: Images, draws: Draws, reach: int) -> Images:
    """The copies of one pass over the image, pixel after pixel."""
    side = x.shape[-1]
    inner = torch.arange(side - reach, reach, -1)
    shifts = draws.integers(-reach, reach, len(inner), len(inner), 2)  # of columns, and of rows
    if reach == 1:
        rows = torch.arange(side)[:, None].expand(len(x), -1, side).clone()
        columns = torch.arange(side).expand(len(x), side, -1).clone()
        rows[:, inner[:, None], inner] += shifts[..., 1]
        columns[:, inner[:, None], inner] += shifts[..., 0]
        return taken(x, rows, columns)
    x, each = x.clone(), torch.arange(len(x))
    for i, row in enumerate(inner.tolist()):
        for j, column in enumerate(inner.tolist()):
            right, down = shifts[:, i, j].unbind(1)
            x[:, :, row, column] = x[each, :, row + down, column + right]
    return x


def motion_blur(x: Images, draws: Draws, radius: float, sigma: float) -> Images:
    """A tail in a direction from −45° to 45°; see `motion_blurred`."""
    grown = x.shape[-1] / OFFICIAL_SIDE
    return motion_blurred(x, radius * grown, sigma * grown, draws.uniform(-45, 45))


def zoom_blur(x: Images, draws: Draws, end: float) -> Images:  # noqa: ARG001
    """The mean of the image and its zooms from 1 to `end` by 0.01."""
    factors = np.arange(1, end, 0.01).tolist()
    total = x + sum(both_ways(x, zoom_matrix(x.shape[-1], factor)) for factor in factors)
    return total / (len(factors) + 1)
