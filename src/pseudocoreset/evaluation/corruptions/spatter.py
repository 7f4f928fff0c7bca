"""Drops of water or mud on the lens."""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from pseudocoreset.evaluation.corruptions.colour import luminance
from pseudocoreset.evaluation.corruptions.draws import Draws
from pseudocoreset.evaluation.corruptions.linear import (
    OFFICIAL_SIDE,
    both_ways,
    filter_matrix,
    folded,
    gaussian_matrix,
    rounded_down,
)
from pseudocoreset.evaluation.corruptions.noise import Images

Maps = Float64[Tensor, "n h w"]
WATER, MUD = (175, 238, 238), (63, 42, 20)
LOW, HIGH = 50, 150
"""Gradients of an edge: above HIGH, or above LOW beside one."""
FARTHEST = 20
"""Distances from an edge count up to here."""
MUD_FROM = 0.8
SHADE = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
"""Weights that make drops look lit from one side."""
STRAIGHT, DIAGONAL, KNIGHT = 1.0, 1.4, 2.1969
STEPS = (
    *((y, x, STRAIGHT) for y, x in ((0, 1), (1, 0))),
    *((y, x, DIAGONAL) for y, x in ((1, 1), (1, -1))),
    *((y, x, KNIGHT) for y, x in ((1, 2), (1, -2), (2, 1), (2, -1))),
)
"""Moves and their lengths, of which (with their opposites) a distance is made."""
TAN_22 = 0.4142135623730951


def spatter(
    x: Images,
    draws: Draws,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> Images:
    """Blurred noise above a threshold is wet: mud covers it, water adds to it."""
    side = x.shape[-1]
    grown = side / OFFICIAL_SIDE
    liquid = mean + std * draws.normal(side, side)
    liquid = both_ways(liquid, gaussian_matrix(side, sigma * grown))
    liquid = torch.where(liquid < threshold, 0, liquid)
    colour = x.new_tensor(MUD if mud else WATER)[None, :, None, None] / 255
    colour = luminance(colour) if x.shape[1] == 1 else colour
    if mud:
        cover = both_ways((liquid > threshold).double(), gaussian_matrix(side, strength * grown))
        cover = torch.where(cover < MUD_FROM, 0, cover)[:, None]
        return x * (1 - cover) + colour * cover
    liquid = rounded_down(liquid * 255) % 256  # as bytes
    wet = liquid * relief(liquid, FARTHEST * grown)
    most = wet.amax((1, 2), keepdim=True)
    share = torch.where(most > 0, wet / most, 0)[:, None]
    return x + strength * share * colour


def relief(liquid: Maps, farthest: float) -> Maps:
    """Drops with a lit side, in bytes: from the distance to the nearest edge.

    Args:
        liquid: how much of it there is, in bytes
        farthest: distances count up to here
    """
    side = liquid.shape[-1]
    box = filter_matrix(side, torch.full((3,), 1 / 3, dtype=torch.float64), "mirror")
    distance = distances(edges(liquid), farthest)
    even = equalised(rounded_down(both_ways(distance, box)))
    lit = torch.zeros_like(even)
    for down, row in enumerate(SHADE):
        for right, weight in enumerate(row):
            lit += weight * _shifted(even, down - 1, right - 1, "mirror")
    return both_ways(lit.clamp(0, 255), box).round()


def edges(image: Maps) -> Bool[Tensor, "n h w"]:
    """Canny's edges: ridges of the gradient above HIGH, and those above LOW that touch them."""
    gaps = torch.tensor([-1.0, 0, 1], dtype=torch.float64)
    mean = torch.tensor([1.0, 2, 1], dtype=torch.float64)
    side = image.shape[-1]
    differ, smooth = (filter_matrix(side, weights, "nearest") for weights in (gaps, mean))
    across = smooth @ image @ differ.T
    along = differ @ image @ smooth.T
    height = across.abs() + along.abs()
    candidate = (height > LOW) & _is_ridge(across, along, height)
    found = candidate & (height > HIGH)
    while True:
        near = torch.nn.functional.max_pool2d(found[:, None].double(), 3, 1, 1)[:, 0] > 0
        grown = candidate & near
        if torch.equal(grown, found):
            return found
        found = grown


def _is_ridge(across: Maps, along: Maps, height: Maps) -> Bool[Tensor, "n h w"]:
    """Whether a pixel's gradient is larger than its neighbours' up and down the slope."""

    def beside(down: int, right: int) -> Maps:
        return _shifted(height, down, right, "zero")

    flat = along.abs() < across.abs() * TAN_22
    steep = along.abs() > across.abs() * (TAN_22 + 2)
    falling = (across < 0) ^ (along < 0)
    level = (height > beside(0, -1)) & (height >= beside(0, 1))
    upright = (height > beside(-1, 0)) & (height >= beside(1, 0))
    down = (height > beside(-1, -1)) & (height > beside(1, 1))
    up = (height > beside(-1, 1)) & (height > beside(1, -1))
    slanted = torch.where(falling, up, down)
    return torch.where(flat, level, torch.where(steep, upright, slanted))


def distances(edge: Bool[Tensor, "n h w"], farthest: float) -> Maps:
    """The length of the shortest way to an edge by `STEPS`, at most `farthest`."""
    found = torch.where(edge, 0.0, farthest).double()
    while True:
        nearer = found
        for down, right, length in STEPS:
            for sign in (1, -1):
                way = _shifted(found, sign * down, sign * right, "nowhere") + length
                nearer = torch.minimum(nearer, way)
        if torch.equal(nearer, found):
            return found
        found = nearer


def equalised(image: Maps) -> Maps:
    """Each value v becomes round(255·(pixels of values in (lowest, v]) / (all above lowest)).

    An image of one value stays as it is.
    """
    number, side = image.shape[0], image.shape[-1]
    bytes_ = image.long().flatten(1)
    counts = torch.zeros(number, 256, dtype=torch.int64)
    counts.scatter_add_(1, bytes_, torch.ones_like(bytes_))
    lowest = bytes_.amin(1, keepdim=True)
    without = counts.scatter(1, lowest, 0)
    above = without.sum(1, keepdim=True)
    table = (without.cumsum(1) * (255 / above.clamp(min=1))).round()
    table = torch.where(above > 0, table, torch.arange(256).double())
    return table.gather(1, bytes_).view(number, side, side)


def _shifted(x: Maps, down: int, right: int, border: str) -> Maps:
    """What is `down` and `right` of each pixel; outside: mirrored, `zero`, or far (`nowhere`)."""
    side = x.shape[-1]
    rows, columns = torch.arange(side) + down, torch.arange(side) + right
    inside = "mirror" if border == "mirror" else "nearest"
    found = x[:, folded(rows, side, inside)][..., folded(columns, side, inside)]
    if border == "mirror":
        return found
    out = ((rows < 0) | (rows >= side))[:, None] | ((columns < 0) | (columns >= side))
    return found.masked_fill(out, 0.0 if border == "zero" else float("inf"))
