"""Blurs, zooms and bilinear sampling of many images at once.

What works along rows and columns alike is one matrix A: the image becomes A X Aᵀ. Borders are
written as rows of A, so any rule for them is exact.
"""

from math import ceil

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

OFFICIAL_SIDE = 32
"""The side that lengths in pixels are given for; they grow with the side of an image."""


def rounded_down(x: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    """The next whole number below; what is whole but for rounding errors stays as it is."""
    return (x + 1e-6).floor()


def folded(place: Int64[Tensor, "..."], side: int, border: str) -> Int64[Tensor, "..."]:
    """Places inside an image for those outside of it.

    Args:
        place: any whole numbers
        side: of the image
        border: `nearest` (aa|abc|cc), `reflect` (ba|abc|cb) or `mirror` (cb|abc|ba)
    """
    if border == "nearest":
        return place.clamp(0, side - 1)
    period = 2 * side if border == "reflect" else 2 * side - 2
    inside = place % period
    last = period - 1 if border == "reflect" else period
    return torch.where(inside < side, inside, last - inside)


def filter_matrix(
    side: int, weights: Float64[Tensor, " w"], border: str
) -> Float64[Tensor, "side side"]:
    """The matrix of a filter with an odd number of weights, whose middle one is for the pixel.

    Args:
        side: of the image
        weights: of the neighbours, in order
        border: as for `folded`
    """
    reach = len(weights) // 2
    matrix = torch.zeros(side, side, dtype=torch.float64)
    rows = torch.arange(side)
    for offset, weight in zip(range(-reach, reach + 1), weights, strict=True):
        matrix.index_put_(
            (rows, folded(rows + offset, side, border)), weight.expand(side), accumulate=True
        )
    return matrix


def gaussian_weights(sigma: float, reach: int) -> Float64[Tensor, " w"]:
    """exp(−k²/2σ²) for k = −reach … reach, with sum 1; all in the middle for σ = 0."""
    away = torch.arange(-reach, reach + 1, dtype=torch.float64)
    weights = torch.exp(-(away**2) / (2 * sigma**2)) if sigma > 0 else (away == 0).double()
    return weights / weights.sum()


def gaussian_matrix(
    side: int, sigma: float, truncate: float = 4.0, border: str = "nearest"
) -> Float64[Tensor, "side side"]:
    """The matrix of a Gaussian blur that reaches `truncate` standard deviations far."""
    reach = int(truncate * sigma + 0.5)
    return filter_matrix(side, gaussian_weights(sigma, reach), border)


def zoom_matrix(side: int, factor: float) -> Float64[Tensor, "side side"]:
    """The matrix of a zoom into the middle, linear between pixels.

    The middle ⌈side/factor⌉ pixels become round(⌈side/factor⌉·factor), corner on corner, of which
    the middle `side` are kept.
    """
    inner = ceil(side / factor)
    start, size = (side - inner) // 2, round(inner * factor)
    kept = torch.arange(side) + (size - side) // 2
    place = kept.double() * ((inner - 1) / (size - 1))
    low = place.long().clamp(max=inner - 1)
    high = (low + 1).clamp(max=inner - 1)
    part = place - low
    matrix = torch.zeros(side, side, dtype=torch.float64)
    rows = torch.arange(side)
    matrix.index_put_((rows, start + low), 1 - part, accumulate=True)
    matrix.index_put_((rows, start + high), part, accumulate=True)
    return matrix


def both_ways(
    x: Float64[Tensor, "*n h w"], matrix: Float64[Tensor, "h h"]
) -> Float64[Tensor, "*n h w"]:
    """A X Aᵀ for each image and channel."""
    return matrix @ x @ matrix.T


def taken(
    x: Float64[Tensor, "n c h w"], rows: Int64[Tensor, "n h w"], columns: Int64[Tensor, "n h w"]
) -> Float64[Tensor, "n c h w"]:
    """The pixels at these places, which are the same for all channels."""
    flat = (rows * x.shape[-1] + columns).flatten(1)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, flat).view_as(x)


def sampled(
    x: Float64[Tensor, "n c h w"],
    rows: Float64[Tensor, "n h w"],
    columns: Float64[Tensor, "n h w"],
    border: str,
) -> Float64[Tensor, "n c h w"]:
    """Bilinear between the four pixels about each place."""
    side = x.shape[-1]
    top, left = rows.floor(), columns.floor()
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    found = torch.zeros_like(x)
    for y, weight_y in ((0, 1 - down), (1, down)):
        for z, weight_x in ((0, 1 - right), (1, right)):
            row = folded(top.long() + y, side, border)
            column = folded(left.long() + z, side, border)
            found += weight_y * weight_x * taken(x, row, column)
    return found


def motion_blurred(
    x: Float64[Tensor, "n c h w"],
    radius: float,
    sigma: float,
    degrees: Float64[Tensor, " n"],
) -> Float64[Tensor, "n c h w"]:
    """A Gaussian tail in one direction, rounded to bytes.

    Pixel (x, y) becomes Σ_i w_i · pixel (x + o_i, y + p_i) for i = 0 … 2⌈radius⌉, with
    w_i ∝ exp(−i²/2σ²) and (o_i, p_i) = ⌈i·(cos, sin) − ½⌉: the motion blur of ImageMagick.

    Args:
        x: pixels in [0, 1]
        radius: of the tail
        sigma: its standard deviation
        degrees: its direction, an angle for each image
    """
    taps = 2 * ceil(radius) + 1
    weights = torch.exp(-(torch.arange(taps, dtype=torch.float64) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    angles = torch.from_numpy(np.radians(degrees.numpy()))
    side = x.shape[-1]
    grid = torch.arange(side)
    found = torch.zeros_like(x)
    for step, weight in enumerate(weights):
        right, down = (((step * way - 0.5).ceil().long()) for way in (angles.cos(), angles.sin()))
        columns = folded(grid[None] + right[:, None], side, "nearest")[:, None, :]
        rows = folded(grid[None] + down[:, None], side, "nearest")[:, :, None]
        found += weight * taken(x, rows.expand(-1, -1, side), columns.expand(-1, side, -1))
    return (found * 255).round() / 255
