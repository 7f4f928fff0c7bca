"""The table of scores, before anybody prints it: the terminal and the page show the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from pseudocoreset.report.run_report import RunReport

UNKNOWN = "–"


@dataclass(frozen=True)
class Column:
    """A score as a table shows it."""

    key: str
    title: str
    higher_is_better: bool = False
    scale: float = 1.0
    digits: int = 3

    def show(self, value: float) -> str:
        """The number as it is printed."""
        return f"{value * self.scale:.{self.digits}f}"


COLUMNS = (
    Column("accuracy", "Accuracy %", higher_is_better=True, scale=100, digits=1),
    Column("nll", "NLL"),
    Column("nll_kim", "NLL (Kim et al.)"),
    Column("ece", "ECE"),
    Column("brier", "Brier"),
)


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
    images: str
    cells: list[Cell]


def score_rows(runs: Sequence[RunReport]) -> list[ScoreRow]:
    """One row a run, in their order; a cell is best among the coresets of its size."""
    return [
        ScoreRow(
            run.name,
            UNKNOWN if run.images is None else f"{run.images:,}",
            [_cell(run, column, runs) for column in COLUMNS],
        )
        for run in runs
    ]


def seed_count(run: RunReport) -> int:
    """How many posteriors were sampled."""
    return len((run.evaluation or {}).get("seeds") or [])


def _cell(run: RunReport, column: Column, runs: Sequence[RunReport]) -> Cell:
    mean, std = run.score(column.key), run.score(f"{column.key}_std")
    if mean is None:
        return Cell(UNKNOWN, "", best=False)
    spread = "" if std is None or seed_count(run) < 2 else column.show(std)
    return Cell(column.show(mean), spread, best=_is_best(run, column, runs))


def _is_best(run: RunReport, column: Column, runs: Sequence[RunReport]) -> bool:
    """Whether no coreset of the same size scores better, as printed; alone, none is best."""
    if run.coreset is None:
        return False
    found = [
        other.score(column.key)
        for other in runs
        if other.coreset is not None and other.images == run.images
    ]
    rivals = [value for value in found if value is not None]
    best = max(rivals) if column.higher_is_better else min(rivals)
    own = run.score(column.key)
    return len(rivals) > 1 and own is not None and column.show(own) == column.show(best)
