"""Goals for CIFAR-10 and whether they are met."""

from collections.abc import Sequence

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import SIZES, TITLES, Cell, Scope, cell_with
from pseudocoreset.reproduce.compare import only_one_meets
from pseudocoreset.reproduce.stored import Measured
from pseudocoreset.reproduce.tables import (
    UNKNOWN,
    Found,
    accuracies,
    by_paper,
    compared,
    in_order,
    short_scores,
    updates_unlike_recipe,
)
from pseudocoreset.reproduce.text_table import TextTable

FBPC = {1: (36.0, 3.4), 10: (63.0, 1.15), 50: (72.0, 0.95)}
"""At least this accuracy in per cent, and by both definitions at most this NLL."""
POINTS_BELOW = 2.0
"""A baseline may be so far below the paper's accuracy."""
BASELINES = ("random", "bpc-fkl")
ORDERED = (10, 50)
"""Where the methods should come in the paper's order; at 1, where the paper's own FBPC and BPC-fKL
are apart by less than its noise, it is only stated."""


def goals_table(found: Found, scope: Scope) -> TextTable | None:
    """Each goal, and whether it is met, by our protocol and by the paper's."""
    if scope != Scope(paper.DATA) or not found:
        return None
    scored = by_paper(found)
    rows = []
    for method in (*BASELINES, "fbpc"):
        for ipc in SIZES:
            recipe = None if method == "random" else "tuned"
            cell = cell_with("table1", method, ipc, recipe, scope.data)
            accuracy, nll = goal_of(cell)
            asked = f"{accuracy:.2f}" + (f" / {nll:.2f}" if nll is not None else "")
            both = [
                part
                for measured in (found.get(cell), scored.get(cell))
                for part in (_scores(measured), reached(measured, accuracy, nll))
            ]
            named = f", recipe `{cell.recipe}`" if cell.recipe else ""
            rows.append((f"{TITLES[method]}, {ipc} per class{named}", asked, *both))
    for ipc in SIZES:
        cells = compared("tuned", ipc, scope.data)
        words = ("met", "missed") if ipc in ORDERED else ("so", "not so")
        both = [part for one in (found, scored) for part in _order(cells, one, words)]
        order = " < ".join(TITLES[method] for method in paper.ORDER)
        asked = order if ipc in ORDERED else f"none (the paper's: {order})"
        name = f"order of the methods, {ipc} per class, recipe `tuned`"
        rows.append((name + _shortened(cells, found, scope.data), asked, *both))
    scores = "accuracy % / NLL / NLL of Kim et al."
    header = (
        "",
        "goal: accuracy % / NLL",
        f"ours: {scores}",
        "",
        f"with the paper's protocol: {scores}",
        "",
    )
    return TextTable(header, [rows])


def goal_of(cell: Cell) -> tuple[float, float | None]:
    """The least accuracy in per cent, and the largest NLL where there is a goal for it."""
    assert cell.ipc is not None  # there is no goal for the full data
    if cell.method == "fbpc":
        return FBPC[cell.ipc]
    return paper.TABLE1[cell.method, cell.ipc].accuracy.mean - POINTS_BELOW, None


def reached(measured: Measured | None, accuracy: float, nll: float | None) -> str:
    """`met`, or by how much and in what not."""
    if measured is None:
        return UNKNOWN
    short = []
    below = accuracy - measured.score("accuracy").mean
    if below > 0:
        short.append(f"accuracy {below:.2f} short")
    if nll is not None:
        only_one = only_one_meets(measured, nll)
        if only_one:
            short.append(only_one)
        elif measured.score("nll").mean > nll:
            short.append("NLL missed")
    return "; ".join(short) or "met"


def _order(cells: Sequence[Cell], found: Found, words: tuple[str, str]) -> tuple[str, str]:
    """The accuracies in the paper's order, and in words whether it is theirs or not."""
    if any(cell not in found for cell in cells):
        return UNKNOWN, UNKNOWN
    means = accuracies(cells, found)
    figures = ", ".join(f"{means[method]:.1f}" for method in paper.ORDER)
    return figures, words[0 if in_order(means) else 1]


def _shortened(cells: Sequence[Cell], found: Found, data: str) -> str:
    """Which of the methods had other updates than their recipe has."""
    methods: dict[str, list[str]] = {}
    for cell in cells:
        updates = updates_unlike_recipe(found[cell], data) if cell in found else ""
        if updates:
            methods.setdefault(updates, []).append(TITLES[cell.method])
    return "".join(f", {' and '.join(names)} with {updates}" for updates, names in methods.items())


def _scores(measured: Measured | None) -> str:
    return UNKNOWN if measured is None else short_scores(measured)
