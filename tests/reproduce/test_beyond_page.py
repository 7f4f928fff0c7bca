"""The page beyond the paper, its tables and its plot, out of cells made up."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from made_beyond import made_beyond
from pseudocoreset import distill, load_data
from pseudocoreset.reproduce.beyond.page import beyond_page, beyond_scopes, write_beyond
from pseudocoreset.reproduce.beyond.pictures import mosaic_figure, mosaic_path, plot_path
from pseudocoreset.reproduce.beyond.plot import (
    CONTROLS,
    OURS,
    PIXELS,
    points_of,
    spread,
    storage_plot,
)
from pseudocoreset.reproduce.beyond.published import GOALS, PUBLISHED
from pseudocoreset.reproduce.beyond.stored import found_cells, write_cell
from pseudocoreset.reproduce.beyond.tables import (
    HEADER,
    MORE,
    SHOWN,
    ablation_table,
    beyond_table,
    goals_table,
    published_table,
)
from pseudocoreset.reproduce.cells import SIZES, Scope
from pseudocoreset.reproduce.pictures import POINTS, shown_by
from pseudocoreset.reproduce.shipped import shipped_path

ROOT = Path(__file__).parent.parent.parent
CIFAR10 = Scope("cifar10")


def found_of(*cells):
    return {each.cell: each for each in cells}


def row_of(text: str, *starts: str) -> list[str]:
    """The cells of the one line that starts so."""
    (line,) = [row for row in text.splitlines() if row.startswith(f"| {' | '.join(starts)} |")]
    return [part.strip() for part in line.strip("|").split(" | ")]


def test_row_has_means_and_deviations_over_coresets():
    found = found_of(made_beyond("best", 10, 74.0, 0.8))
    row = row_of(beyond_table(found, "cifar10").markdown(), "10", "**best**")
    assert row[2:5] == ["307,200", "614,400", "100 / 400"]
    assert row[5:8] == [
        "72.5 ± 0.7 / 0.90 ± 0.00",
        "74.5 ± 0.7 / 0.80 ± 0.00",
        "76.5 ± 0.7 / 0.70 ± 0.00",
    ]
    assert row[8:10] == ["0.040 ± 0.000", "0.70 ± 0.00, 0.020 ± 0.000"]
    assert row[10] == "73.5 ± 0.7 / 0.80 ± 0.00"
    assert row[11:] == ["2,000", "2.0 + 3.0 + 1.0", "2"]


def test_one_coreset_has_no_deviation_and_jpeg_no_numbers():
    one = made_beyond("jpeg+experts", 1, 40.0, 1.5, coresets=1, numbers=None)
    text = beyond_table(found_of(one), "cifar10").markdown()
    title = "random images as JPEG of quality 25, experts' labels"
    row = row_of(text, "1", title)
    assert row[2] == "–"
    assert row[6] == "40.0 / 1.50"
    one.content["coresets"][0]["distill_whole"] = False
    assert row_of(beyond_table(found_of(one), "cifar10").markdown(), "1", title)[12].startswith("≥")


def test_coreset_of_table_1_has_no_time_of_its_own():
    again = made_beyond("fbpc", 1, 40.0, coresets=1)
    for each in again.content["coresets"]:
        each |= {"distill_s": 0.0, "distill_whole": False}
    row = row_of(
        beyond_table(found_of(again), "cifar10").markdown(), "1", "FBPC, pixels, hard labels"
    )
    assert row[12] == "–"


def test_tables_have_only_measured_cells():
    found = found_of(made_beyond("best", 10, 74.0), made_beyond("ablation-pixels", 10, 70.0))
    assert len(beyond_table(found, "cifar10").markdown().splitlines()) == 2 + 1
    assert len(ablation_table(found, "cifar10").markdown().splitlines()) == 2 + 1


def test_page_shows_every_column_once_or_as_a_key():
    assert set(SHOWN) | set(MORE) == set(HEADER)
    assert set(SHOWN) & set(MORE) == {"images per class", "coreset"}


def test_scores_of_a_posterior_that_was_not_asked_are_dashes():
    cell = made_beyond("best", 1, 60.0)
    for each in cell.content["coresets"]:
        del each["scores"]["last-layer"]
        each["scores"]["sghmc"]["pooled_calibrated"] = {}
    row = row_of(beyond_table(found_of(cell), "cifar10").markdown(), "1", "**best**")
    assert row[9:11] == ["–", "–"]


@pytest.mark.parametrize(
    ("accuracy", "nll", "met"), [(73.5, 0.8, True), (73.4, 0.8, False), (74.0, 0.81, False)]
)
def test_goal_is_bold_where_both_figures_are_met(accuracy, nll, met):
    best = made_beyond("best", 10, accuracy, nll)  # whose mean is half a point more
    text = goals_table(lambda data: found_of(best) if data == "cifar10" else {}).markdown()
    row = row_of(text, "one chain")
    assert row[3] == "74 / 0.80"
    assert row[4].startswith("**") == met
    assert row[1:3] == ["64 / 1.06", "–"]
    assert row_of(text, "Fashion-MNIST, one chain")[3:5] == ["87 / 0.37", "–"]
    assert row_of(text, "ECE of the pooled posterior at one temperature")[4] == "**0.020 ± 0.000**"
    assert row_of(text, "minutes, all together")[4] == "**6.0**"


def test_goals_are_those_of_the_issue():
    by_title = {goal.title: goal.at_least for goal in GOALS}
    assert by_title["ten chains pooled, moonshot"] == {
        1: (69, 0.98),
        10: (77, 0.72),
        50: (81.5, 0.60),
    }
    assert by_title["Fashion-MNIST, ten chains pooled"] == {10: (89.4, 0.30)}


def test_published_figures_are_marked_where_they_were_not_read_again():
    text = published_table({}).markdown()
    assert row_of(text, "VBPC (ICLR 2025)†")[3:] == ["55.1 / 1.34", "69.8 / 0.89", "76.7 / 0.71"]
    assert row_of(text, "FBPC (Kim et al. 2023)")[3] == "35.5 / 3.79"
    assert row_of(text, "NSD")[1:] == ["something else", "one network", "68.5", "73.4", "75.2"]
    assert [each.name for each in PUBLISHED if each.remembered] == ["VBPC (ICLR 2025)"]
    assert row_of(text, "**ours, one chain**")[3:] == ["–"] * 3


def test_plot_has_ours_and_all_published_points():
    cells = [made_beyond("best", ipc, 60.0 + ipc / 10) for ipc in SIZES]
    cells.append(made_beyond("jpeg+experts", 1, 40.0, numbers=None, bytes=31000))
    points = points_of(found_of(*cells), CIFAR10)
    ours = [point for point in points if point.kind in OURS]
    assert len(ours) == 9
    assert len(points) == 9 + 1 + 3 * len(PUBLISHED)
    (jpeg,) = [point for point in points if point.kind == CONTROLS]
    assert (jpeg.numbers, jpeg.accuracy) == (31000, 42.5)
    (gsdd,) = [point for point in points if point.name == "GSDD" and point.ipc == 10]
    assert (gsdd.numbers, gsdd.accuracy, gsdd.nll) == (10 * PIXELS, 75.5, None)
    upper, lower = storage_plot(points).axes
    shown = {tuple(xy) for line in upper.lines for xy in line.get_xydata().tolist()}
    assert {(p.numbers, p.accuracy) for p in points} <= shown
    shown = {tuple(xy) for line in lower.lines for xy in line.get_xydata().tolist()}
    assert shown >= {(p.numbers, p.nll) for p in points if p.nll is not None}
    names = [text.get_text() for text in upper.texts]
    assert names.count("VBPC (ICLR 2025)†") == 3
    assert points_of({}, CIFAR10) == []
    held_out = points_of(found_of(cells[0]), Scope("cifar10", 5000))
    assert {point.kind for point in held_out} == set(OURS)


def test_names_are_spread_as_little_as_can_be():
    assert spread([0.0, 10.0, 30.0], 5.0, 100.0) == [0.0, 10.0, 30.0]
    assert spread([10.0, 10.0], 4.0, 100.0) == [8.0, 12.0]
    assert spread([10.0, 11.0, 12.0, 40.0], 4.0, 100.0) == [7.0, 11.0, 15.0, 40.0]
    assert spread([98.0, 99.0], 4.0, 100.0) == [96.0, 100.0]
    generator = torch.Generator().manual_seed(0)
    heights = sorted((100 * torch.rand(30, generator=generator)).tolist())
    found = spread(heights, 4.0, 110.0)
    assert all(b - a >= 4.0 - 1e-9 for a, b in itertools.pairwise(found))
    assert max(found) <= 110.0 + 1e-9


def test_page_is_written_and_drawn_from_the_cells(tmp_path):
    for each in (made_beyond("best", 10, 74.0, 0.8), made_beyond("random", 1, 17.0, 3.0)):
        write_cell(each.cell.path(tmp_path, CIFAR10), each)
    data = load_data("digits")
    coreset = distill(data, (), "random", ipc=10, form="mosaic:2", device="cpu", progress=False)
    coreset.save(shipped_path(tmp_path, CIFAR10, "best", 10), half=True)
    path = tmp_path / "beyond.md"
    assert list(write_beyond(tmp_path, CIFAR10)) == [f"{path}: written"]
    text = path.read_text(encoding="utf-8")
    assert "(pictures/cifar10-beyond.png)" in text
    assert "(pictures/cifar10-best-ipc10.png)" in text
    assert "from IDC (Kim et al. 2022" in text
    assert "† quoted from memory, not checked against the paper." in text
    points = points_of(found_cells(tmp_path, CIFAR10), CIFAR10)
    assert shown_by(plot_path(tmp_path, CIFAR10), POINTS) == json.dumps(points)
    picture = mosaic_path(tmp_path, CIFAR10, 10)
    first = picture.read_bytes()
    picture.write_bytes(first + b"as it was")
    list(write_beyond(tmp_path, CIFAR10))
    assert picture.read_bytes() == first + b"as it was"


def test_scopes_are_those_scored_on_test_images(tmp_path):
    best = made_beyond("best", 10, 80.0)
    for scope in (Scope("fashion-mnist"), Scope("cifar10", 5000)):
        write_cell(best.cell.path(tmp_path, scope), best)
    assert beyond_scopes(tmp_path) == [CIFAR10, Scope("fashion-mnist")]
    text = beyond_page(tmp_path, tmp_path / "beyond.md")
    assert "No coreset is scored on the test images yet." in text
    assert text.count("## Fashion-MNIST\n") == 1
    assert "80.5" in row_of(text, "Fashion-MNIST, one chain")[4]


def test_mosaic_picture_shows_a_stored_image_beside_what_is_seen():
    data = load_data("digits")
    coreset = distill(data, (), "random", ipc=2, form="mosaic:2", device="cpu", progress=False)
    axes = mosaic_figure(coreset).axes
    assert len(axes) == 4 * 5
    second = axes[5]  # of the second class
    stored = coreset.scaling.invert(coreset.inputs[2:3])[0, 0].numpy()
    assert (second.images[0].get_array()[:, :, 0] == stored).all()
    seen = coreset.scaling.invert(coreset.seen_inputs[8:9])[0, 0].numpy()
    assert (axes[6].images[0].get_array()[:, :, 0] == seen).all()
    assert second.get_ylabel() == "1"


def test_stored_image_is_named_after_most_of_its_images():
    data = load_data("digits")
    coreset = distill(data, (), "random", ipc=1, form="mosaic:2", device="cpu", progress=False)
    soft = torch.eye(10)[coreset.seen_targets]
    soft[4] = torch.eye(10)[7]  # the first image in the second stored one
    assert mosaic_figure(replace(coreset, targets=soft)).axes[5].get_ylabel() == "1"


def test_committed_plot_shows_the_committed_results():
    out = ROOT / "results"
    points = points_of(found_cells(out, CIFAR10), CIFAR10)
    if points:
        assert shown_by(plot_path(out, CIFAR10), POINTS) == json.dumps(points)
    else:
        assert not plot_path(out, CIFAR10).exists()
