"""The table of scores for the terminal and the page.

Its columns are made from `METRICS`; scores that a stored evaluation does not have are left out.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pseudocoreset.engine.text import significant
from pseudocoreset.evaluation.metrics import METRICS, Metric
from pseudocoreset.report.run_report import RunReport, finite

UNKNOWN = "–"
SHARES = ("accuracy", "balanced_accuracy", "largest_class", "disagreement", "coverage")
"""Scores that are shown in per cent."""
CONSTANTS = {
    "largest_class": ("accuracy", "Always the largest class"),
    "mean_rmse": ("rmse", "Always the mean target"),
}
"""Scores of constant predictions, and their names."""
LARGE = 10_000
"""Scores from here on are shown without decimals."""
MOST_COLUMNS = 5
"""The number of scores that fit into 80 columns. The table of a run has all."""


@dataclass(frozen=True)
class Column:
    """A score as a table shows it."""

    key: str
    title: str
    higher_is_better: bool = False

    @property
    def share(self) -> bool:
        """Whether it is shown in per cent."""
        return self.key in SHARES

    def show(self, value: float) -> str:
        """The number as it is printed."""
        if self.share:
            value *= 100
        if abs(value) >= LARGE or 0 < abs(value) < 0.0005:
            return significant(value)
        return f"{value:.{1 if self.share else 3}f}"


def _columns(metrics: Iterable[Metric]) -> tuple[Column, ...]:
    found: dict[str, Column] = {}  # classification and regression share a name
    for metric in metrics:
        title = metric.title
        if metric.name in SHARES and "%" not in title:
            title += " %"
        if metric.scalar and metric.name not in found:
            found[metric.name] = Column(metric.name, title, metric.higher_is_better)
    return tuple(found.values())


COLUMNS = _columns(METRICS)
"""All scores that are single numbers, in the order of `METRICS`."""


def known_columns(runs: Sequence[RunReport]) -> list[Column]:
    """The scores that any of the runs has, those of the task in hand first."""
    known = {column.key for column in COLUMNS if _has(runs, column.key)}
    tasks = Counter(metric.task for metric in METRICS if metric.name in known)
    in_order = sorted(METRICS, key=lambda metric: -tasks[metric.task])
    return [column for column in _columns(in_order) if column.key in known]


def _has(runs: Sequence[RunReport], key: str) -> bool:
    return any(run.score(key) is not None for run in runs)


def columns_for(runs: Sequence[RunReport]) -> list[Column]:
    """The first of the scores that any of the runs has."""
    found = [column for column in known_columns(runs) if column.key not in CONSTANTS]
    return found[:MOST_COLUMNS]


def baselines(runs: Sequence[RunReport]) -> list[RunReport]:
    """Baselines, if known: random points and a constant prediction."""
    found = [run.random for run in runs if run.random is not None]
    for key, (score, name) in CONSTANTS.items():
        known = {value for value in (run.score(key) for run in runs) if value is not None}
        if len(known) == 1:  # all were scored on the same points
            found.append(RunReport(name, None, [], {}, {score: known.pop()}))
    return found


@dataclass(frozen=True)
class Cell:
    """A mean over seeds, its standard deviation (empty for one seed), and if it is the best."""

    mean: str
    std: str
    best: bool


@dataclass(frozen=True)
class ScoreRow:
    """One run in the table."""

    name: str
    points: str
    cells: list[Cell]


def score_rows(runs: Sequence[RunReport]) -> list[ScoreRow]:
    """One row per run. The best scores among coresets of the same size are marked."""
    columns = columns_for(runs)
    return [
        ScoreRow(
            run.name,
            UNKNOWN if run.points is None else f"{run.points:,}",
            [_cell(run, column, runs) for column in columns],
        )
        for run in runs
    ]


@dataclass(frozen=True)
class ScoreDetail:
    """One score of a run: over seeds, and of all seeds' samples together."""

    title: str
    mean: str
    std: str
    pooled: str


def score_details(run: RunReport) -> list[ScoreDetail]:
    """All scores of a run that are single numbers."""
    pooled = {key: finite(value) for key, value in run.pooled.items()}
    columns = [*known_columns([run])]
    columns += [c for c in COLUMNS if c not in columns and pooled.get(c.key) is not None]
    found = []
    for column in columns:
        cell, together = _cell(run, column, ()), pooled.get(column.key)
        shown = UNKNOWN if together is None else column.show(together)
        found.append(ScoreDetail(column.title, cell.mean, cell.std, shown))
    return found


def _cell(run: RunReport, column: Column, runs: Sequence[RunReport]) -> Cell:
    mean, std = run.score(column.key), run.score(f"{column.key}_std")
    if mean is None:
        return Cell(UNKNOWN, "", best=False)
    show = significant if abs(mean) >= LARGE else column.show  # 20,762 ± 33.7
    spread = "" if std is None or run.seeds < 2 else show(std)
    return Cell(column.show(mean), spread, best=_is_best(run, column, runs))


def _is_best(run: RunReport, column: Column, runs: Sequence[RunReport]) -> bool:
    """Whether no coreset of the same size scores better, as printed; alone, none is best."""
    if run.coreset is None:
        return False
    found = [
        other.score(column.key)
        for other in runs
        if other.coreset is not None and other.points == run.points
    ]
    rivals = [value for value in found if value is not None]
    own = run.score(column.key)
    if len(rivals) < 2 or own is None:
        return False
    best = max(rivals) if column.higher_is_better else min(rivals)
    return column.show(own) == column.show(best)
