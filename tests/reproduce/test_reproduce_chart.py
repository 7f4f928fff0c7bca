"""The chart of Table 1: what it shows, and when it is drawn anew."""

import json
from pathlib import Path

from made_cells import made
from pseudocoreset.reproduce.cells import SIZES, Cell, Scope
from pseudocoreset.reproduce.chart import OURS, PAPER, TUNED, Point, accuracy_chart, points_of
from pseudocoreset.reproduce.page import results_page
from pseudocoreset.reproduce.paper import TABLE1, Figure
from pseudocoreset.reproduce.pictures import POINTS, chart_path, draw_charts, shown_by
from pseudocoreset.reproduce.stored import Measured, measured_cells, write_measured

ROOT = Path(__file__).parent.parent.parent
CIFAR10 = Scope("cifar10")


def fbpc(recipe: str, accuracy: float) -> Measured:
    return made(Cell("table1", "fbpc", 10, recipe), accuracy, std=0.5)


def found_of(*cells: Measured) -> dict[Cell, Measured]:
    return {measured.cell: measured for measured in cells}


def test_chart_has_ours_by_each_recipe_and_the_papers_once():
    full = made(Cell("table1", "full", None, None), 85.0)
    points = points_of(found_of(fbpc("paper", 60.0), fbpc("tuned", 65.0), full), CIFAR10)
    assert points == [
        Point(10, "fbpc", PAPER, TABLE1["fbpc", 10].accuracy),
        Point(10, "fbpc", OURS, Figure(60.0, 0.5)),
        Point(10, "fbpc", TUNED, Figure(65.0, 0.5)),
    ]
    held_out = points_of(found_of(fbpc("paper", 60.0)), Scope("cifar10", 5000))
    assert [point.kind for point in held_out] == [OURS]


def test_chart_marks_each_point_by_size_and_method():
    points = [
        Point(10, "fbpc", TUNED, Figure(65.0, 0.5)),
        Point(10, "random", OURS, Figure(32.0, 1.0)),
        Point(50, "fbpc", PAPER, Figure(71.0, 0.2)),
    ]
    panels = dict(zip(SIZES, accuracy_chart(points).axes, strict=True))
    marks = {
        ipc: [tuple(line.get_xydata()[0]) for line in axes.lines if len(line.get_xydata())]
        for ipc, axes in panels.items()
    }
    lines = [label.get_text() for label in panels[1].get_yticklabels()]
    assert lines == ["Random", "FBPC"]
    assert marks == {1: [], 10: [(65.0, 1), (32.0, 0)], 50: [(71.0, 1)]}
    (spread,) = panels[50].collections
    assert [x for x, _ in spread.get_segments()[0]] == [70.8, 71.2]


def test_chart_is_drawn_again_only_for_other_figures(tmp_path):
    chart = chart_path(tmp_path, CIFAR10)
    draw_charts(tmp_path, CIFAR10)
    assert not chart.exists()
    assert chart.name not in results_page(tmp_path, tmp_path / "results.md")

    def drawn_with(accuracy: float) -> bytes:
        cell = fbpc("paper", accuracy)
        write_measured(cell.cell.path(tmp_path, CIFAR10), cell)
        draw_charts(tmp_path, CIFAR10)
        return chart.read_bytes()

    first = drawn_with(60.0)
    assert "(pictures/cifar10-table1.png)" in results_page(tmp_path, tmp_path / "results.md")
    chart.write_bytes(first + b"as it was")
    assert drawn_with(60.0) == first + b"as it was"
    assert b"as it was" not in drawn_with(61.0)
    chart.write_bytes(b"no picture")
    assert shown_by(chart, POINTS) is None
    assert drawn_with(60.0) == first


def test_committed_chart_shows_the_committed_results():
    out = ROOT / "results"
    points = points_of(measured_cells(out, CIFAR10, "table1"), CIFAR10)
    shown = shown_by(chart_path(out, CIFAR10), POINTS)
    assert shown == json.dumps(points), "run `python tools/render.py`"
