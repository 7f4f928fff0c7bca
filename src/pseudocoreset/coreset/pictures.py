"""Pictures of a coreset: images by class, or a heat map of a table.

Points are shown as networks see them. This module imports matplotlib, so import it only where it
is needed.
"""

import base64
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import Any

import numpy
import torch
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from pseudocoreset.coreset.pseudocoreset import Pseudocoreset
from pseudocoreset.engine.text import printable, significant
from pseudocoreset.errors import UserError

GROUND = "#ffffff"
INK = "#3c4350"
MOST_PER_CLASS = 10
MOST_IN_ALL = 300
TILE_PIXELS = 64
"""About this wide is an image shown; always a whole multiple of its own size."""
GAP = 4
LETTER = 7.2
"""Pixels that a letter of a class name takes."""
LONGEST_NAME = 24
GRID_DOTS_PER_INCH = 100
MOST_ROWS = 100
"""Points of a table that a figure shows."""
MOST_HTML_ROWS = 20
MOST_HTML_COLUMNS = 12
MOST_NAMED_INPUTS = 60
STRONGEST = 3.0
"""Standard deviations from the mean at which a colour of the table is full."""


@dataclass(frozen=True)
class ClassImages:
    """Some images of a class, as bytes to be looked at, and how many there are in all."""

    name: str
    pixels: UInt8[numpy.ndarray, "n h w 3"]
    total: int


def coreset_figure(coreset: Pseudocoreset) -> Figure:
    """The points as a figure: images by class, or a table as a heat map.

    Args:
        coreset: the coreset
    """
    return coreset_grid(coreset) if coreset.is_image else table_figure(coreset)


def coreset_html(coreset: Pseudocoreset) -> str:
    """HTML of a coreset for notebooks.

    Args:
        coreset: the coreset
    """
    head = f"<p>{escape(repr(coreset))}</p>"
    if not coreset.is_image:
        return head + _html_table(coreset)
    buffer = io.BytesIO()
    figure = coreset_grid(coreset)
    with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png", dpi=figure.dpi)
    return f'{head}<img src="{png_uri(buffer.getvalue())}" alt="{escape(repr(coreset))}">'


def sizes_sentence(coreset: Pseudocoreset) -> str:
    """How many points are stored and how many are seen; empty where they are the same.

    Args:
        coreset: the coreset
    """
    if coreset.form.seen == 1:
        return ""
    return f"Stored {len(coreset):,}, seen {coreset.num_seen:,} ({coreset.form})."


def pil_images(coreset: Pseudocoreset) -> list[Image.Image]:
    """The images that networks see.

    Args:
        coreset: a coreset of grey or colour images
    """
    if not coreset.is_image:
        raise UserError("the coreset holds a table, not images.")
    channels = coreset.input_shape[0]
    if channels not in (1, 3):
        raise UserError(f"the coreset's images have {channels} channels, not 1 or 3.")
    pixels = _pixels(coreset).transpose(0, 2, 3, 1)
    return [Image.fromarray(one.squeeze(-1) if channels == 1 else one) for one in pixels]


def images_by_class(coreset: Pseudocoreset, per_class: int | None = None) -> list[ClassImages]:
    """The first images of every class; by default at most ten a class, and fewer of many classes.

    Grey images become colour ones of three equal channels; of other numbers than three, the first
    is shown. For regression, every image stands alone with its target.

    Args:
        coreset: a coreset of images
        per_class: how many of each class
    """
    images = _pixels(coreset)
    if images.shape[1] != 3:
        images = images[:, :1].repeat(3, axis=1)
    pixels = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
    if not coreset.class_names:
        texts = target_texts(coreset)[:MOST_IN_ALL]
        return [ClassImages(text, pixels[i : i + 1], 1) for i, text in enumerate(texts)]
    shown = per_class or min(MOST_PER_CLASS, max(1, MOST_IN_ALL // len(coreset.class_names)))
    found = []
    for label, name in enumerate(coreset.class_names):
        members = torch.nonzero(coreset.classes.cpu() == label).flatten().numpy()
        found.append(ClassImages(printable(name), pixels[members[:shown]], len(members)))
    return found


def _pixels(coreset: Pseudocoreset) -> UInt8[numpy.ndarray, "n c h w"]:
    """The images that are seen, as bytes."""
    return coreset.scaling.invert(coreset.seen_inputs.detach().float()).cpu().numpy()


def images_caption(coreset: Pseudocoreset, groups: Sequence[ClassImages]) -> str:
    """What of a coreset is shown, in a sentence or two.

    Args:
        coreset: the coreset
        groups: what is shown of it
    """
    return f"{_shown_sentence(coreset, groups)} {sizes_sentence(coreset)}".rstrip()


def _shown_sentence(coreset: Pseudocoreset, groups: Sequence[ClassImages]) -> str:
    total, shown = coreset.num_seen, sum(len(group.pixels) for group in groups)
    if not coreset.class_names:
        which = "All" if shown == total else f"{shown} of the"
        return f"{which} {total} images with their targets."
    if shown == total:
        return f"All {total} images by class."
    most = max(len(group.pixels) for group in groups)
    each = {group.total for group in groups}
    if len(each) == 1:
        return f"{most} of the {each.pop()} images of each class ({total} in all)."
    images = "1 image" if most == 1 else f"up to {most} images"
    return f"{images[0].upper()}{images[1:]} of each class ({total:,} in all)."


def zoom_for(size: int) -> int:
    """How many times larger an image of this side is shown.

    Args:
        size: in pixels
    """
    return max(1, round(TILE_PIXELS / size))


def image_uri(pixels: UInt8[numpy.ndarray, "h w 3"]) -> str:
    """One image, in its own size, to be written into a page.

    Args:
        pixels: the image
    """
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    return png_uri(buffer.getvalue())


def png_uri(content: bytes) -> str:
    """A PNG file to be written into a page.

    Args:
        content: the file's bytes
    """
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def coreset_grid(coreset: Pseudocoreset, per_class: int | None = None) -> Figure:
    """The images by class, each row under its class's name.

    Small sets stand in several columns. Save the figure with the resolution it has (`figure.dpi`),
    and every pixel of an image is a square of the same size.

    Args:
        coreset: a coreset of images
        per_class: how many of each class at most
    """
    groups = images_by_class(coreset, per_class)
    widest = max(1, max(len(group.pixels) for group in groups))
    size = max(coreset.input_shape[1:])
    tile = size * zoom_for(size)
    label = round(LETTER * min(LONGEST_NAME, max(len(group.name) for group in groups))) + 3 * GAP
    block = label + widest * (tile + GAP) + 3 * GAP
    columns = max(1, min(len(groups), 960 // block))
    rows = ceil(len(groups) / columns)
    columns = ceil(len(groups) / rows)  # those that are left when rows are full
    caption = 28
    width, height = columns * block + 2 * GAP, rows * (tile + GAP) + caption + 2 * GAP
    canvas = numpy.full((height, width, 3), 255, dtype=numpy.uint8)
    figure = _new_figure(width / GRID_DOTS_PER_INCH, height / GRID_DOTS_PER_INCH)
    for place, group in enumerate(groups):
        # Down the first column, then the next.
        left, top = GAP + place // rows * block, caption + GAP + place % rows * (tile + GAP)
        _paste(canvas, group, left + label, top, tile)
        _write(
            figure,
            (left + label - 2 * GAP) / width,
            1 - (top + tile / 2) / height,
            _short(group.name),
            ha="right",
        )
    _lay_under(figure, canvas)
    words = images_caption(coreset, groups)
    _write(figure, 2 * GAP / width, 1 - caption / 2 / height, words)
    return figure


def _new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=GRID_DOTS_PER_INCH, facecolor=GROUND)
    FigureCanvasAgg(figure)
    return figure


def _write(figure: Figure, x: float, y: float, text: str, **changes: Any) -> None:
    # A "$" in a class name is no formula.
    figure.text(x, y, text, va="center", fontsize=8.5, color=INK, parse_math=False, **changes)


def _paste(
    canvas: UInt8[numpy.ndarray, "height width 3"],
    group: ClassImages,
    left: int,
    top: int,
    tile: int,
) -> None:
    """Put the images of a class in a row, each pixel as a whole square."""
    for number, image in enumerate(group.pixels):
        zoom = tile // max(image.shape[:2])
        large = image.repeat(zoom, 0).repeat(zoom, 1)
        start = left + number * (tile + GAP)
        canvas[top : top + large.shape[0], start : start + large.shape[1]] = large


def _lay_under(figure: Figure, canvas: UInt8[numpy.ndarray, "height width 3"]) -> None:
    axes = figure.add_axes((0, 0, 1, 1), zorder=-1)
    axes.set_axis_off()
    axes.imshow(canvas, interpolation="nearest", aspect="auto")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def input_names(coreset: Pseudocoreset) -> list[str]:
    """What a table's inputs are called, without what could do harm where it is printed.

    Args:
        coreset: a coreset of a table
    """
    if not coreset.columns:
        return [f"input {place}" for place in range(coreset.input_shape[0])]
    names = []
    for column in coreset.columns:
        if column.kind == "number":
            names.append(column.name)
        else:
            names += [f"{column.name}={category}" for category in column.categories]
    return [printable(name) for name in names]


def raw_inputs(coreset: Pseudocoreset) -> Float[numpy.ndarray, "n f"]:
    """A table's inputs in their own units.

    Args:
        coreset: a coreset of a table
    """
    return coreset.scaling.invert(coreset.seen_inputs.detach().float()).cpu().numpy()


def raw_targets(coreset: Pseudocoreset) -> Float[numpy.ndarray, "n k"]:
    """The targets of a regression in their own units.

    Args:
        coreset: a coreset of a regression
    """
    targets = coreset.seen_targets.detach().float()
    scaling = coreset.target_scaling
    return (targets if scaling is None else scaling.invert(targets)).cpu().numpy()


def target_texts(coreset: Pseudocoreset) -> list[str]:
    """The target of each point that is seen, to be read: its class or its numbers.

    Args:
        coreset: the coreset
    """
    if not coreset.class_names:
        return [
            "; ".join(significant(value, 4) for value in row)
            for row in raw_targets(coreset).tolist()
        ]
    return [printable(coreset.class_names[label]) for label in coreset.classes.tolist()]


def table_caption(coreset: Pseudocoreset) -> str:
    """What a table's figure shows, in a sentence.

    Args:
        coreset: a coreset of a table
    """
    shown, total = min(MOST_ROWS, coreset.num_seen), coreset.num_seen
    which = f"All {total}" if shown == total else f"{shown} of the {total}"
    return (
        f"{which} points, one a row, with their targets. Colours are standard deviations from the "
        "mean of the training data."
    )


def table_figure(coreset: Pseudocoreset, like: Pseudocoreset | None = None) -> Figure:
    """The points of a table as a heat map: points in rows, inputs in columns.

    Args:
        coreset: a coreset of a table
        like: rows are in the order of this coreset's targets; default: of its own
    """
    names, texts = input_names(coreset), target_texts(coreset)[:MOST_ROWS]
    order = sorted(range(len(texts)), key=lambda place: _sort_key(like or coreset, place))
    values = coreset.seen_inputs.detach().float().cpu().numpy()[order]
    named = len(names) <= MOST_NAMED_INPUTS
    foot = 0.25 + (0.062 * max(len(_short(name)) for name in names) if named else 0.0)
    left = 0.4 + 0.075 * max(len(_short(text)) for text in texts)
    width = left + min(8.0, max(2.5, 0.22 * len(names))) + 0.9
    height = 0.2 + max(1.2, 0.18 * len(texts)) + foot
    figure = _new_figure(width, height)
    box = (
        left / width,
        foot / height,
        (width - left - 0.9) / width,
        (height - foot - 0.1) / height,
    )
    axes = figure.add_axes(box)
    drawn = axes.imshow(values, cmap="RdBu_r", vmin=-STRONGEST, vmax=STRONGEST, aspect="auto")
    style: dict[str, Any] = {"fontsize": 7.5, "color": INK, "parse_math": False}
    axes.set_yticks(range(len(texts)), [_short(texts[place]) for place in order], **style)
    axes.set_xticks(range(len(names)) if named else [])
    if named:
        axes.set_xticklabels([_short(name) for name in names], rotation=90, **style)
    axes.tick_params(length=0)
    bar = figure.add_axes((1 - 0.7 / width, box[1], 0.12 / width, box[3]))
    figure.colorbar(drawn, cax=bar)
    bar.tick_params(labelsize=7.5, colors=INK)
    return figure


def _sort_key(coreset: Pseudocoreset, place: int) -> float:
    """Points of one class together; numbers from low to high."""
    if coreset.class_names:
        return float(coreset.classes[place])
    return float(coreset.seen_targets[place, 0])


def _html_table(coreset: Pseudocoreset) -> str:
    """The first points of a table in their own units; everything that a file says is escaped."""
    names, values, texts = input_names(coreset), raw_inputs(coreset), target_texts(coreset)
    shown = names[:MOST_HTML_COLUMNS]
    more = "…" if len(names) > len(shown) else None
    head = "".join(f"<th>{escape(name)}</th>" for name in ["target", *shown, more] if name)
    rows = []
    for text, row in list(zip(texts, values, strict=True))[:MOST_HTML_ROWS]:
        numbers = [significant(value, 4) for value in row[: len(shown)].tolist()]
        cells = "".join(f"<td>{cell}</td>" for cell in [*numbers, more] if cell)
        rows.append(f"<tr><th>{escape(text)}</th>{cells}</tr>")
    left = len(texts) - len(rows)
    foot = f"<p>… and {left} more</p>" if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{foot}"
