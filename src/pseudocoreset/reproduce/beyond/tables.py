"""The tables: coresets by size, goals, published figures, the ablation."""

from collections.abc import Callable

from pseudocoreset.reproduce.beyond.kinds import ABLATED, ablation, kinds
from pseudocoreset.reproduce.beyond.published import ECE_GOAL, GOALS, MINUTES_GOAL, PUBLISHED, Goal
from pseudocoreset.reproduce.beyond.stored import BeyondCell, Found
from pseudocoreset.reproduce.cells import BEYOND, SIZES, Cell
from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.text_table import TextTable

UNKNOWN = "–"
WAYS = {"single": "one network", "chain": "one chain", "pooled": "chains pooled"}
_FIRST = ("images per class", "coreset")
HEADER = (
    *_FIRST,
    "numbers",
    "bytes",
    "stored / seen",
    *WAYS.values(),
    "ECE pooled",
    "NLL, ECE at T",
    "last layer, pooled",
    "steps",
    "minutes",
    "coresets",
)
"""The columns of the table of coresets."""
SHOWN = (*_FIRST, "stored / seen", *WAYS.values(), "ECE pooled")
"""The columns that the page shows at once."""
MORE = (*_FIRST, *(name for name in HEADER if name not in SHOWN))
"""The columns that the page folds away."""


def beyond_table(found: Found, data: str) -> TextTable:
    """One row per measured coreset, by stored images per class."""
    groups = []
    for ipc in SIZES:
        rows = kinds(data, ipc)
        shown = {name: kind for name, kind in rows.items() if not name.startswith("ablation")}
        groups.append(
            [
                (str(ipc), _bold(kind.title, name), *_figures(found[_cell(name, ipc)]))
                for name, kind in shown.items()
                if _cell(name, ipc) in found
            ]
        )
    return TextTable(HEADER, [group for group in groups if group])


def _cell(name: str, ipc: int) -> Cell:
    return Cell(BEYOND, name, ipc, None)


def _bold(title: str, name: str) -> str:
    return f"**{title}**" if name == "best" else title


def _figures(cell: BeyondCell) -> tuple[str, ...]:
    numbers, size, stored, seen = (
        _count(cell.storage(name)) for name in ("numbers", "bytes", "stored", "seen")
    )
    steps = {each["scores"].get("sghmc", {}).get("sampling_steps") for each in cell.coresets}
    return (
        numbers,
        size,
        f"{stored} / {seen}",
        *(pair(cell, way) for way in WAYS),
        _one(cell.score("ece"), 3),
        _calibrated(cell),
        pair(cell, "pooled", "last-layer"),
        _count(max((s for s in steps if s is not None), default=None)),
        minutes_words(cell),
        str(len(cell.coresets)),
    )


def pair(cell: BeyondCell | None, way: str, sampler: str = "sghmc", *, spread: bool = True) -> str:
    """Accuracy / NLL, with their deviations over coresets unless `spread` is False."""
    scores = [None if cell is None else cell.score(n, way, sampler) for n in ("accuracy", "nll")]
    if not spread:
        scores = [None if each is None else each._replace(std=None) for each in scores]
    accuracy, nll = scores
    if accuracy is None or nll is None:
        return UNKNOWN
    return f"{_one(accuracy, 1)} / {_one(nll, 2)}"


def _one(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return UNKNOWN
    spread = "" if figure.std is None else f" ± {figure.std:.{digits}f}"
    return f"{figure.mean:.{digits}f}{spread}"


def _calibrated(cell: BeyondCell) -> str:
    nll, ece = (cell.score(name, "pooled_calibrated") for name in ("nll", "ece"))
    return UNKNOWN if nll is None else f"{_one(nll, 2)}, {_one(ece, 3)}"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{round(value):,}"


def minutes_words(cell: BeyondCell) -> str:
    """Experts + distillation + scoring, in minutes; at least this many where some are not known."""
    content = cell.content
    if all(not each["distill_s"] and not each["distill_whole"] for each in cell.coresets):
        return UNKNOWN  # a coreset of Table 1
    whole = content["experts_whole"] and all(each["distill_whole"] for each in cell.coresets)
    return ("" if whole else "≥ ") + " + ".join(f"{part:.1f}" for part in cell.minutes())


def ablation_table(found: Found, data: str) -> TextTable:
    """What each ingredient adds, scored three ways; one row per measured coreset."""
    header = ("coreset", "numbers", "updates", *WAYS.values(), "ECE pooled", "minutes")
    rows = []
    for name, kind in ablation(data).items():
        cell = found.get(_cell(name, ABLATED))
        if cell is None:
            continue
        rows.append(
            (
                kind.title,
                _count(cell.storage("numbers")),
                updates_words(cell),
                *(pair(cell, way) for way in WAYS),
                _one(cell.score("ece"), 3),
                minutes_words(cell),
            )
        )
    return TextTable(header, [rows])


def updates_words(cell: BeyondCell) -> str:
    """The updates of a coreset; those of its last method where several follow one another."""
    config = cell.coresets[0]["config"]
    return ("+ " if len(cell.content["methods"]) > 1 else "") + _count(config.get("steps"))


def goals_table(found_of: Callable[[str], Found]) -> TextTable:
    """Goals and results; `found_of` gives the cells of a data set."""
    rows = [_goal_row(goal, found_of(goal.data)) for goal in GOALS]
    own = found_of(GOALS[0].data)
    ece, minutes = ["ECE of the pooled posterior at one temperature"], ["minutes, all together"]
    for ipc in SIZES:
        cell = own.get(_cell("best", ipc))
        score = None if cell is None else cell.score("ece", "pooled_calibrated")
        met = None if score is None else score.mean <= ECE_GOAL
        ece += [f"≤ {ECE_GOAL}", _verdict(_one(score, 3), met)]
        taken = None if cell is None else sum(cell.minutes())
        shown = UNKNOWN if taken is None else f"{taken:.1f}"
        met = None if taken is None else taken <= MINUTES_GOAL[ipc]
        minutes += [f"≤ {MINUTES_GOAL[ipc]:g}", _verdict(shown, met)]
    columns = [column for ipc in SIZES for column in (f"goal, {ipc}", "ours")]
    return TextTable(("", *columns), [[*rows, tuple(ece), tuple(minutes)]])


def _goal_row(goal: Goal, found: Found) -> tuple[str, ...]:
    row = [goal.title]
    for ipc in SIZES:
        wanted, cell = goal.at_least.get(ipc), found.get(_cell(goal.cell, ipc))
        row.append(UNKNOWN if wanted is None else f"{wanted[0]:g} / {wanted[1]:.2f}")
        scores = [None if cell is None else cell.score(n, goal.way) for n in ("accuracy", "nll")]
        accuracy, nll = scores
        met = None
        if wanted is not None and accuracy is not None and nll is not None:
            met = accuracy.mean >= wanted[0] and nll.mean <= wanted[1]
        row.append(UNKNOWN if wanted is None else _verdict(pair(cell, goal.way, spread=False), met))
    return tuple(row)


def _verdict(shown: str, met: bool | None) -> str:
    """In bold where the goal is met."""
    return f"**{shown}**" if met else shown


def published_table(found: Found) -> TextTable:
    """Published figures by size, ours at the end."""
    rows = []
    for each in PUBLISHED:
        figures = []
        for ipc in SIZES:
            accuracy, nll = each.at(ipc)
            figures.append(f"{accuracy:.1f}" + (f" / {nll:.2f}" if nll is not None else ""))
        scored = "posterior" if each.posterior else "one network"
        rows.append((each.title, each.stores, scored, *figures))
    ours = [
        (
            f"**ours, {title}**",
            "best form",
            title,
            *(pair(found.get(_cell("best", ipc)), way, spread=False) for ipc in SIZES),
        )
        for way, title in WAYS.items()
    ]
    header = ("method", "stores", "scored by", *(f"{ipc} per class" for ipc in SIZES))
    return TextTable(header, [rows, ours])
