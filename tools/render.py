"""Write this repository's own pages from the files under results/.

    python tools/render.py

docs/results.md, docs/beyond.md, docs/gallery.md, docs/notebook.md, the tables of docs/methods.md,
docs/tune.md, docs/speed.md, docs/fidelity.md, docs/scaling-out.md and README.md, the code in the
pages of examples, and the pictures and LaTeX tables in results/.
"""

import argparse
from collections.abc import Sequence
from os.path import relpath
from pathlib import Path

from examples_page import example_blocks
from gallery_page import draw_gallery, gallery_page
from goals import goals_table
from methods_page import method_tables
from notebook_page import notebook_parts
from pseudocoreset.engine.files import whole_file, write_text
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.page import beyond_page, beyond_scopes
from pseudocoreset.reproduce.beyond.pictures import draw_beyond
from pseudocoreset.reproduce.beyond.published import PUBLISHED
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
from pseudocoreset.reproduce.tables import UNKNOWN, Found, by_paper, paper_scores
from pseudocoreset.reproduce.text_table import TextTable
from rest_goals import rest_goals_table
from scaling_page import scaling_tables
from search_page import search_section
from speed_page import filled, tables
from tune_page import tune_tables

ROOT = Path(__file__).parent.parent
COMMAND = "`python tools/render.py`"
EXAMPLE_PAGES = ("replay", "photos", "scikit-learn", "plain-loop")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()  # there are no options
    for scope in scopes(ROOT / "results"):
        for line in draw_pictures(ROOT / "results", scope):
            print(line)
        draw_charts(ROOT / "results", scope)
    for scope in beyond_scopes(ROOT / "results"):
        for line in draw_beyond(ROOT / "results", scope):
            print(line)
    drawn = (draw_exact, draw_traces, draw_gallery)
    for line in (line for draw in drawn for line in draw(ROOT / "results")):
        print(line)
    for picture, content in notebook_parts(ROOT)[1].items():
        with whole_file(picture) as part:
            part.write_bytes(content)
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
    blocks |= {**scaling_tables(results), **tune_tables(results), **example_blocks(root)}
    beyond = root / "docs" / "beyond.md"
    texts = {page: repository_page(results, page), **latex_tables(results)}
    texts[beyond] = beyond_page(results, beyond, COMMAND, search_section(results, beyond))
    gallery = root / "docs" / "gallery.md"
    texts[gallery] = gallery_page(results, gallery)
    texts[root / "docs" / "notebook.md"], _ = notebook_parts(root)
    names = ("speed", "methods", "fidelity", "scaling-out", "tune", *EXAMPLE_PAGES)
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


README_METHODS = ("random", "bpc-fkl", "fbpc")


def readme_table(out: Path) -> str:
    """Table 1 of CIFAR-10 in short, and a picture."""
    scope = Scope(paper.DATA)
    found = measured_cells(out, scope, "table1")
    more = [paper_protocol(found, scope), vbpc(), *best_rows(out)]
    text = (
        "CIFAR-10, ConvNet: accuracy % / NLL by images per class (the paper's in brackets).\n\n"
        f"{headline(found, scope, more).markdown()}"
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


def paper_protocol(found: Found, scope: Scope) -> tuple[str, ...]:
    """FBPC with the paper's protocol, with the recipe of the headline."""
    cells = [cell_with("table1", "fbpc", ipc, "tuned", scope.data) for ipc in SIZES]
    of_paper = by_paper(found)
    return ("FBPC, protocol `paper`", *(_short(cell, of_paper, scope) for cell in cells))


def vbpc() -> tuple[str, ...]:
    """The published figures of VBPC."""
    (row,) = (each for each in PUBLISHED if each.name.startswith("VBPC"))
    figures = (row.at(ipc) for ipc in SIZES)
    return (row.title, *(f"{accuracy:.1f} / {nll:.2f}" for accuracy, nll in figures))


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
