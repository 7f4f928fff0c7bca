"""A figure: fidelity against accuracy, of coresets and of real images."""

import json
from collections.abc import Iterator
from pathlib import Path

from pseudocoreset.reproduce.cells import FIDELITY_METHODS, FULL, Scope
from pseudocoreset.reproduce.fidelity.measure import fidelity_found
from pseudocoreset.reproduce.fidelity.show import (
    TITLES,
    fidelity_scopes,
    of_protocol,
    same_accuracy,
)
from pseudocoreset.reproduce.pictures import POINTS, shown_by, store_picture

PROTOCOL = "bayes"
"""The figure shows the posteriors at temperature 1."""
LABELS = ("agreement less real images'", "variance ratio")
_SIDES = {True: "center", False: "left"}
"""Real images are named below their line, the others above their points."""
Point = tuple[str, float, float, float]
"""Images per class, accuracy, agreement less that of real images of the same accuracy, and the
variance ratio."""


def fidelity_points(out: Path, scope: Scope) -> dict[str, list[Point]]:
    """What is drawn, by method; real images are `random`, and end with all training images.

    Args:
        out: folder of the results
        scope: what it was measured on
    """
    cells = of_protocol(fidelity_found(out, scope), PROTOCOL)
    found: dict[str, list[Point]] = {}
    for cell, content in cells.items():
        apart, accuracy = content["distances"], content["own"]["accuracy"]
        real = same_accuracy(accuracy, cells)
        if real is not None and apart["variance_ratio"] is not None:
            name = "random" if cell.method == FULL else cell.method
            more = apart["agreement"] - real["agreement"]
            point = (str(cell.ipc or FULL), accuracy, more, apart["variance_ratio"])
            found.setdefault(name, []).append(point)
    return {name: sorted(points, key=lambda point: point[1]) for name, points in found.items()}


def picture_of(out: Path, scope: Scope) -> Path:
    """Where the figure of a data set is.

    Args:
        out: folder of the results
        scope: what it was measured on
    """
    return out / "pictures" / f"{scope.label}-fidelity.png"


def draw_fidelity(out: Path) -> Iterator[str]:
    """Draw the figure of each data set if it differs from what is drawn.

    Args:
        out: folder of the results
    """
    for scope in fidelity_scopes(out):
        points, picture = fidelity_points(out, scope), picture_of(out, scope)
        shows = json.dumps(points)
        if not points or shown_by(picture, POINTS) == shows:
            continue
        from matplotlib.ticker import PercentFormatter

        from pseudocoreset.report.style import INK, LINES, add_legend, dress, new_figure

        figure = new_figure(7.6, 3.6)
        axes = figure.subplots(1, len(LABELS))
        figure.subplots_adjust(left=0.08, right=0.99, bottom=0.13, top=0.87, wspace=0.22)
        looks = {"random": INK, **dict(zip(FIDELITY_METHODS, LINES, strict=False))}
        for place, (one, words) in enumerate(zip(axes, LABELS, strict=True)):
            dress(one, x="accuracy", y=words)
            for name, colour in looks.items():
                if name not in points:
                    continue
                texts, accuracies, *distances = zip(*points[name], strict=True)
                line = "o-" if name == "random" else "o"
                title = TITLES.get(name, name).replace("`", "")
                one.plot(
                    accuracies, distances[place], line, color=colour, markersize=4, label=title
                )
                for text, *at in zip(texts, accuracies, distances[place], strict=True):
                    below = name == "random" and text != FULL
                    beside = {"xytext": (-1, -10) if below else (3, 4), "ha": _SIDES[below]}
                    one.annotate(
                        text, at, color=colour, fontsize=7, textcoords="offset points", **beside
                    )
        axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes[1].axhline(1, color=INK, linewidth=0.6, linestyle=":")
        for one in axes:
            one.margins(x=0.12)
            one.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        add_legend(axes[0], ncols=len(looks))
        store_picture(figure, picture, {POINTS: shows})
        yield f"{picture}: drawn"
