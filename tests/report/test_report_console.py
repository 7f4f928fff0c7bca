import io

from make_reports import make_evaluation, make_regression, make_run, make_table
from rich.console import Console

from pseudocoreset.evaluation.metrics import METRICS
from pseudocoreset.report import print_scores
from pseudocoreset.report.scores import COLUMNS, columns_for


def printed(*runs) -> str:
    file = io.StringIO()
    print_scores(runs, Console(file=file, width=80))
    return file.getvalue()


def test_columns_are_the_single_numbers_of_the_metrics():
    assert {column.key for column in COLUMNS} == {m.name for m in METRICS if m.scalar}
    directions = {m.name: m.higher_is_better for m in METRICS}
    assert all(column.higher_is_better == directions[column.key] for column in COLUMNS)


def test_columns_are_those_that_stored_scores_have():
    old = make_run()  # no balanced accuracy, nothing pooled
    keys = [column.key for column in columns_for([old])]
    assert keys == ["accuracy", "nll", "nll_kim", "ece", "brier"]
    regression = make_run(coreset=make_table(regression=True), evaluation=make_regression())
    assert [column.key for column in columns_for([regression])] == ["rmse", "nll", "coverage"]
    assert columns_for([make_run(evaluation=None)]) == []


def test_scores_fit_into_80_columns():
    other = make_run("Random [red]", evaluation=make_evaluation(accuracy=0.5))
    full = make_run("Full data", coreset=None, evaluation=make_evaluation(0.99, seeds=1))
    table = printed(make_run(), other, make_run("No scores", evaluation=None), full)
    assert all(len(line) <= 80 for line in table.splitlines())
    for text in (
        "FBPC, 2 per class",
        "81.2 ±1.2",
        "0.654 ±0.013",
        "0.701",
        "0.093",
        "0.287",
        "Random [red]",
        "1,234",
    ):
        assert text in table
    assert "99.0 ±" not in table  # one seed has no spread


def test_scores_of_a_regression_are_printed():
    run = make_run("Table", coreset=make_table(regression=True), evaluation=make_regression())
    table = printed(run)
    for text in ("Points", "RMSE", "54.321 ±0.500", "5.432", "91.2"):
        assert text in table


def test_names_are_printed_without_control_characters():
    table = printed(make_run("evil\x1b[31m\u202ename\nline"))
    assert not {"\x1b", "\u202e"} & set(table)
    assert "evil\\x1b[31m" in table


def test_best_score_of_its_size_is_bold():
    file = io.StringIO()
    shown = Console(file=file, width=80, force_terminal=True, color_system="standard")
    print_scores([make_run(), make_run("Random", evaluation=make_evaluation(0.5))], shown)
    assert "\x1b[1m81.2" in file.getvalue()
    assert "\x1b[1m50.0" not in file.getvalue()
