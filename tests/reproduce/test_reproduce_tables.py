"""What is rendered of cells made by hand."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from made_cells import made
from pseudocoreset import load_data, recipes
from pseudocoreset.cli import main
from pseudocoreset.distillation import DistillOptions, resolve
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import Cell, Scope, cells_of
from pseudocoreset.reproduce.compare import nll_verdict, verdict
from pseudocoreset.reproduce.page import FIRST, rendered, results_page
from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.registry import chosen_cells, listing
from pseudocoreset.reproduce.stored import (
    Measured,
    measured_cells,
    other_than_recipe,
    write_measured,
)
from pseudocoreset.reproduce.tables import (
    MADE_WITH,
    by_paper,
    dsa_made_with,
    dsa_table,
    made_with,
    order_sentences,
    table1,
)
from pseudocoreset.reproduce.text_table import TextTable
from pseudocoreset.reproduce.time_spent import TimeSpent

ROOT = Path(__file__).parent.parent.parent
CIFAR10 = Scope("cifar10")


def fbpc(ipc=10, recipe="paper", table="table1"):
    return Cell(table, "fbpc", ipc, recipe)


def line_of(text: str, *starts: str) -> str:
    (line,) = [row for row in text.splitlines() if row.startswith(f"| {' | '.join(starts)} |")]
    return line


@pytest.mark.parametrize(
    ("ours", "higher", "expected"),
    [
        (Figure(63.0, 0.3), True, "better"),
        (Figure(62.7, 0.3), True, "within noise"),
        (Figure(62.0, 0.3), True, "within noise"),
        (Figure(61.8, 0.3), True, "missed"),
        (Figure(61.8, 0.3), False, "better"),
        (Figure(63.0, 0.3), False, "missed"),
    ],
)
def test_verdict_compares_means_with_their_noise(ours, higher, expected):
    assert verdict(ours, Figure(62.33, 0.34), higher) == expected


@pytest.mark.parametrize(
    ("nll", "kim", "expected"),
    [
        (1.2, 1.25, "better"),
        (1.2, 1.31, "within noise"),
        (1.2, 1.32, "within noise (only our NLL meets it)"),
        (1.32, 1.5, "missed"),
        (1.2, 1.40, "missed (only our NLL meets it)"),
        (1.40, 1.2, "missed (only Kim et al.’s NLL meets it)"),
        (1.4, 1.5, "missed"),
    ],
)
def test_nll_verdict_is_the_worse_of_both_definitions(nll, kim, expected):
    assert nll_verdict(made(fbpc(), 62.0, nll, kim), Figure(1.31, 0.02)) == expected


def test_table1_has_no_spread_and_no_verdict_for_one_seed():
    measured = made(fbpc(), 63.0, 1.2)
    measured.content["seeds"] = measured.content["seeds"][:1]
    text = table1({fbpc(): measured}, CIFAR10).markdown()
    assert line_of(text, "10", "FBPC", "paper").startswith(
        "| 10 | FBPC | paper | 63.00 | 62.33 ± 0.34 | +0.67 one seed | 1.20 | 1.20 | 1.31 ± 0.02 "
        "| −0.11 / −0.11 one seed | 0.020 |"
    )


def test_page_has_tables_by_the_papers_protocol(tmp_path):
    full = Cell("table1", "full", None, None)
    found = {fbpc(): made(fbpc(), 63.0, 1.2), full: made(full, 80.0)}
    text = table1(by_paper(found), CIFAR10, missing=False).markdown()
    assert line_of(text, "10", "FBPC", "paper").startswith(
        "| 10 | FBPC | paper | 60.00 ± 0.10 | 62.33 ± 0.34 | −2.33 missed | 1.70 ± 0.01 | 1.90"
    )
    assert line_of(text, "all", "All training images").startswith(
        "| all | All training images | – | 77.00 ± 0.10 | – | – | 1.50 ± 0.01 | 1.70"
    )
    assert "not measured" not in text
    for measured in found.values():
        write_measured(measured.cell.path(tmp_path, CIFAR10), measured)
    page = results_page(tmp_path, tmp_path / "results.md")
    shown = table1(by_paper(found), CIFAR10, missing=False).without(MADE_WITH).markdown()
    assert (
        "<summary>Table 1 with the paper's protocol: the same coresets, the paper's noise, no "
        f"prior</summary>\n\n{shown}" in page
    )
    assert "<summary>DSA with the paper's protocol" not in page
    plain = made(fbpc(table="dsa"), 52.0)
    write_measured(plain.cell.path(tmp_path, CIFAR10), plain)
    page = results_page(tmp_path, tmp_path / "results.md")
    again = page[page.index("<summary>DSA with the paper's protocol") :]
    assert "49.00 ± 0.10 (paper 55.07 ± 1.30: missed)" in line_of(again, "FBPC (no DSA)")
    assert "60.00 ± 0.10 (paper 62.33 ± 0.34: missed)" in line_of(again, "FBPC (DSA)")


def test_table1_compares_ours_with_the_papers():
    cells = [made(fbpc(), 60.0, 1.25, 1.5), made(fbpc(recipe="tuned"), 63.5, 1.1, 1.2)]
    cells.append(made(Cell("table1", "full", None, None), 85.0))
    text = table1({m.cell: m for m in cells}, CIFAR10).markdown()
    row = line_of(text, "10", "FBPC", "paper")
    assert "| 60.00 ± 0.10 | 62.33 ± 0.34 | −2.33 missed |" in row
    assert "| 1.31 ± 0.02 | −0.06 / +0.19 missed (only our NLL meets it) |" in row
    assert row.endswith("| 20 experts × 30 epochs, 1,000 updates, 5 seeds, 1:00 |")
    tuned = line_of(text, "10", "FBPC", "tuned")
    assert "+1.17 better" in tuned
    assert "−0.21 / −0.11 better" in tuned
    missing = line_of(text, "50", "BPC-fKL", "paper")
    assert "64.74 ± 0.32" in missing
    assert missing.endswith("| not measured |")
    assert "85.00 ± 0.10 | – | – |" in line_of(text, "all", "All training images", "–")
    assert "| 50 | FBPC | tuned |" not in text
    assert {line.count("|") for line in text.splitlines()} == {14}


def test_table1_has_no_figure_of_the_paper_for_other_data():
    measured = made(fbpc(), 60.0)
    for scope in (Scope("cifar10", 5000), Scope("cifar10", image_size=16), Scope("digits")):
        text = table1({measured.cell: measured}, scope).markdown()
        assert "62.33" not in text
        assert "missed" not in text


@pytest.mark.parametrize("label", ["digits", "a-b", "a-16px", "a-holdout50", "a-16px-holdout50"])
def test_scope_is_known_by_its_folder(label):
    assert Scope.labelled(label).label == label
    assert Scope.labelled(label).data == label.partition("-16px")[0].partition("-holdout")[0]


def test_dsa_table_takes_rows_with_augmentation_from_table1():
    without, augmented = made(fbpc(table="dsa"), 50.0), made(fbpc(), 62.5)
    found = {without.cell: without}
    text = dsa_table(found, {augmented.cell: augmented}, CIFAR10).markdown()
    assert "50.00 ± 0.10 (paper 55.07 ± 1.30: missed)" in line_of(text, "FBPC (no DSA)", "paper")
    assert "62.50 ± 0.10 (paper 62.33 ± 0.34: within noise)" in line_of(text, "FBPC (DSA)", "paper")
    assert "– (paper 37.26 ± 1.65)" in line_of(text, "BPC-fKL (no DSA)", "paper")


def test_order_sentences_need_all_methods():
    accuracies = {"random": 30.0, "bpc-rkl": 38.0, "bpc-fkl": 56.0, "fbpc": 62.0}
    for ipc, swapped in ((10, {}), (50, {"bpc-rkl": 20.0})):
        found = {}
        for method, accuracy in (accuracies | swapped).items():
            cell = Cell("table1", method, ipc, None if method == "random" else "paper")
            found[cell] = made(cell, accuracy)
        (sentence,) = order_sentences(found, CIFAR10)
        if swapped:
            assert "BPC-rKL 20.0 < Random 30.0" in sentence
            assert sentence.endswith("not the paper's order.")
        else:
            assert sentence.endswith("FBPC 62.0; the paper's order.")
    del found[cell]
    assert order_sentences(found, CIFAR10) == []


def test_latex_escapes_special_characters():
    table = TextTable(("a & b", "%"), [[("1 ± 2", "x_y `z`")], [("−3 × 4", "–")]])
    text = table.latex("50 % of {all}", "tab:x")
    assert r"\caption{50 \% of \{all\}}" in text
    assert r"a \& b & \% \\" in text
    assert r"1 $\pm$ 2 & x\_y z \\" in text
    assert r"$-$3 $\times$ 4 & -- \\" in text
    assert text.count(r"\midrule") == 2


def stored(out: Path, *cells: Measured, scope: Scope = CIFAR10) -> None:
    for measured in cells:
        write_measured(measured.cell.path(out, scope), measured)


def test_rendered_has_a_page_and_latex_beside_the_cells(tmp_path):
    out = tmp_path / "results"
    stored(out, made(fbpc(), 60.0, 1.25, 1.5), made(fbpc(table="dsa"), 50.0))
    stored(out, made(fbpc(), 59.0), scope=Scope("cifar10", 5000))
    texts = rendered(out)
    names = {str(path.relative_to(tmp_path)) for path in texts}
    tables = ("table1/cifar10", "table1/cifar10-holdout5000", "dsa/cifar10")
    tex = {f"results/{name}{how}.tex" for name in tables for how in ("", "-by-paper")}
    assert names == {"results/results.md"} | tex
    ours, again = (texts[out / "table1" / f"cifar10{how}.tex"] for how in ("", "-by-paper"))
    assert "All training images" in ours
    assert r"10 & FBPC & paper & 60.00 $\pm$ 0.10" in ours
    assert "All training images" not in again  # where what is missing is not listed
    assert r"10 & FBPC & paper & 57.00 $\pm$ 0.10" in again
    assert "scored on the test images with the paper's protocol" in again
    assert r"\label{tab:table1-cifar10-by-paper}" in again
    assert "47.00" in texts[out / "dsa" / "cifar10-by-paper.tex"]
    (page,) = rendered(tmp_path / "nothing").values()  # and no empty tables
    assert "with the paper's protocol" not in page
    assert "## CIFAR-10, scored on the test images" in page
    stored(tmp_path / "other", made(fbpc(), 60.0), scope=Scope("digits"))
    page = rendered(tmp_path / "other")[tmp_path / "other" / "results.md"]
    assert "## Digits" in page
    assert "## CIFAR-10" not in page
    page = texts[out / "results.md"]
    assert "60.00 ± 0.10" in page
    assert "scored on 5,000 held-out training images" in page
    assert "made and sampled without augmentation" in page
    assert "epochs per chain: 50, with the augmentation of the distillation." in page
    assert "100 images seen: temperature 1.0 × 10⁻³, weight decay 0.1" in page


def test_results_page_has_what_a_person_adds(tmp_path):
    stored(tmp_path, made(fbpc(), 60.0))
    said = {"opening": "In short.\n", "goals": {CIFAR10: "all\n"}}
    page = results_page(tmp_path, tmp_path / "docs" / "page.md", writer="`me`", **said)
    assert page.startswith("<!-- written by `me` from")
    summary = page.index("| CIFAR-10 | FBPC |")
    assert summary < page.index("\nIn short.\n") < page.index("`me` writes this page")
    assert f"under `{tmp_path.name}`" in page
    assert "<summary>Goals, set before measuring</summary>\n\nall\n\n</details>" in page


def test_reproduce_leaves_pages_beside_its_results_alone(tmp_path, monkeypatch):
    stored(tmp_path / "results", made(fbpc(), 60.0))
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / "README.md", tmp_path / "docs" / "results.md"]
    for page in pages:
        page.write_text("a\n<!-- table1 -->\nold\n<!-- /table1 -->\n")
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--quiet"]) == 0
    assert "60.00 ± 0.10" in (tmp_path / "results" / "results.md").read_text()
    assert [page.read_text() for page in pages] == [
        "a\n<!-- table1 -->\nold\n<!-- /table1 -->\n"
    ] * 2


def test_other_than_recipe_reads_settings_of_the_first_edition():
    cell = fbpc(10, "tuned")
    before = measured_cells(ROOT / "results", CIFAR10, "table1")[cell]
    config = before.content["coreset"]["config"]
    assert "learn_labels" in config
    assert "labels" not in config
    learned = {**before.content["coreset"], "config": {**config, "learn_labels": True}}
    changed = replace(before, content={**before.content, "coreset": learned})
    assert other_than_recipe(changed, "cifar10") == {"labels": ("learned", "hard")}


def test_chosen_cells_match_patterns_each_once():
    names = [
        cell.name
        for cell in chosen_cells(["table1"], "paper", "cifar10", "fbpc/10, random/*,full/*")
    ]
    assert names == ["random/1", "random/10", "random/50", "fbpc/10", "full/all"]
    both = chosen_cells(["table1", "pictures"], "paper", "cifar10", None)
    assert len(both) == len(set(both)) == 16


@pytest.fixture
def tuned_at_10(monkeypatch):
    """FBPC of 10 images per class is all that has a recipe of its own, isotropic and not."""
    shipped = {
        key: {**sections, "tuned": {}} if key[0] == "cifar10" else sections
        for key, sections in recipes._shipped().items()
    }
    tuned = {"fbpc": {"draws": 4}, "fbpc-isotropic": {"draws": 4}}
    shipped["cifar10", 10] = {**shipped["cifar10", 10], "tuned": tuned}
    monkeypatch.setattr(recipes, "_shipped", lambda: shipped)


@pytest.mark.usefixtures("tuned_at_10")
@pytest.mark.parametrize(
    ("table", "data", "tuned"),
    [
        ("table1", "cifar10", {"fbpc-isotropic/10", "fbpc/10"}),
        ("dsa", "cifar10", {"fbpc/10"}),
        ("table1", "digits", set()),
    ],
)
def test_cells_of_tuned_are_the_papers_where_nothing_is_tuned(table, data, tuned):
    paper_cells, cells = (cells_of(table, recipe, data) for recipe in ("paper", "tuned"))
    assert {cell.name for cell in cells if cell.recipe == "tuned"} == tuned
    assert {cell.name for cell in set(cells) - set(paper_cells)} == tuned
    assert [cell.name for cell in cells] == [cell.name for cell in paper_cells]


@pytest.mark.parametrize("table", FIRST)
def test_stored_cells_have_the_settings_of_their_recipes(table):
    found = measured_cells(ROOT / "results", CIFAR10, table)
    assert found
    for cell, measured in found.items():
        others = other_than_recipe(measured, "cifar10").keys() - {"steps"}
        assert not others, f"{cell.name}: measure it again, as `tuned` has other {others} now"


def test_other_than_recipe_has_start_epochs_within_the_experts():
    cell = Cell("table1", "bpc-fkl", 10, "paper")
    recipe = recipes.recipe_for("cifar10", 10, "bpc-fkl", "paper").values
    before = made(cell, 40.0)

    def others(start_epochs: int, epochs: int) -> dict[str, tuple[int, int]]:
        config = {"start_epochs": start_epochs}
        content = {
            **before.content,
            "coreset": {**before.content["coreset"], "config": config},
            "experts": {**before.content["experts"], "epochs": epochs},
        }
        return other_than_recipe(replace(before, content=content), "cifar10")

    wanted = recipe["start_epochs"]
    last = recipe["expert_epochs"] + wanted - 1  # the last epoch of a student that starts last
    assert others(wanted, last) == {}
    assert others(wanted - 1, last) == {"start_epochs": (wanted - 1, wanted)}
    assert others(wanted - 1, last - 1) == {}
    assert others(wanted, last - 1) == {"start_epochs": (wanted, wanted - 1)}


def test_other_than_recipe_has_settings_unlike_todays():
    job = resolve(load_data("digits"), (), "bpc-rkl", DistillOptions(ipc=10), "paper")
    config = job.config()
    cell = Cell("table1", "bpc-rkl", 10, "paper")
    before = made(cell, 40.0)
    coreset = {**before.content["coreset"], "config": config, "images": 100}
    same = replace(before, content={**before.content, "coreset": coreset})
    assert other_than_recipe(same, "digits") == {}  # its learning rate is so many times larger
    changed = {**config, "steps": 7, "average": 0.25}
    coreset["config"] = changed
    assert other_than_recipe(same, "digits") == {
        "steps": (7, config["steps"]),
        "average": (0.25, 0.0),
    }
    assert f"7 of {config['steps']:,} updates, average 0.25 (now 0.0)" in made_with(same, "digits")
    assert other_than_recipe(made(Cell("table1", "random", 10, None), 30.0), "digits") == {}
    without = dsa_made_with({cell: same, fbpc(): made(fbpc(), 60.0)}, Scope("digits"))
    assert without.startswith("The coresets without DSA had 20 experts × 30 epochs; ")
    assert without.endswith(
        f"Table 1. bpc-rkl/10 `paper`: 7 of {config['steps']:,} updates, average 0.25 (now 0.0). "
        "fbpc/10 `paper`: 1,000 of 50 updates."
    )


def test_listing_has_shortened_cells_and_experts_of_unknown_time(tmp_path):
    before = made(Cell("table1", "bpc-fkl", 10, "paper"), 55.0)
    duration = {**before.content["duration"], "experts_s": 2.0, "experts_whole": False}
    duration["whole"] = False
    others = {"num": 100, "epochs": 50, "fingerprint": "g"}
    content = {**before.content, "duration": duration, "experts": others}
    stored(tmp_path, made(fbpc(), 60.0), replace(before, content=content))
    shown = listing(["table1"], tmp_path, CIFAR10)
    assert "bpc-fkl/10 at least 1:00 (1,000 of 5,000 updates), fbpc/10 1:00\n" in shown
    assert (
        "at least 2:00 and 10:02 for the experts, on a device, "
        "without stores that were there before (100 experts × 50 epochs)"
    ) in shown


@pytest.mark.usefixtures("tuned_at_10")
def test_tuned_row_has_the_papers_cells_where_nothing_is_tuned():
    cells = [made(fbpc(1), 35.0), made(fbpc(recipe="tuned"), 63.5)]
    for method in ("random", "bpc-rkl", "bpc-fkl"):
        recipe = None if method == "random" else "paper"
        cells.append(made(Cell("table1", method, 10, recipe), 20.0))
    found = {measured.cell: measured for measured in cells}
    row = line_of(dsa_table({}, found, CIFAR10).markdown(), "FBPC (DSA)", "tuned")
    assert "| as `paper` | 63.50 ± 0.10" in row
    (sentence,) = order_sentences(found, CIFAR10)
    assert sentence.startswith(
        "10 per class, recipe `tuned` (`paper` where there is no other): Random 20.0"
    )


def test_paper_has_a_figure_for_every_cell():
    cells = {(c.method, c.ipc) for c in cells_of("table1", "paper", "cifar10") if c.ipc is not None}
    assert paper.TABLE1.keys() == cells
    assert paper.WITHOUT_DSA.keys() == {
        (c.method, c.ipc) for c in cells_of("dsa", "paper", "cifar10")
    }


def test_write_measured_stores_the_cell_itself(tmp_path):
    cell = fbpc()
    path = cell.path(tmp_path, CIFAR10)
    assert path == tmp_path / "table1" / "cifar10" / "fbpc-ipc10-paper.json"
    write_measured(path, made(cell, 60.0))
    assert json.loads(path.read_text())["cell"] == cell.as_json()


def test_time_spent_waits_for_another_process_to_write_it(tmp_path):
    path = tmp_path / "seconds.json"
    code = """if True:
        import sys, time
        from pathlib import Path
        from pseudocoreset.engine.files import write_json
        from pseudocoreset.reproduce.time_spent import TimeSpent
        path = Path(sys.argv[1])
        with TimeSpent(path)._locked():
            print("in", flush=True)
            time.sleep(0.5)
            write_json(path, {"seconds": 5.0, "begun": 0})
    """
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"in\n"
        with TimeSpent(path):
            pass
    assert TimeSpent(path).seconds > 5.0


def test_time_spent_is_not_whole_where_work_was_there_before(tmp_path):
    path, made_before = tmp_path / "seconds.json", tmp_path / "experts"
    made_before.mkdir()
    for _ in range(2):
        with TimeSpent(path, made_before):
            pass
    assert not TimeSpent(path, made_before).whole
    with TimeSpent(tmp_path / "other.json", tmp_path / "later"):
        (tmp_path / "later").mkdir()
    assert TimeSpent(tmp_path / "other.json", tmp_path / "later").whole


def test_time_spent_adds_up_and_knows_of_killed_blocks(tmp_path):
    path = tmp_path / "seconds.json"
    with pytest.raises(KeyboardInterrupt), TimeSpent(path):
        raise KeyboardInterrupt
    spent = TimeSpent(path)
    first = spent.seconds
    assert first > 0
    assert spent.whole
    began = time.time()
    with TimeSpent(path):  # of two processes at once, the time counts once
        time.sleep(0.02)
        with TimeSpent(path):
            time.sleep(0.04)
        second = spent.seconds
        assert second >= first + 0.04
        assert not spent.whole
        time.sleep(0.02)
    assert first + 0.08 <= spent.seconds <= first + time.time() - began
    assert spent.whole
    TimeSpent(path).__enter__()  # and killed
    with TimeSpent(path):
        pass
    assert not spent.whole
