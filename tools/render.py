"""Write this repository's own pages from the files under results/.

    python tools/render.py

docs/results.md, docs/beyond.md, docs/gallery.md, docs/notebook.md, the tables of docs/methods.md,
docs/table.md, docs/tune.md, docs/speed.md, docs/fidelity.md, docs/shifts.md, docs/scaling-out.md,
docs/quickstart.md and README.md,
the code in the pages of examples, and the pictures and LaTeX tables in results/.
"""

import argparse
from pathlib import Path

from beyond_findings import FINDINGS
from examples_page import example_blocks
from gallery_page import draw_gallery, gallery_page
from goals import goals_table
from methods_page import method_tables
from notebook_page import notebook_parts
from pseudocoreset.engine.files import whole_file, write_text
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.page import beyond_page
from pseudocoreset.reproduce.beyond.pictures import draw_beyond
from pseudocoreset.reproduce.beyond.stored import beyond_scopes
from pseudocoreset.reproduce.cells import Scope
from pseudocoreset.reproduce.covariance.measure import covariance_table
from pseudocoreset.reproduce.exact.show import draw_exact, exact_page, parts_table
from pseudocoreset.reproduce.fidelity.pictures import draw_fidelity
from pseudocoreset.reproduce.fidelity.show import fidelity_page, ranks_table
from pseudocoreset.reproduce.page import latex_tables, results_page, scopes
from pseudocoreset.reproduce.pictures import draw_charts, draw_pictures
from pseudocoreset.reproduce.small.show_classification import classification_table
from pseudocoreset.reproduce.small.show_regression import draw_traces, regression_table
from pseudocoreset.reproduce.stored import measured_cells
from readme_page import readme_blocks
from rest_goals import rest_goals_table
from scaling_page import scaling_tables
from search_page import search_section
from shifts_page import ood_table
from speed_page import filled, tables
from tables_page import tables_table
from tune_page import tune_tables
from uncertainty_figures import kept_table

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
    drawn = (draw_exact, draw_traces, draw_fidelity, draw_gallery)
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
    blocks = {**tables(results), **method_tables(), **readme_blocks(results)}
    blocks["exact"] = exact_page(results)
    blocks["exact-parts"] = parts_table(results).markdown()
    blocks["covariance"] = covariance_table(results).markdown()
    blocks["fidelity"] = fidelity_page(results)
    blocks["fidelity-ranks"] = ranks_table(results, Scope(paper.DATA), "bayes", 50).markdown()
    blocks["ood"] = ood_table(results)
    blocks["kept"] = kept_table(results)
    blocks["tables"] = tables_table(results)
    blocks["regression"] = regression_table(results).markdown()
    blocks["classification"] = classification_table(results).markdown()
    blocks |= {**scaling_tables(results), **tune_tables(results), **example_blocks(root)}
    beyond = root / "docs" / "beyond.md"
    texts = {page: repository_page(results, page), **latex_tables(results)}
    texts[beyond] = beyond_page(
        results, beyond, COMMAND, findings=FINDINGS, closing=search_section(results, beyond)
    )
    gallery = root / "docs" / "gallery.md"
    texts[gallery] = gallery_page(results, gallery)
    texts[root / "docs" / "notebook.md"], _ = notebook_parts(root)
    names = (
        "quickstart",
        "speed",
        "methods",
        "fidelity",
        "shifts",
        "uncertainty",
        "scaling-out",
        "table",
        "tune",
        *EXAMPLE_PAGES,
    )
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


if __name__ == "__main__":
    main()
