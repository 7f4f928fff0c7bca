"""The summary table of the results page."""

from pathlib import Path

from made_beyond import made_beyond
from made_cells import made
from pseudocoreset.reproduce.beyond.stored import write_cell
from pseudocoreset.reproduce.cells import Cell, Scope
from pseudocoreset.reproduce.page import results_page
from pseudocoreset.reproduce.stored import write_measured
from pseudocoreset.reproduce.summary import method_rows, summary

CIFAR10, CIFAR100, FASHION = Scope("cifar10"), Scope("cifar100"), Scope("fashion-mnist")


def fbpc(recipe, ipc=10, table="table1"):
    return Cell(table, "fbpc", ipc, recipe)


def store(out: Path, scope: Scope, *cells):
    for each in cells:
        write_measured(each.cell.path(out, scope), each)


def test_row_has_scores_and_the_papers():
    measured = made(fbpc("paper"), 60.0, 1.25, 1.5)
    ours, again = method_rows({measured.cell: measured}, CIFAR10)
    assert ours == (
        "FBPC",
        "– (35.5 / 3.79)",
        "60.0 / 1.25 (62.3 / 1.31)",
        "– (71.2 / 1.03)",
    )
    assert again[0] == "FBPC, protocol `paper`"
    assert again[2] == "57.0 / 1.75 (62.3 / 1.31)"


def test_recipe_tuned_comes_before_paper():
    cells = [made(fbpc("paper"), 60.0), made(fbpc("tuned"), 63.5)]
    for found in (cells, cells[::-1]):
        row = method_rows({each.cell: each for each in found}, CIFAR10)[0]
        assert row[2].startswith("63.5 / ")


def test_summary_has_every_data_set_and_leaves_out_what_is_not_measured(tmp_path):
    assert summary(tmp_path, [CIFAR10]) == ""
    best = made(Cell("table2", "fbpc-isotropic", 1, "best"), 34.0, 2.5)
    best.content["pooled"] = {"accuracy": 0.36, "nll": 2.4}
    store(tmp_path, CIFAR100, made(fbpc("tuned", table="table2"), 37.0, 2.7), best)
    store(tmp_path, Scope("cifar10", 5000), made(fbpc("tuned"), 99.0))
    full = made(Cell("table1", "full", None, None), 84.0, 0.5)
    store(tmp_path, CIFAR10, full)
    beyond = made_beyond("best", 10, 80.0, 0.5, coresets=1)
    write_cell(beyond.cell.path(tmp_path, FASHION), beyond)
    page = results_page(tmp_path, tmp_path / "results.md")
    lines = [line for line in page[: page.index("\n## ")].splitlines() if line.startswith("| ")]
    assert lines[2:] == [
        "| CIFAR-100 | FBPC | – (21.0 / 3.76) | 37.0 / 2.70 (39.7 / 2.67) | – (44.5 / 2.63) |",
        "| CIFAR-100 | FBPC, protocol `paper` | – (21.0 / 3.76) | 34.0 / 3.20 (39.7 / 2.67) "
        "| – (44.5 / 2.63) |",
        "| CIFAR-100 | `best`, one chain | 34.0 / 2.50 | – | – |",
        "| CIFAR-100 | `best`, chains pooled | 36.0 / 2.40 | – | – |",
        "| Fashion-MNIST | `best`, one chain | – | 80.0 / 0.50 | – |",
        "| Fashion-MNIST | `best`, chains pooled | – | 82.0 / 0.40 | – |",
    ]
    assert "All training images of CIFAR-10 give 84.0 / 0.50." in page
