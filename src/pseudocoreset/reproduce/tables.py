"""The paper's tables with our measured figures and the paper's."""

from collections.abc import Iterable, Mapping
from typing import Any

from pseudocoreset.engine.bars import clock
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import (
    FULL,
    SIZES,
    TITLES,
    WITH_AND_WITHOUT,
    Cell,
    Scope,
    cell_with,
    cells_of,
)
from pseudocoreset.reproduce.compare import accuracy_difference, nll_difference, verdict
from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.settings import EXPERT_LR
from pseudocoreset.reproduce.stored import Measured, other_than_recipe
from pseudocoreset.reproduce.text_table import TextTable

UNKNOWN = "–"
MADE_WITH = "made with"
IPC = "images per class"
HEADER = (
    IPC,
    "method",
    "recipe",
    "accuracy %",
    "paper, accuracy %",
    "accuracy compared",
    "NLL",
    "NLL of Kim et al.",
    "paper, NLL",
    "NLL compared",
    "ECE",
    "Brier",
    MADE_WITH,
)
"""The columns of Table 1."""
Found = Mapping[Cell, Measured]
"""The cells that were measured."""


def shown(figure: Figure, digits: int = 2) -> str:
    """A mean and its standard deviation, where it has one."""
    spread = "" if figure.std is None else f" ± {figure.std:.{digits}f}"
    return f"{figure.mean:.{digits}f}{spread}"


def rows_of(table: str, found: Found, scope: Scope) -> list[Cell]:
    """The cells that a table has rows for: the paper's recipe always, another where measured."""
    return list(dict.fromkeys([*cells_of(table, "paper", scope.data), *found]))


def table1(found: Found, scope: Scope, *, missing: bool = True) -> TextTable:
    """Table 1: one row per cell, by images per class, including missing cells of the paper."""
    cells = rows_of("table1", found, scope) if missing else list(found)
    methods = list(TITLES)
    cells.sort(key=lambda cell: methods.index(cell.method))
    groups = [
        [_table1_row(cell, found.get(cell), scope) for cell in cells if cell.ipc == ipc]
        for ipc in (*SIZES, None)
    ]
    return TextTable(HEADER, [group for group in groups if group])


def by_paper(found: Found) -> dict[Cell, Measured]:
    """The same cells as scored with the paper's protocol, without those where it diverges."""
    again = {cell: measured.by_paper for cell, measured in found.items()}
    return {cell: measured for cell, measured in again.items() if measured is not None}


def paper_scores(cell: Cell, scope: Scope) -> paper.Scores | None:
    """What the paper prints for a cell of the ConvNet; nothing for images held out or resized."""
    if scope != Scope(scope.data) or cell.ipc is None:
        return None
    if cell.recipe == "best":  # our own
        return None
    if scope.data == paper.DATA:
        return paper.TABLE1.get((cell.method, cell.ipc))
    return paper.TABLE2.get((scope.data, cell.method, cell.ipc))


def _table1_row(cell: Cell, measured: Measured | None, scope: Scope) -> tuple[str, ...]:
    theirs = paper_scores(cell, scope)
    start = (str(cell.ipc or "all"), TITLES[cell.method], cell.recipe or UNKNOWN)
    no = UNKNOWN
    printed = (no, no) if theirs is None else (shown(theirs.accuracy), shown(theirs.nll))
    if measured is None:
        empty = (no, printed[0], no, no, no, printed[1], no, no, no)
        return (*start, *empty, "not measured")
    differences = (no, no)
    if theirs is not None:
        differences = (
            accuracy_difference(measured, theirs.accuracy),
            nll_difference(measured, theirs.nll),
        )
    accuracy, nll, kim = (shown(measured.score(name)) for name in ("accuracy", "nll", "nll_kim"))
    ece, brier = (shown(measured.score(name), 3) for name in ("ece", "brier"))
    ours = (accuracy, printed[0], differences[0], nll, kim, printed[1], differences[1], ece, brier)
    return (*start, *ours, made_with(measured, scope.data))


def made_with(measured: Measured, data: str) -> str:
    """Experts, updates, settings unlike the recipe's, seeds and time of a cell, in a few words."""
    content = measured.content
    parts = []
    if content["experts"] is not None:
        parts.append(experts_words(content["experts"]))
        if not updates_unlike_recipe(measured, data):
            parts.append(f"{content['coreset']['config']['steps']:,} updates")
        parts += unlike_recipe(measured, data)
        form = content["coreset"]["config"].get("form", "pixels")
        parts += [] if form == "pixels" else [f"form {form}"]
    elif measured.cell.method == FULL:
        parts.append(f"{content['protocol']['epochs']} epochs of SGHMC")
    elif measured.cell.recipe is not None:
        parts += ["the shipped coreset", *unlike_recipe(measured, data)]
    else:
        parts.append("new images each seed")
    parts.append(counted(measured.seeds, "seed"))
    parts.append(time_words(measured))
    return ", ".join(parts)


def time_words(measured: Measured) -> str:
    """How long a cell took, without its experts."""
    at_least = "" if measured.content["duration"]["whole"] else "at least "
    return at_least + clock(measured.seconds)


def unlike_recipe(measured: Measured, data: str) -> list[str]:
    """In what a cell is not as its recipe of today would make it."""
    others = other_than_recipe(measured, data)
    others.pop("steps", None)
    updates = updates_unlike_recipe(measured, data)
    words = [updates] if updates else []
    return words + [f"{name} {was} (now {now})" for name, (was, now) in others.items()]


def updates_unlike_recipe(measured: Measured, data: str) -> str:
    """How many updates of its recipe's a cell had, where that is not all; else nothing."""
    updates = other_than_recipe(measured, data).get("steps")
    return "" if updates is None else "{:,} of {:,} updates".format(*updates)


def counted(number: int, what: str) -> str:
    """A number with a noun, such as 3 seeds."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def order_sentences(found: Found, scope: Scope) -> list[str]:
    """Whether the methods come in the paper's order of accuracy, once a recipe and a size."""
    sentences = []
    for recipe in RECIPES:
        for ipc in SIZES:
            cells = compared(recipe, ipc, scope.data)
            differs = any(cell.recipe == recipe for cell in cells)
            if not differs or not all(cell in found for cell in cells):
                continue
            means = accuracies(cells, found)
            ordered = sorted(means, key=means.__getitem__)
            order = " < ".join(f"{TITLES[method]} {means[method]:.1f}" for method in ordered)
            same = "the paper's order" if in_order(means) else "not the paper's order"
            others = "" if recipe == "paper" else " (`paper` where there is no other)"
            sentences.append(f"{ipc} per class, recipe `{recipe}`{others}: {order}; {same}.")
    return sentences


def compared(recipe: str, ipc: int, data: str) -> list[Cell]:
    """The cells of the methods whose order the paper gives, at one size."""
    cells = cells_of("table1", recipe, data)
    return [cell for cell in cells if cell.ipc == ipc and cell.method in paper.ORDER]


def accuracies(cells: Iterable[Cell], found: Found) -> dict[str, float]:
    """The mean accuracies of measured cells by method, in per cent."""
    return {cell.method: found[cell].score("accuracy").mean for cell in cells}


def in_order(means: Mapping[str, float]) -> bool:
    """Whether the methods come in the paper's order of accuracy."""
    return tuple(sorted(means, key=means.__getitem__)) == paper.ORDER


def dsa_table(without: Found, with_dsa: Found, scope: Scope) -> TextTable:
    """Accuracy without augmentation, and with it from Table 1's cells."""
    header = ("method", "recipe", *(f"{ipc} per class" for ipc in SIZES))
    groups = []
    for table, found, name in (("dsa", without, "no DSA"), ("table1", with_dsa, "DSA")):
        cells = rows_of(table, found, scope)
        kinds = dict.fromkeys((c.method, c.recipe) for c in cells if c.method in WITH_AND_WITHOUT)
        rows = []
        for method, recipe in kinds:
            of_sizes = (cell_with(table, method, ipc, recipe, scope.data) for ipc in SIZES)
            words = (_accuracy(cell, recipe, found, scope) for cell in of_sizes)
            rows.append((f"{TITLES[method]} ({name})", str(recipe), *words))
        groups.append(rows)
    return TextTable(header, groups)


def _accuracy(cell: Cell, recipe: str | None, found: Found, scope: Scope) -> str:
    """Accuracy, with the paper's in brackets."""
    assert cell.ipc is not None  # this table has no row of the full data
    if cell.recipe != recipe:  # nothing is tuned there
        return f"as `{cell.recipe}`"
    theirs: Figure | None = None
    if cell.dsa:
        scores = paper_scores(cell, scope)
        theirs = None if scores is None else scores.accuracy
    elif scope == Scope(paper.DATA):
        theirs = paper.WITHOUT_DSA[cell.method, cell.ipc]
    ours = found[cell].score("accuracy") if cell in found else None
    if theirs is None:
        return UNKNOWN if ours is None else shown(ours)
    if ours is None:
        return f"{UNKNOWN} (paper {shown(theirs)})"
    return f"{shown(ours)} (paper {shown(theirs)}: {verdict(ours, theirs, higher_is_better=True)})"


def dsa_made_with(without: Found, scope: Scope) -> str:
    """What the cells without augmentation were made with, and which not as their recipe is."""
    stores = [measured.content["experts"] for measured in without.values()]
    experts = ", ".join(dict.fromkeys(map(experts_words, stores)))
    unlike: dict[str, list[str]] = {}
    for cell, measured in without.items():
        words = ", ".join(unlike_recipe(measured, scope.data))
        if words:
            unlike.setdefault(words, []).append(f"{cell.name} `{cell.recipe}`")
    others = "".join(f" {', '.join(cells)}: {words}." for words, cells in unlike.items())
    return f"The coresets without DSA had {experts}; those with DSA are listed in Table 1.{others}"


def experts_words(store: Mapping[str, Any]) -> str:
    """How many experts, trained for how long, and an unusual learning rate."""
    words = f"{counted(store['num'], 'expert')} × {counted(store['epochs'], 'epoch')}"
    if store.get("others"):
        words += f" of each of {1 + len(store['others'])} networks"
    lr = store.get("lr", EXPERT_LR)
    return words if lr == EXPERT_LR else f"{words} at learning rate {lr:g}"


def short_scores(measured: Measured) -> str:
    """Accuracy / NLL / NLL of Kim et al., without their spread."""
    accuracy, nll, kim = (measured.score(name).mean for name in ("accuracy", "nll", "nll_kim"))
    return f"**{accuracy:.2f} / {nll:.2f} / {kim:.2f}**"
