"""Tables, figures and the page of a run."""

from pseudocoreset.report.console import print_scores, scores_table
from pseudocoreset.report.kept import keep_data_options, keep_evaluation
from pseudocoreset.report.page import write_report
from pseudocoreset.report.run_report import RunReport, read_run

__all__ = [
    "RunReport",
    "keep_data_options",
    "keep_evaluation",
    "print_scores",
    "read_run",
    "scores_table",
    "write_report",
]
