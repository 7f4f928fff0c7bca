"""The coreset's images, class by class, with pixels as crisp as they are."""

import base64
import io
from dataclasses import dataclass
from math import ceil

import numpy
import torch
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.report.style import GROUND, INK

MOST_PER_CLASS = 10
MOST_IN_ALL = 300
TILE_PIXELS = 64
"""About this wide is an image shown; always a whole multiple of its own size."""
GAP = 4
LETTER = 7.2
"""Pixels that a letter of a class name takes."""
LONGEST_NAME = 24
GRID_DOTS_PER_INCH = 100


@dataclass(frozen=True)
class ClassImages:
    """Some images of a class, as bytes to be looked at, and how many there are in all."""

    name: str
    pixels: UInt8[numpy.ndarray, "n h w 3"]
    total: int


def images_by_class(coreset: Pseudocoreset, per_class: int | None = None) -> list[ClassImages]:
    """The first images of every class; by default at most ten a class, and fewer of many classes.

    Grey images become colour ones of three equal channels; of more than three, the first is shown.
    """
    shown = per_class or min(MOST_PER_CLASS, max(1, MOST_IN_ALL // len(coreset.class_names)))
    images = coreset.normalisation.invert(coreset.images.detach().float()).cpu()
    if images.shape[1] != 3:
        images = images[:, :1].expand(-1, 3, -1, -1)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    found = []
    for label, name in enumerate(coreset.class_names):
        members = torch.nonzero(coreset.classes.cpu() == label).flatten().numpy()
        found.append(ClassImages(name, pixels[members[:shown]], len(members)))
    return found


def images_caption(groups: list[ClassImages]) -> str:
    """What of a coreset is shown, in a sentence."""
    total, shown = sum(group.total for group in groups), sum(len(group.pixels) for group in groups)
    if shown == total:
        return f"All {total} images by class."
    most = max(len(group.pixels) for group in groups)
    each = {group.total for group in groups}
    if len(each) == 1:
        return f"{most} of the {each.pop()} images of each class ({total} in all)."
    return f"Up to {most} images of each class ({total} in all)."


def zoom_for(size: int) -> int:
    """How many times larger an image of this side is shown."""
    return max(1, round(TILE_PIXELS / size))


def image_uri(pixels: UInt8[numpy.ndarray, "h w 3"]) -> str:
    """One image, in its own size, to be written into a page."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    return png_uri(buffer.getvalue())


def png_uri(content: bytes) -> str:
    """A PNG file to be written into a page."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def coreset_grid(coreset: Pseudocoreset, per_class: int | None = None) -> Figure:
    """The images by class, each row under its class's name; `per_class` limits how many of each.

    Small sets stand in several columns. Save the figure with the resolution it has (`figure.dpi`),
    and every pixel of an image is a square of the same size.
    """
    groups = images_by_class(coreset, per_class)
    widest = max(1, max(len(group.pixels) for group in groups))
    tile = coreset.images.shape[-1] * zoom_for(coreset.images.shape[-1])
    label = round(LETTER * min(LONGEST_NAME, max(len(group.name) for group in groups))) + 3 * GAP
    block = label + widest * (tile + GAP) + 3 * GAP
    columns = max(1, min(len(groups), 960 // block))
    rows = ceil(len(groups) / columns)
    columns = ceil(len(groups) / rows)  # those that are left when rows are full
    caption = 28
    width, height = columns * block + 2 * GAP, rows * (tile + GAP) + caption + 2 * GAP
    canvas = numpy.full((height, width, 3), 255, dtype=numpy.uint8)
    size = (width / GRID_DOTS_PER_INCH, height / GRID_DOTS_PER_INCH)
    figure = Figure(figsize=size, dpi=GRID_DOTS_PER_INCH, facecolor=GROUND)
    FigureCanvasAgg(figure)
    for place, group in enumerate(groups):
        # Down the first column, then the next.
        left, top = GAP + place // rows * block, caption + GAP + place % rows * (tile + GAP)
        _paste(canvas, group, left + label, top, tile)
        # A "$" in a class name is no formula.
        figure.text(
            (left + label - 2 * GAP) / width,
            1 - (top + tile / 2) / height,
            _short(group.name),
            ha="right",
            va="center",
            fontsize=8.5,
            color=INK,
            parse_math=False,
        )
    _lay_under(figure, canvas)
    figure.text(
        2 * GAP / width,
        1 - caption / 2 / height,
        images_caption(groups),
        va="center",
        fontsize=8.5,
        color=INK,
    )
    return figure


def _paste(
    canvas: UInt8[numpy.ndarray, "height width 3"],
    group: ClassImages,
    left: int,
    top: int,
    tile: int,
) -> None:
    """Put the images of a class in a row, each pixel as a whole square."""
    for number, image in enumerate(group.pixels):
        zoom = tile // image.shape[1]
        large = image.repeat(zoom, 0).repeat(zoom, 1)
        start = left + number * (tile + GAP)
        canvas[top : top + large.shape[0], start : start + large.shape[1]] = large


def _lay_under(figure: Figure, canvas: UInt8[numpy.ndarray, "height width 3"]) -> None:
    axes = figure.add_axes((0, 0, 1, 1), zorder=-1)
    axes.set_axis_off()
    axes.imshow(canvas, interpolation="nearest", aspect="auto")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
