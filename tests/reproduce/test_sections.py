"""What the page says of the rest of the paper, of cells made by hand."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from made_cells import made
from pseudocoreset import UserError
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import (
    CONVNET,
    FOUR_NORMS,
    TABLES,
    Cell,
    Scope,
    cells_of,
)
from pseudocoreset.reproduce.commands import commands_for
from pseudocoreset.reproduce.corruptions_table import distances, papers, severities_table
from pseudocoreset.reproduce.cost import cost_markdown, measured_costs
from pseudocoreset.reproduce.page import latex_tables, results_page
from pseudocoreset.reproduce.registry import chosen_cells
from pseudocoreset.reproduce.sections import claim_sentences, sections
from pseudocoreset.reproduce.stored import read_measured, write_measured
from rest_goals import rest_goals_table

ROOT = Path(__file__).parent.parent.parent
CIFAR10, CIFAR100 = Scope("cifar10"), Scope("cifar100")


def line_of(text: str, *starts: str) -> str:
    """The first such row: that by our protocol."""
    start = f"| {' | '.join(starts)} |"
    return next(row for row in text.splitlines() if row.startswith(start))


def stored(out: Path, scope: Scope, *cells) -> str:
    """The sections of these cells, written and read back."""
    for measured in cells:
        write_measured(measured.cell.path(out, scope), measured)
    return "\n".join(section.markdown() for section in sections(out, scope))


def test_cell_of_another_network_is_read_back_and_not_taken_for_one_of_the_convnet(tmp_path):
    cell = Cell("norms", "fbpc", 10, "tuned", FOUR_NORMS, "batch")
    path = cell.path(tmp_path, CIFAR10)
    write_measured(path, made(cell, 50.0))
    assert read_measured(path, cell).cell == cell
    assert path.name == "fbpc-for-convnet+group+layer+batch-ipc10-tuned-on-batch.json"
    assert cell.name == "fbpc@convnet+group+layer+batch/10/batch"
    with pytest.raises(UserError, match="it holds"):
        read_measured(path, replace(cell, made_for=(CONVNET,)))


def test_no_two_cells_have_one_name_or_one_file():
    for table in ("table2", "corruptions", "cross-architecture", "norms", "resnet18", "protocol"):
        for recipe in ("paper", "tuned", "best"):
            cells = cells_of(table, recipe, "cifar10")
            for names in ({c.name for c in cells}, {c.file_name for c in cells}):
                assert len(names) == len(cells)
    assert len(cells_of("cross-architecture", "tuned", "cifar10")) == 4 * 5
    assert len(cells_of("norms", "tuned", "cifar10")) == 4 * 4
    assert len(cells_of("resnet18", "tuned", "cifar10")) == 2 * 2


def test_recipe_is_that_of_the_shipped_coresets_where_they_are_scored_once_more():
    for names, recipe in ((["corruptions"], "tuned"), (["table1"], "paper"), (["norms"], "tuned")):
        cells = chosen_cells(names, None, "cifar10", "fbpc/10*")
        assert {cell.recipe for cell in cells} == {recipe}
    (same,) = chosen_cells(["corruptions"], "paper", "cifar10", "fbpc/10")
    assert same.recipe == "paper"


def test_table2_has_the_papers_figures_but_not_beside_our_best(tmp_path):
    ours = Cell("table2", "fbpc", 10, "paper")
    best = Cell("table2", "fbpc-isotropic", 10, "best")
    measured = made(best, 50.0, 2.0)
    measured.content["pooled"] = {"accuracy": 0.525, "nll": 1.875}
    text = stored(tmp_path, CIFAR100, made(ours, 41.0, 2.5), measured)
    assert line_of(text, "10", "FBPC", "paper").startswith(
        "| 10 | FBPC | paper | 41.00 ± 0.10 | 39.70 ± 0.31 | +1.30 better | 2.50 ± 0.01 |"
    )
    assert line_of(text, "10", "FBPC-isotropic", "best").startswith(
        "| 10 | FBPC-isotropic | best | 50.00 ± 0.10 | – | – | 2.00 ± 0.01 |"
    )
    assert "| 52.50 / 1.88 (5) |" in line_of(text, "10", "FBPC-isotropic", "best")
    assert text.count("52.50 / 1.88") == 1  # with the paper's protocol it is not known
    page = results_page(tmp_path, tmp_path / "results.md")
    assert "## CIFAR-100, scored on the test images" in page
    assert "Table 1" not in page
    assert page.count("<summary>How posteriors were sampled</summary>") == 1
    command = "reproduce table2 --data cifar100:DIR --out elsewhere --recipe best --num 20"
    assert command in page
    assert tmp_path / "table2" / "cifar100.tex" in latex_tables(tmp_path)


def test_commands_have_what_experts_kept():
    cell = Cell("table2", "fbpc", 10, "paper")
    measured = made(cell, 41.0)
    measured.content["experts"] |= {"first_epoch": 30, "half": True}
    (command,) = commands_for({cell: measured}, CIFAR100)
    assert command.endswith("--epochs 30 --from-epoch 30 --half --steps 1000 --cells 'fbpc/10'")


def test_architectures_stand_beside_the_papers(tmp_path):
    cells = [
        made(Cell("cross-architecture", "fbpc", 10, "tuned", on=net), 40.0 + number, 2.0)
        for number, net in enumerate(TABLES["cross-architecture"].on)
    ]
    several = ("convnet", "resnet18", "vgg11")
    other = made(Cell("cross-architecture", "fbpc", 10, "tuned", several, "alexnet"), 50.0)
    text = stored(tmp_path, CIFAR10, *cells, other)
    row = line_of(text, "10", "made for ConvNet", "tuned").split(" | ")
    assert row[3:8] == [
        "40.0 ± 0.1 / 2.00 (paper 62.5 / 1.31)",
        "41.0 ± 0.1 / 2.00 (paper 47.5 / 1.82)",
        "42.0 ± 0.1 / 2.00 (paper 35.5 / 2.41)",
        "43.0 ± 0.1 / 2.00 (paper 47.9 / 3.72)",
        "44.0 ± 0.1 / 2.00 (paper 32.3 / 2.96)",
    ]
    row = line_of(text, "10", "made for ConvNet + ResNet18 + VGG11", "tuned").split(" | ")
    assert row[3:8] == ["–", "–", "–", "–", "50.0 ± 0.1 / 1.00"]


def test_resnet18_stands_beside_the_papers(tmp_path):
    cell = Cell("resnet18", "fbpc", 10, "tuned", ("resnet18", CONVNET), "resnet18")
    text = stored(tmp_path, CIFAR10, made(cell, 55.0), made(replace(cell, on=CONVNET), 61.0))
    row = line_of(text, "10", "made for ResNet18 + ConvNet", "tuned")
    assert "| 55.0 ± 0.1 / 1.00 (paper 54.9 / 1.56) | 61.0 ± 0.1 / 1.00 (paper 60.0) |" in row


def test_claims_about_norms_are_checked_where_all_is_measured():
    found = {}
    for cell in cells_of("norms", "tuned", "cifar10"):
        accuracy = 60.0 if cell.made_for == FOUR_NORMS else 40.0
        if cell == Cell("norms", "fbpc", 10, "tuned"):
            accuracy = 65.0  # on the norm that it is made for, one alone may be better
        if cell.method == "bpc-fkl":
            accuracy -= 5
        found[cell] = made(cell, accuracy)
    norms = "every norm that FBPC-single is not made for"
    assert claim_sentences(found) == [
        f"FBPC-multi is above FBPC-single on {norms} (recipe `tuned`).",
        "FBPC-multi is above WBPC-multi on all norms (recipe `tuned`).",
    ]
    worse = Cell("norms", "fbpc", 10, "tuned", FOUR_NORMS, "layer")
    found[worse] = made(worse, 39.0)
    assert [" is not above " in line for line in claim_sentences(found)] == [True, True]
    del found[worse]
    assert claim_sentences(found) == []


def corrupted(method: str, losses: dict[int, float]):
    """A cell whose degradations are the paper's plus so many points, by severity."""
    measured = made(Cell("corruptions", method, 10, "tuned"), 60.0)
    theirs = paper.CORRUPTIONS[method]

    def part(lost: float) -> dict[str, float]:
        return {"accuracy": 0.6 * (1 - lost), "nll": 1.5, "ece": 0.1, "degradation": lost}

    each = [
        {"corruption": name, "severity": severity, **part((figure.degradation + more) / 100)}
        for name, figure in theirs.items()
        for severity, more in losses.items()
    ]

    def mean(rows):
        return part(sum(row["degradation"] for row in rows) / len(rows))

    names = {name: [row for row in each if row["corruption"] == name] for name in theirs}
    measured.content["corruptions"] = {
        "severities": list(losses),
        "each": each,
        "by_corruption": {name: mean(rows) for name, rows in names.items()},
        "mean": mean(each),
    }
    measured.content["by_paper"]["corruptions"] = measured.content["corruptions"]
    return measured


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.pop("corruptions"),
        lambda c: c["corruptions"]["each"].pop(),
        lambda c: c["corruptions"]["mean"].pop("ece"),
        lambda c: c["corruptions"]["each"].append(3),
        lambda c: c["corruptions"].update(by_corruption=[]),
        lambda c: c["by_paper"].update(corruptions={}),
        lambda c: c.update(pooled={"accuracy": None, "nll": 1.0}),
        lambda c: c.update(pooled=[]),
        lambda c: c.update(outputs={}),
        lambda c: c["outputs"].update(png="AAAA"),
        lambda c: c["outputs"].update(mean=[1.0]),
        lambda c: c["outputs"].update(classes=[1, 2]),
    ],
)
def test_damaged_parts_of_a_cell_are_refused_by_its_path(tmp_path, damage):
    measured = corrupted("fbpc", {1: 0.0, 2: 1.0})
    png = io.BytesIO()
    Image.new("RGB", (4, 4)).save(png, "png")
    text = base64.b64encode(png.getvalue()).decode()
    outputs = {"class": "b", "classes": ["a", "b"], "mean": [0.0, 1.0], "std": [0.1, 0.2]}
    measured.content["outputs"] = {**outputs, "png": text}
    measured.content["by_paper"]["corruptions"] = dict(measured.content["corruptions"])
    path = measured.cell.path(tmp_path, CIFAR10)
    write_measured(path, measured)
    assert read_measured(path, measured.cell) == measured
    damage(measured.content)
    write_measured(path, measured)
    with pytest.raises(UserError, match="delete it to measure it again") as error:
        read_measured(path, measured.cell)
    assert str(path) in str(error.value)


def test_severity_that_fits_the_papers_figures_is_named(tmp_path):
    fbpc = corrupted("fbpc", {1: -8.0, 2: -3.0, 3: 0.5, 4: 4.0, 5: 9.0})
    away = distances(fbpc, CIFAR10)
    assert away == pytest.approx({1: 8.0, 2: 3.0, 3: 0.5, 4: 4.0, 5: 9.0, "all": 0.5})
    shifted = corrupted("bpc-fkl", {1: -8.0, 2: -1.0, 3: 3.0, 4: 7.0, 5: 9.0})
    text = stored(tmp_path, CIFAR10, fbpc, shifted)
    assert "BPC-fKL, recipe `tuned`: severity 2 is closest to the paper's degradations" in text
    assert "with a mean distance of 1.0 points" in text
    assert "frost" in text
    assert "FBPC, recipe `tuned`: degradation % |\n" in text  # the last column
    assert line_of(text, "spatter").endswith("| 16.6 (16.1) |")
    assert line_of(text, "mean").endswith("| 24.2 (23.7) |")
    rows = severities_table({fbpc.cell: fbpc}, CIFAR10).groups[0]
    assert [row[1] for row in rows] == ["1", "2", "3", "4", "5", "all"]
    assert distances(fbpc, Scope("digits")) == {}


def test_papers_mean_is_over_the_corruptions_that_there_are():
    cell = Cell("corruptions", "fbpc", 10, "tuned")
    assert papers(cell, CIFAR10)["mean"] == paper.CORRUPTIONS_MEAN["fbpc"]
    two = papers(cell, CIFAR10, ["brightness", "snow"])
    assert two["mean"] == pytest.approx(((48.9 + 47.1) / 2, (21.5 + 24.4) / 2))
    assert two.keys() == {"brightness", "snow", "mean"}


def test_goals_are_of_the_measured_cells(tmp_path):
    assert rest_goals_table(tmp_path, CIFAR100) is None
    best = made(Cell("table2", "fbpc-isotropic", 10, "best"), 45.0, 2.2)
    best.content["pooled"] = {"accuracy": 0.465, "nll": 2.0}
    stored(tmp_path, CIFAR100, made(Cell("table2", "fbpc", 1, "tuned"), 22.5, 3.5), best)
    text = rest_goals_table(tmp_path, CIFAR100).markdown()
    assert line_of(text, "FBPC, 1 per class").endswith("| 22 / 3.60 | 22.50 / 3.50 | met |")
    short = "| 47 | 46.50 / 2.00 (5 chains) | 0.50 short |"
    assert line_of(text, "`best`, 10 stored per class, 10 chains pooled").endswith(short)
    assert len(text.splitlines()) == 4
    stored(tmp_path, CIFAR10, corrupted("fbpc", {1: 0.0}))
    text = rest_goals_table(tmp_path, CIFAR10).markdown()
    lost = "45.8, degradation 23.7 %"
    assert line_of(text, "FBPC on corrupted images").endswith(f"| {lost} | missed |")
    assert rest_goals_table(tmp_path, Scope("cifar100", 5000)) is None


def test_readings_of_the_protocol_stand_beside_the_paper(tmp_path):
    measured = made(Cell("protocol", "random", 1, None), 16.5, 4.0, 4.68, std=0.5)
    text = stored(tmp_path, CIFAR10, measured)
    assert line_of(text, "1", "the paper's") == (
        "| 1 | the paper's | 16.30 ± 0.74 | – | 4.66 ± 0.03 | – |"
    )
    same = "| 16.50 ± 0.50 | 4.00 ± 0.01 | 4.68 ± 0.01 | accuracy within noise, NLL within noise |"
    assert line_of(text, "1", "`paper-epochs`") == f"| 1 | `paper-epochs` {same}"
    other = line_of(text, "1", "`paper`")
    assert other.endswith("accuracy differs, NLL differs |")
    assert "| 13.50 ± " in other


def test_costs_are_the_benchmarks(tmp_path):
    rows = {
        (r["what"], r["net"], r["ipc"]): r
        for r in json.loads((ROOT / "results" / "benchmark.json").read_text())
    }
    text = cost_markdown(ROOT / "results")
    update = rows["bpc-fkl update", "resnet18", 10]
    fbpc = rows["fbpc update", "convnet", 10]
    memory = line_of(text, "BPC-fKL")
    assert memory.endswith(f"| {update['whole_peak_gb']:.2f} |")
    assert f"{fbpc['whole_peak_gb']:.2f} ({fbpc['peak_gb']:.2f})" in line_of(text, "FBPC")
    seconds = text[text.index("seconds, ConvNet") :]
    assert line_of(seconds, "FBPC").split(" | ")[2] == f"{fbpc['fast_s']:.3f}"
    assert line_of(seconds, "FBPC, paper") == (
        "| FBPC, paper | 1.50 ± 0.15 | 3.29 ± 0.51 | 8.38 ± 0.48 |"
    )
    assert cost_markdown(tmp_path) == ""
    for damaged in ("{", "[1]", '[{"what": "x update"}]'):
        (tmp_path / "benchmark.json").write_text(damaged)
        with pytest.raises(UserError, match=r"benchmark\.json"):
            measured_costs(tmp_path)
