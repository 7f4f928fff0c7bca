"""Plot accuracy and NLL against stored numbers, with published figures."""

from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from pseudocoreset.report.style import INK, LINES, add_legend, dress, new_figure
from pseudocoreset.reproduce.beyond.kinds import kinds
from pseudocoreset.reproduce.beyond.published import OTHER, PUBLISHED
from pseudocoreset.reproduce.beyond.stored import Found
from pseudocoreset.reproduce.cells import BEYOND, SIZES, Cell, Scope
from pseudocoreset.reproduce.paper import DATA

PIXELS = 10 * 3 * 32 * 32
"""Numbers of one CIFAR-10 image a class."""
OURS = {
    "ours, ten chains pooled": ("best", "pooled"),
    "ours, one chain": ("best", "chain"),
    "ours, one network": ("best", "single"),
}
CONTROLS = "ours, controls, chains pooled"
POSTERIORS, NETWORKS, OTHERS = (
    "published, by a posterior",
    "published, one network",
    "published, not stored as images",
)
_MARKS: dict[str, dict[str, Any]] = {
    "ours, ten chains pooled": {"marker": "o", "color": LINES[0], "linewidth": 1.4},
    "ours, one chain": {"marker": "s", "color": LINES[0], "linewidth": 0.9, "linestyle": "--"},
    "ours, one network": {"marker": "^", "color": LINES[0], "linewidth": 0.9, "linestyle": ":"},
    CONTROLS: {"marker": "x", "color": LINES[2], "linestyle": "none"},
    POSTERIORS: {"marker": "D", "color": LINES[1], "linestyle": "none"},
    NETWORKS: {"marker": ".", "color": INK, "linestyle": "none", "alpha": 0.55},
    OTHERS: {"marker": "+", "color": INK, "linestyle": "none", "alpha": 0.7},
}
NAMED = (CONTROLS, POSTERIORS)
"""Points that have their names beside them; a table has those of the others."""
LETTERS, LINE = 7.0, 8.6
"""Size of the names, and of their lines, in points."""


class Point(NamedTuple):
    """One mark of the plot."""

    kind: str
    name: str
    ipc: int
    numbers: float
    accuracy: float
    nll: float | None


def points_of(found: Found, scope: Scope) -> list[Point]:
    """What the plot shows; nothing where no cell was measured."""
    ours = [
        point
        for label, (name, way) in OURS.items()
        for point in _measured(found, label, name, way, label)
    ]
    for name, control in kinds(scope.data, SIZES[0]).items():
        if not name.startswith("best"):
            title = control.title.removeprefix("random images as ").replace(" of quality 25", "")
            ours += _measured(found, CONTROLS, name, "pooled", title.replace("pixels, ", ""))
    if not ours or scope != Scope(DATA):
        return ours
    theirs = []
    for each in PUBLISHED:
        kind = POSTERIORS if each.posterior else OTHERS if each.stores == OTHER else NETWORKS
        name = each.name.partition(" (its")[0] + ("†" if each.remembered else "")
        theirs += [Point(kind, name, s, float(PIXELS * s), *each.at(s)) for s in SIZES]
    return [*theirs, *ours]


def _measured(found: Found, kind: str, name: str, way: str, label: str) -> list[Point]:
    points = []
    for ipc in SIZES:
        cell = found.get(Cell(BEYOND, name, ipc, None))
        if cell is None:
            continue
        accuracy, nll = (cell.score(score, way) for score in ("accuracy", "nll"))
        numbers = cell.storage("numbers") or cell.storage("bytes")  # a byte of a JPEG is a number
        if accuracy is not None and nll is not None and numbers is not None:
            points.append(Point(kind, label, ipc, numbers, accuracy.mean, nll.mean))
    return points


def storage_plot(points: list[Point]) -> Drawing:
    """Two panels: accuracy of all, and the NLL of what has a posterior."""
    figure = new_figure(7.6, 8.6)
    upper, lower = figure.subplots(
        2,
        1,
        gridspec_kw={
            "left": 0.08,
            "right": 0.99,
            "bottom": 0.05,
            "top": 0.925,
            "hspace": 0.13,
            "height_ratios": (3, 2),
        },
    )
    scored = [point for point in points if point.nll is not None]
    for axes, y, shown in ((upper, "accuracy %", points), (lower, "NLL", scored)):
        dress(axes, x="stored numbers", y=y)
        axes.yaxis.set_label_coords(-0.06, 0.5)
        axes.set_xscale("log")
        numbers = [point.numbers for point in shown]
        axes.set_xlim(min(numbers) / 1.3, max(numbers) * 5)  # room for names
        for kind, mark in _MARKS.items():
            of_kind = sorted((p for p in shown if p.kind == kind), key=lambda p: p.numbers)
            places = [[p.numbers, _height(p, axes is upper)] for p in of_kind]
            x, heights = zip(*places, strict=True) if places else ((), ())
            axes.plot(x, heights, label=kind, markersize=4.5, **mark)
    lower.set_yscale("log")
    lower.set_yticks([0.6, 0.8, 1, 1.5, 2, 3, 4], ["0.6", "0.8", "1", "1.5", "2", "3", "4"])
    lower.minorticks_off()
    lowest, highest = upper.get_ylim()
    upper.set_ylim(lowest, 1.1 * highest - 0.1 * lowest)  # room for names, by limits that stay
    lower.set_ylim(*lower.get_ylim())
    for axes, shown in ((upper, points), (lower, scored)):
        for ipc in SIZES:
            of_size = [p for p in shown if p.ipc == ipc and p.kind in NAMED]
            _name_all(axes, of_size, axes is upper)
    add_legend(upper, ncols=3)
    return figure


def _height(point: Point, accuracy: bool) -> float:
    if accuracy:
        return point.accuracy
    assert point.nll is not None
    return point.nll


def _name_all(axes: Axes, points: list[Point], accuracy: bool) -> None:
    """Names in a column to the right of the points of a size, none over another."""
    if not points:
        return
    rows = sorted(points, key=lambda point: _height(point, accuracy))
    to_pixels = axes.transData.transform
    heights = [float(to_pixels((p.numbers, _height(p, accuracy)))[1]) for p in rows]
    gap = LINE * axes.figure.dpi / 72
    right = max(point.numbers for point in rows) * 1.15
    for point, height in zip(rows, spread(heights, gap, axes.bbox.ymax), strict=True):
        y = float(axes.transData.inverted().transform((0.0, height))[1])
        axes.annotate(
            point.name,
            (point.numbers, _height(point, accuracy)),
            xytext=(right, y),
            fontsize=LETTERS,
            color=_MARKS[point.kind]["color"],
            va="center",
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": INK,
                "linewidth": 0.25,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0.0, 0.5),
            },
        )


def spread(heights: list[float], gap: float, highest: float) -> list[float]:
    """The heights nearest to these, in their order, of which no two are closer than the gap.

    Without the gaps that lie below, these are the nearest heights that do not fall: neighbours that
    would fall are given their mean, again and again.

    Args:
        heights: from low to high
        gap: the least distance
        highest: none is higher
    """
    blocks: list[list[float]] = []
    for place, height in enumerate(heights):
        blocks.append([height - place * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) >= fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    most = highest - (len(heights) - 1) * gap
    means = [min(fmean(block), most) for block in blocks for _ in block]
    return [mean + place * gap for place, mean in enumerate(means)]
