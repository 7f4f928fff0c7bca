"""The parts of README.md that follow from the results."""

import json
import re
from pathlib import Path
from statistics import mean

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.published import PUBLISHED
from pseudocoreset.reproduce.cells import FULL, SIZES, Cell, Scope
from pseudocoreset.reproduce.stored import measured_cells
from pseudocoreset.reproduce.summary import best_rows, method_rows
from pseudocoreset.reproduce.text_table import TextTable

METHODS = ("random", "bpc-fkl", "fbpc")
SCOPE = Scope(paper.DATA)
TABLE = "table1"


def readme_blocks(results: Path) -> dict[str, str]:
    """All tables and sentences by the name of their marks.

    Args:
        results: folder of the results
    """
    return {
        "shown": shown(results),
        "quickstart": quickstart_scores(results),
        TABLE: readme_table(results),
    }


def shown(results: Path) -> str:
    """What the first picture shows, and what its images are worth."""
    found = measured_cells(results, SCOPE, TABLE)
    cells = Cell(TABLE, "fbpc", 10, "tuned"), Cell(TABLE, "random", 10, None)
    fbpc, random = (f"{found[cell].score('accuracy').mean:.0f} %" for cell in cells)
    return (
        "*CIFAR-10 as 100 synthetic images instead of 50,000. Networks sampled given these\n"
        f"predict {fbpc} of the test images correctly; given 100 real images, {random}.*\n"
    )


def quickstart_scores(results: Path) -> str:
    """Accuracy of the coresets of `quickstart`, mean over seeds."""
    rows = json.loads((results / "quickstart.json").read_text(encoding="utf-8"))["rows"]
    of_size = [row for row in rows if row["ipc"] == 1]
    random, fbpc = (
        f"{100 * mean(row[f'{name}_accuracy'] for row in of_size):.0f} %"
        for name in ("random", "fbpc")
    )
    return (
        f"With 10 synthetic digits, {fbpc} of the test images are predicted correctly; with 10\n"
        f"real ones, {random} (mean of {len(of_size)} seeds).\n"
    )


def readme_table(results: Path) -> str:
    """Table 1 of CIFAR-10 in short."""
    rows = method_rows(measured_cells(results, SCOPE, TABLE), SCOPE, METHODS)
    table = TextTable(("", *map(str, SIZES)), [[*rows, vbpc(), *best_rows(results, SCOPE)]])
    whole = measured_cells(results, SCOPE, TABLE)[Cell(TABLE, FULL, None, None)]
    text = re.sub(r"\((\S+) / \S+\)", r"(\1)", table.markdown())
    return (
        "CIFAR-10, ConvNet: accuracy % / NLL by images per class (the paper's accuracy in "
        f"brackets).\n\n{text}\n"
        f"All 50,000 images: {whole.score('accuracy').mean:.1f} / {whole.score('nll').mean:.2f}.\n"
    )


def vbpc() -> tuple[str, ...]:
    """The published figures of VBPC."""
    (row,) = (each for each in PUBLISHED if each.name.startswith("VBPC"))
    figures = (row.at(ipc) for ipc in SIZES)
    return (row.title, *(f"{accuracy:.1f} / {nll:.2f}" for accuracy, nll in figures))
