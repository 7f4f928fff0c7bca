"""What people look at: tables, figures, the page of a run."""

from typing import TYPE_CHECKING, Any

from pseudocoreset.report.console import RichProgress, print_scores, scores_table
from pseudocoreset.report.page import write_report
from pseudocoreset.report.run_report import RunReport, read_run

if TYPE_CHECKING:
    from pseudocoreset.report.images import coreset_grid

__all__ = [
    "RichProgress",
    "RunReport",
    "coreset_grid",
    "print_scores",
    "read_run",
    "scores_table",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Import what draws when it is asked for: a progress bar need not wait for matplotlib."""
    if name == "coreset_grid":
        from pseudocoreset.report.images import coreset_grid

        return coreset_grid
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
