"""Write this repository's own pages from the files under results/.

    python tools/render.py

docs/results.md, docs/beyond.md, the tables of docs/methods.md, docs/tune.md, docs/speed.md,
docs/fidelity.md, docs/scaling-out.md and README.md, and the pictures and LaTeX tables in results/.
"""

import argparse
from collections.abc import Sequence
from os.path import relpath
from pathlib import Path

from goals import goals_table
from methods_page import method_tables
from pseudocoreset.engine.files import write_text
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.page import beyond_page, beyond_scopes
from pseudocoreset.reproduce.beyond.pictures import draw_beyond
from pseudocoreset.reproduce.beyond.stored import found_cells
from pseudocoreset.reproduce.beyond.tables import pair
from pseudocoreset.reproduce.cells import BEYOND, SIZES, TITLES, Cell, Scope, cell_with
from pseudocoreset.reproduce.covariance.measure import covariance_table
from pseudocoreset.reproduce.exact.show import draw_exact, exact_table, parts_table
from pseudocoreset.reproduce.fidelity.show import fidelity_text
from pseudocoreset.reproduce.page import latex_tables, picture_title, results_page, scopes
from pseudocoreset.reproduce.pictures import draw_charts, draw_pictures, picture_path
from pseudocoreset.reproduce.regression.show import draw_traces, regression_table
from pseudocoreset.reproduce.stored import measured_cells
from pseudocoreset.reproduce.tables import UNKNOWN, Found, paper_scores
from pseudocoreset.reproduce.text_table import TextTable
from rest_goals import rest_goals_table
from scaling_page import scaling_tables
from search_page import search_section
from speed_page import filled, tables

ROOT = Path(__file__).parent.parent
COMMAND = "`python tools/render.py`"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()  # there are no options
    for scope in scopes(ROOT / "results"):
        for line in draw_pictures(ROOT / "results", scope):
            print(line)
        draw_charts(ROOT / "results", scope)
    for scope in beyond_scopes(ROOT / "results"):
        for line in draw_beyond(ROOT / "results", scope):
            print(line)
    for line in (*draw_exact(ROOT / "results"), *draw_traces(ROOT / "results")):
        print(line)
    for path, text in rendered(ROOT).items():
        write_text(path, text)
        print(f"{path.relative_to(ROOT)}: written")


def rendered(root: Path) -> dict[Path, str]:
    """All texts that follow from the results of a repository, by their path."""
    results, page = root / "results", root / "docs" / "results.md"
    blocks = {**tables(results), **method_tables(), "table1": readme_table(results)}
    blocks["exact"] = exact_table(results).markdown()
    blocks["exact-parts"] = parts_table(results).markdown()
    blocks["covariance"] = covariance_table(results).markdown()
    blocks["fidelity"] = fidelity_text(results)
    blocks["regression"] = regression_table(results).markdown()
    blocks |= scaling_tables(results)
    beyond = root / "docs" / "beyond.md"
    texts = {page: repository_page(results, page), **latex_tables(results)}
    texts[beyond] = beyond_page(results, beyond, COMMAND, search_section(results, beyond))
    names = ("speed", "methods", "fidelity", "scaling-out", "tune")
    filled_pages = [root / "docs" / f"{name}.md" for name in names]
    for path in (*filled_pages, root / "README.md"):
        texts[path] = filled(path.read_text(encoding="utf-8"), blocks)
    return texts


def repository_page(results: Path, page: Path) -> str:
    """docs/results.md: with our goals and a summary."""
    goals = {}
    for scope in scopes(results):
        table = goals_table(measured_cells(results, scope, "table1"), scope)
        found = [each for each in (table, rest_goals_table(results, scope)) if each is not None]
        if found:
            goals[scope] = "\n".join(each.markdown() for each in found)
    summary = (results / "summary.md").read_text(encoding="utf-8")
    return results_page(results, page, writer=COMMAND, opening=summary, goals=goals)


README_METHODS = ("random", "bpc-fkl", "fbpc-isotropic", "fbpc")


def readme_table(out: Path) -> str:
    """Table 1 of CIFAR-10 in short, and a picture."""
    scope = Scope(paper.DATA)
    found = measured_cells(out, scope, "table1")
    text = (
        "CIFAR-10, ConvNet, by images per class: accuracy % / NLL, and the paper's in brackets.\n\n"
        f"{headline(found, scope, best_rows(out)).markdown()}"
    )
    picture = picture_path(out, scope, 10)
    if picture.exists():
        words = f"CIFAR-10, {picture_title(out, scope, 10)}"
        text += f"\n![{words}]({relpath(picture, out.parent)})\n"
    return text


def headline(found: Found, scope: Scope, more: Sequence[tuple[str, ...]] = ()) -> TextTable:
    """A row a method, by its tuned recipe where that was measured; and more rows."""
    rows = []
    for method in README_METHODS:
        row = [TITLES[method]]
        for ipc in SIZES:
            recipes = ("tuned", "paper", None)  # random images have none
            cells = [cell_with("table1", method, ipc, name, scope.data) for name in recipes]
            row.append(_short(next((c for c in cells if c in found), cells[1]), found, scope))
        rows.append(tuple(row))
    return TextTable(("", *map(str, SIZES)), [[*rows, *more]])


def best_rows(out: Path) -> list[tuple[str, ...]]:
    """The best coresets for their size; none where they were not measured."""
    cells = [Cell(BEYOND, "best", ipc, None) for ipc in SIZES]
    found = found_cells(out, Scope(paper.DATA))
    if not any(cell in found for cell in cells):
        return []
    titles = {"chain": "`best`, one chain", "pooled": "`best`, ten chains pooled"}
    return [
        (title, *(pair(found.get(cell), way) for cell in cells)) for way, title in titles.items()
    ]


def _short(cell: Cell, found: Found, scope: Scope) -> str:
    ours, theirs = UNKNOWN, paper_scores(cell, scope)
    if cell in found:
        accuracy, nll = (found[cell].score(name).mean for name in ("accuracy", "nll"))
        ours = f"{accuracy:.1f} / {nll:.2f}"
    if theirs is None:
        return ours
    return f"{ours} ({theirs.accuracy.mean:.1f} / {theirs.nll.mean:.2f})"


if __name__ == "__main__":
    main()
