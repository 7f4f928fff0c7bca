"""Tables and curves of the trials."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

from pseudocoreset.reproduce.exact.measure import METHODS, PARTS, stored
from pseudocoreset.reproduce.exact.problems import PROBLEMS, TITLES
from pseudocoreset.reproduce.pictures import POINTS, shown_by, store_picture
from pseudocoreset.reproduce.text_table import TextTable, folded

WAYS = {"forward": "KL[data ‖ coreset]", "reverse": "KL[coreset ‖ data]"}
SHORT = {
    "mean": "Gaussian mean",
    "linear": "linear regression",
    "logistic": "logistic regression",
}
LOWEST_SHOWN = 1e-4
"""Smaller distances are drawn here."""
Curves = dict[str, dict[str, dict[str, list[list[float]]]]]
"""By problem, way and method: rows of points, and quartiles over trials."""


def curves_of(out: Path) -> Curves:
    """Median and quartiles over trials of each distance.

    Args:
        out: folder of the results
    """
    found: Curves = {}
    for name in PROBLEMS:
        trials = stored(out, name)["trials"]
        if trials:
            found[name] = {way: _of_way(trials, way) for way in (*WAYS, "mmd")}
    return found


def _of_way(trials: list[dict[str, Any]], way: str) -> dict[str, list[list[float]]]:
    curves: dict[str, list[list[float]]] = {}
    for method in {**METHODS, **PARTS}:
        for size in trials[0]["distances"]:
            found = _with(trials, size, method)
            values = [each[way] for each in found if way in each]
            if found and len(values) == len(found):
                row = [float(size), *_quartiles(values)]
                curves.setdefault(method, []).append(row)
    return curves


def _with(trials: list[dict[str, Any]], size: str, method: str) -> list[dict[str, Any]]:
    """What was measured of a method at a size; some trials may lack it."""
    found = [each["distances"][size] for each in trials]
    return [of_size[method] for of_size in found if method in of_size]


def _quartiles(values: list[float]) -> list[float]:
    return quantiles(values, method="inclusive") if len(values) > 1 else values * 3


def exact_table(out: Path) -> TextTable:
    """Medians over trials, in both directions; for logistic regression MMD and R̂ too.

    Args:
        out: folder of the results
    """
    groups = []
    for name, ways in curves_of(out).items():
        trials = stored(out, name)["trials"]
        title = TITLES[name].format(n=trials[0]["n"])
        rows = []
        for place, (size, *_) in enumerate(ways["forward"]["random"]):
            for method, words in METHODS.items():
                found = _with(trials, f"{size:.0f}", method)
                if not found:
                    continue
                cells = [f"{ways[way][method][place][2]:.3g}" if ways[way] else "–" for way in ways]
                worst = [each["r_hat"] for each in found if "r_hat" in each]
                cells.append(f"{max(worst):.2f}" if worst else "–")
                rows.append((f"{title}, {len(found)} trials", f"{size:.0f}", words, *cells))
        groups.append(rows)
    return TextTable(("model", "points", "method", *WAYS.values(), "MMD²", "worst R̂"), groups)


def exact_page(out: Path) -> str:
    """One table per model for the docs: methods in rows, numbers of points in columns.

    Args:
        out: folder of the results
    """
    parts = []
    for name, ways in curves_of(out).items():
        trials = stored(out, name)["trials"]
        sizes = [f"{size:.0f}" for size, *_ in ways["forward"]["random"]]
        header = ("method", *(f"{size} points" if size != "1" else "1 point" for size in sizes))
        rows, more = [], []
        for method, title in METHODS.items():
            words = title
            found = [_with(trials, size, method) for size in sizes]
            if not any(found):
                continue
            forward, reverse, mmd = (_medians(ways[way], method) for way in (*WAYS, "mmd"))
            cells = [
                f"{forward[size]:.3g} / {reverse[size]:.3g}" if each else "–"
                for size, each in zip(sizes, found, strict=True)
            ]
            fewest = min(map(len, found))
            if fewest < len(trials):
                words += f" ({fewest} of {len(trials)} trials)"
            rows.append((words, *cells))
            if mmd:
                worst = [max((each["r_hat"] for each in of_size), default=0) for of_size in found]
                pairs = zip(sizes, worst, strict=True)
                cells = [f"{mmd[n]:.3g} ({r:.2f})" if n in mmd else "–" for n, r in pairs]
                more.append((words, *cells))
        model = TITLES[name].format(n=trials[0]["n"])
        counted = f"{len(trials)} trials" if len(trials) != 1 else "one trial"
        parts.append(f"**{model[0].upper()}{model[1:]}** ({counted})\n")
        parts.append(TextTable(header, [rows]).markdown())
        if more:
            table = TextTable(header, [more]).markdown()
            parts.append(folded("MMD², and in brackets the largest R̂ over trials", table))
    return "\n".join(parts)


def _medians(curves: dict[str, list[list[float]]], method: str) -> dict[str, float]:
    """The medians of a method by the number of points."""
    return {f"{size:.0f}": middle for size, _, middle, _ in curves.get(method, [])}


def parts_table(out: Path) -> TextTable:
    """Logistic regression: FBPC with some parts exact; medians of both directions by size.

    Args:
        out: folder of the results
    """
    ways = curves_of(out).get("logistic", {"forward": {}, "reverse": {}})
    sizes = [f"{row[0]:.0f}" for row in ways["forward"].get("random", [])]
    titles = {name: METHODS[name] for name in ("random", "fbpc", "fbpc-moments", "fbpc-samples")}
    order = {"random": "", "fbpc": "", **PARTS, "fbpc-moments": "", "fbpc-samples": ""}
    rows = []
    for method in order:
        if method in ways["forward"]:
            pairs = zip(*(ways[way][method] for way in WAYS), strict=True)
            cells = [f"{forward[2]:.3g} / {reverse[2]:.3g}" for forward, reverse in pairs]
            rows.append(({**titles, **PARTS}[method], *cells))
    return TextTable(("method", *(f"{size} points" for size in sizes)), [rows])


def exact_picture(out: Path) -> Path:
    """Where the curves are.

    Args:
        out: folder of the results
    """
    return out / "pictures" / "exact.png"


def draw_exact(out: Path) -> Iterator[str]:
    """Draw the curves if they differ from those that are drawn.

    Args:
        out: folder of the results
    """
    curves, picture = curves_of(out), exact_picture(out)
    shows = json.dumps(curves)
    if not curves or shown_by(picture, POINTS) == shows:
        return
    from pseudocoreset.report.style import INK, LINES, dress, new_figure

    figure = new_figure(3.2 * len(curves) + 0.4, 5.6)
    axes = figure.subplots(len(WAYS), len(curves), squeeze=False)
    figure.subplots_adjust(left=0.075, right=0.99, bottom=0.09, top=0.86, wspace=0.25, hspace=0.25)
    for column, (name, ways) in enumerate(curves.items()):
        for row, (way, words) in enumerate(WAYS.items()):
            place = axes[row][column]
            last = row == len(WAYS) - 1
            dress(place, x="points" if last else "", y=words if column == 0 else "")
            if row == 0:
                place.set_title(SHORT[name], fontsize=10, color=INK)
            place.yaxis.set_label_coords(-0.17, 0.5)
            for colour, method in zip(LINES, METHODS, strict=True):
                if method not in ways[way]:
                    continue
                sizes, *bands = zip(*ways[way][method], strict=True)
                low, middle, high = ([max(v, LOWEST_SHOWN) for v in band] for band in bands)
                place.plot(sizes, middle, "o-", color=colour, markersize=3, label=METHODS[method])
                place.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
            place.set_xscale("log")
            place.set_yscale("log")
    lines = axes[0][0].get_lines()
    figure.legend(handles=lines, loc="upper center", ncols=3, frameon=False, fontsize=8.5)
    store_picture(figure, picture, {POINTS: shows})
    yield f"{picture}: drawn"
