"""The plot, and a picture of stored images and what networks see of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from jaxtyping import UInt8
from torch import Tensor

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.reproduce.beyond.stored import found_cells
from pseudocoreset.reproduce.cells import SIZES, Scope
from pseudocoreset.reproduce.pictures import CORESET, POINTS, shown_by, store_picture
from pseudocoreset.reproduce.shipped import shipped_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 4
"""Stored images that a picture shows, each of another class."""
SHOWN = 8
"""Images of each that it shows as networks see them."""


def plot_path(out: Path, scope: Scope) -> Path:
    """Where the plot is."""
    return out / "pictures" / f"{scope.label}-beyond.png"


def mosaic_path(out: Path, scope: Scope, ipc: int) -> Path:
    """Where the picture of a best coreset is."""
    return out / "pictures" / f"{scope.label}-best-ipc{ipc}.png"


def draw_beyond(out: Path, scope: Scope) -> Iterator[str]:
    """Draw missing or outdated pictures and yield a line about each.

    Coresets of one size have no plot: a table says as much.
    """
    from pseudocoreset.reproduce.beyond.plot import points_of, storage_plot

    points = points_of(found_cells(out, scope), scope)
    plot, shows = plot_path(out, scope), json.dumps(points)
    if len({point.ipc for point in points}) > 1 and shown_by(plot, POINTS) != shows:
        store_picture(storage_plot(points), plot, {POINTS: shows})
        yield f"{plot}: drawn"
    for ipc in SIZES:
        stored = shipped_path(out, scope, "best", ipc)
        if scope.holdout or not stored.exists():
            continue
        coreset, picture = Pseudocoreset.load(stored), mosaic_path(out, scope, ipc)
        if coreset.form.seen > 1 and shown_by(picture, CORESET) != coreset.fingerprint:
            store_picture(mosaic_figure(coreset), picture, {CORESET: coreset.fingerprint})
            yield f"{picture}: drawn"


def mosaic_figure(coreset: Pseudocoreset) -> "Figure":
    """Some stored images, and beside each what networks see of it."""
    from pseudocoreset.report.style import INK, new_figure

    each, seen = coreset.ipc, coreset.form.seen
    places = [label * each for label in range(min(ROWS, len(coreset.class_names)))]
    stored, decoded = (_pixels(coreset, part) for part in (coreset.inputs, coreset.seen_inputs))
    columns = min(seen, SHOWN)
    width, height = 0.72 * (columns + 1) + 1.3, 0.74 * len(places) + 0.35
    figure = new_figure(width, height)
    grid = figure.add_gridspec(
        len(places),
        columns + 2,
        left=0.85 / width,
        right=1 - 0.03 / width,
        top=1 - 0.3 / height,
        bottom=0.03 / height,
        wspace=0.06,
        hspace=0.06,
        width_ratios=[1.0, 0.35, *[1.0] * columns],
    )
    for row, place in enumerate(places):
        shown = [(0, stored[place])]
        shown += [(2 + number, decoded[place * seen + number]) for number in range(columns)]
        for column, image in shown:
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(image, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            if column == 0:
                name = coreset.class_names[_class_of(coreset, place)]
                label = axes.set_ylabel(name, rotation=0, ha="right", va="center", color=INK)
                label.set_parse_math(False)
                label.set_fontsize(8)
    some = "" if columns == seen else f", {columns} of {seen} shown"
    words = f"Left: stored ({coreset.form}). Right: as networks see it{some}."
    figure.text(0.01, 0.995, words, va="top", fontsize=8, color=INK)
    return figure


def _class_of(coreset: Pseudocoreset, place: int) -> int:
    """The class of most images in a stored one; learned labels may be of several."""
    seen = coreset.form.seen
    return int(coreset.classes[place * seen : (place + 1) * seen].mode().values)


def _pixels(coreset: Pseudocoreset, inputs: Tensor) -> UInt8[numpy.ndarray, "n h w 3"]:
    images = coreset.scaling.invert(inputs.detach().float()).cpu().numpy()
    if images.shape[1] != 3:
        images = images[:, :1].repeat(3, axis=1)
    return numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
