"""How figures look; they are drawn with matplotlib's objects, and no global state.

The page turns dark ink on white into light ink on its dark ground where a reader prefers that.
"""

import io
import warnings

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from PIL import Image

from pseudocoreset.coreset.pictures import GROUND as GROUND
from pseudocoreset.coreset.pictures import INK as INK

DOTS_PER_INCH = 200
FAINT = "#dfe3ea"
BAD = "#c4302b"
LINES = ("#2463c9", "#d2621a", "#1b8a5a", "#8a4fbf", "#b0357a", "#6d6a1e")

SHORTENED_FROM = 10_000
"""Ticks of an axis that reaches this number are shortened."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor=GROUND)
    FigureCanvasAgg(figure)
    return figure


def stack(figure: Figure, ratios: tuple[float, ...], head: float) -> list[Axes]:
    """Axes one above the other that share x, with room for labels, and `head` inches above them.

    Margins are fixed: a layout that measures every text takes as long as all the drawing.
    """
    width, height = figure.get_size_inches()
    sizes = figure.add_gridspec(
        len(ratios),
        1,
        height_ratios=ratios,
        left=0.62 / width,
        right=1 - 0.1 / width,
        bottom=0.44 / height,
        top=1 - head / height,
        hspace=0.14,
    )
    stacked: list[Axes] = []
    for place in range(len(ratios)):
        axes = figure.add_subplot(sizes[place], sharex=stacked[0] if stacked else None)
        axes.tick_params(labelbottom=place == len(ratios) - 1)
        stacked.append(axes)
    return stacked


def dress(axes: Axes, x: str = "", y: str = "") -> None:
    """Give axes their colours and labels."""
    axes.set_facecolor(GROUND)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.6)
    axes.tick_params(which="both", colors=INK, labelsize=8, width=0.6)
    axes.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_label_coords(-0.12, 0.5)
    axes.set_xlabel(x, color=INK, fontsize=9)
    axes.set_ylabel(y, color=INK, fontsize=9)


def shorten_ticks(axes: Axes) -> None:
    """Large numbers as 120k or 1.2M, which leave room for the labels."""
    for axis in (axes.xaxis, axes.yaxis):
        if max(map(abs, axis.get_view_interval())) >= SHORTENED_FROM:
            axis.set_major_formatter(EngFormatter(sep=""))


def add_legend(axes: Axes, ncols: int = 2) -> None:
    """A legend above the axes, where it hides nothing; none if there is nothing to name."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(
            frameon=False,
            fontsize=8,
            labelcolor=INK,
            ncols=ncols,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            borderaxespad=0.1,
            borderpad=0.1,
            handlelength=1.4,
            columnspacing=1.2,
        )


def png(figure: Figure, colours: int | None = 64) -> bytes:
    """The figure as a PNG file; the few colours of a chart make it a third as large."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A class name in a script that the font lacks is drawn as boxes; the page has it right.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="rgba", dpi=figure.dpi)
    width, height = figure.canvas.get_width_height()
    image = Image.frombytes("RGBA", (width, height), buffer.getvalue()).convert("RGB")
    if colours is not None:
        image = image.quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        # The ground comes back as almost white, which would show on a page.
        palette = image.getpalette() or []
        image.putpalette([255 if value >= 253 else value for value in palette])
    buffer = io.BytesIO()
    image.save(buffer, format="png")
    return buffer.getvalue()
