"""The table of scores that the terminal shows."""

import re
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pseudocoreset.engine.text import printable
from pseudocoreset.report.run_report import RunReport
from pseudocoreset.report.scores import Cell, columns_for, score_rows

WITH_SPREAD = ("accuracy", "rmse", "nll")
"""Scores whose standard deviation fits into 80 columns."""
SHORT_TITLES = {"nll_kim": "NLL Kim", "coverage": "Coverage %"}


def scores_table(runs: Sequence[RunReport]) -> Table:
    """The scores, for a terminal of 80 columns.

    Args:
        runs: a row each
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("Coreset", overflow="fold", ratio=1)
    images = all(run.is_image for run in runs)
    table.add_column("Images" if images else "Points", justify="right", no_wrap=True)
    columns = columns_for(runs)
    for column in columns:
        title = SHORT_TITLES.get(column.key, column.title)
        table.add_column(Text(title), justify="right", min_width=5)
    for row in score_rows(runs):
        shown = [
            _cell_text(cell, spread=column.key in WITH_SPREAD)
            for cell, column in zip(row.cells, columns, strict=True)
        ]
        name = re.sub(r"(\d) (?:image|point)s? per class$", r"\1 per class", row.name)
        table.add_row(Text(printable(name)), row.points, *shown)
    return table


def print_scores(runs: Sequence[RunReport], console: Console | None = None) -> None:
    """Print the table of scores on stdout.

    Args:
        runs: a row each
        console: where to print instead
    """
    (console or Console()).print(scores_table(runs))


def _cell_text(cell: Cell, spread: bool) -> Text:
    text = Text(no_wrap=True).append(cell.mean, style="bold" if cell.best else "")
    if spread and cell.std:
        text.append(f" ±{cell.std}", style="dim")
    return text
