"""Table 1 at a glance: the accuracy of every method and size, ours and the paper's."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure as Drawing

from pseudocoreset.report.style import INK, LINES, add_legend, dress, new_figure
from pseudocoreset.reproduce.cells import SIZES, TITLES, Scope
from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.tables import Found, paper_scores

PAPER, OURS, TUNED = "the paper's", "ours", "ours, tuned"
_MARKS: dict[str, dict[str, Any]] = {
    PAPER: {"marker": "D", "color": INK, "markerfacecolor": "none"},
    OURS: {"marker": "o", "color": LINES[0], "markerfacecolor": "none"},
    TUNED: {"marker": "o", "color": LINES[0]},
}


class Point(NamedTuple):
    """One mark of the chart."""

    ipc: int
    method: str
    kind: str
    accuracy: Figure


def points_of(found: Found, scope: Scope) -> list[Point]:
    """What the chart of these cells shows."""
    points: dict[Point, None] = {}  # the paper's figure is that of two cells where one is tuned
    for cell, measured in found.items():
        if cell.ipc is None:
            continue
        theirs = paper_scores(cell, scope)
        if theirs is not None:
            points[Point(cell.ipc, cell.method, PAPER, theirs.accuracy)] = None
        kind = TUNED if cell.recipe == "tuned" else OURS
        points[Point(cell.ipc, cell.method, kind, measured.score("accuracy"))] = None
    return list(points)


def accuracy_chart(points: list[Point]) -> Drawing:
    """One panel per size, one line per method: means with standard deviations."""
    methods = [name for name in TITLES if name in {point.method for point in points}]
    figure = new_figure(9.0, 0.8 + 0.3 * len(methods))
    height = figure.get_size_inches()[1]
    panels = figure.subplots(
        1,
        len(SIZES),
        sharey=True,
        gridspec_kw={
            "left": 0.125,
            "right": 0.99,
            "bottom": 0.42 / height,
            "top": 1 - 0.35 / height,
            "wspace": 0.06,
        },
    )
    for axes, ipc in zip(panels, SIZES, strict=True):
        dress(axes, x=f"accuracy %, {ipc} per class")
        axes.set_yticks(range(len(methods)), [TITLES[method] for method in methods])
        axes.set_ylim(len(methods) - 0.4, -0.6)
        for point in points:
            if point.ipc == ipc:
                (mean, std), line = point.accuracy, methods.index(point.method)
                axes.errorbar(mean, line, xerr=std, markersize=5, linewidth=1, **_MARKS[point.kind])
    for kind, mark in _MARKS.items():  # the legend has them all, whether drawn or not
        panels[0].plot([], [], markersize=5, linestyle="none", label=kind, **mark)
    add_legend(panels[0], ncols=3)
    return figure
