"""The summary of the results page: accuracy and NLL by data set, method and size."""

from collections.abc import Iterable
from pathlib import Path

from pseudocoreset.reproduce.beyond.stored import found_cells
from pseudocoreset.reproduce.beyond.tables import pair
from pseudocoreset.reproduce.cells import (
    BEYOND,
    DATA_TITLES,
    FULL,
    SIZES,
    TABLE2,
    TITLES,
    Cell,
    Scope,
)
from pseudocoreset.reproduce.stored import Measured, measured_cells
from pseudocoreset.reproduce.tables import UNKNOWN, Found, by_paper, paper_scores
from pseudocoreset.reproduce.text_table import TextTable

BEST = {"chain": "`best`, one chain", "pooled": "`best`, chains pooled"}
RECIPES = ("tuned", "paper", None)
"""The first of these that is measured is shown; random images have no recipe."""
Row = tuple[str, ...]
_ABOVE = """\
Accuracy % / NLL (negative log-likelihood, lower is better) on the test images, by stored images per
class. The paper's figures are in brackets. `best` is our best coreset of a size.
"""
_BELOW = """\
Each score is the mean over chains of SGHMC on one coreset, with the recipe `tuned` if there is one.
`best` stores several small images in the space of one, with soft labels.
"""


def summary(out: Path, scopes: Iterable[Scope]) -> str:
    """The table, and below it the scores of all training images."""
    groups, full = [], []
    for scope in scopes:
        if scope != Scope(scope.data):  # held-out or resized images
            continue
        title = DATA_TITLES.get(scope.data, scope.data)
        found = table_cells(out, scope)
        rows = [*method_rows(found, scope), *best_rows(out, scope)]
        groups.append([(title, *row) for row in rows])
        everything = found.get(Cell("table1", FULL, None, None))
        if everything is not None:
            full.append(f"All training images of {title} give {_scores(everything)}.\n")
    table = TextTable(("data", "method", *(f"{ipc} per class" for ipc in SIZES)), groups)
    if not any(groups):
        return ""
    return "\n".join([_ABOVE, table.markdown(), *full, _BELOW])


def table_cells(out: Path, scope: Scope) -> Found:
    """The cells of Table 1 or 2, whichever has this data."""
    return measured_cells(out, scope, "table1") or measured_cells(out, scope, TABLE2)


def method_rows(found: Found, scope: Scope, methods: Iterable[str] = TITLES) -> list[Row]:
    """One row per method that was measured, and FBPC with the paper's protocol."""
    table = next((cell.table for cell in found), "")
    rows = []
    for method in methods:
        cells = [_measured(found, table, method, ipc) for ipc in SIZES]
        if any(cell in found for cell in cells):
            rows.append((TITLES[method], *(short(cell, found, scope) for cell in cells)))
            if method == "fbpc":
                again = by_paper(found)
                scores = (short(cell, again, scope) for cell in cells)
                rows.append((f"{TITLES[method]}, protocol `paper`", *scores))
    return rows


def _measured(found: Found, table: str, method: str, ipc: int) -> Cell:
    cells = [Cell(table, method, ipc, recipe) for recipe in RECIPES]
    return next((cell for cell in cells if cell in found), cells[1])


def best_rows(out: Path, scope: Scope) -> list[Row]:
    """The best coresets for their size; none if they were not measured."""
    beyond = found_cells(out, scope)
    cells = [Cell(BEYOND, "best", ipc, None) for ipc in SIZES]
    if any(cell in beyond for cell in cells):
        return [
            (title, *(pair(beyond.get(c), way, spread=False) for c in cells))
            for way, title in BEST.items()
        ]
    found = measured_cells(out, scope, TABLE2)
    best = [found.get(Cell(TABLE2, "fbpc-isotropic", ipc, "best")) for ipc in SIZES]
    if not any(best):
        return []
    return [(BEST["chain"], *map(_scores, best)), (BEST["pooled"], *map(_pooled, best))]


def short(cell: Cell, found: Found, scope: Scope) -> str:
    """Accuracy / NLL, with the paper's in brackets."""
    ours, theirs = _scores(found.get(cell)), paper_scores(cell, scope)
    if theirs is None:
        return ours
    return f"{ours} ({theirs.accuracy.mean:.1f} / {theirs.nll.mean:.2f})"


def _scores(measured: Measured | None) -> str:
    if measured is None:
        return UNKNOWN
    return f"{measured.score('accuracy').mean:.1f} / {measured.score('nll').mean:.2f}"


def _pooled(measured: Measured | None) -> str:
    pooled = measured and measured.content.get("pooled")
    return f"{100 * pooled['accuracy']:.1f} / {pooled['nll']:.2f}" if pooled else UNKNOWN
