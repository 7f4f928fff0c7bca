"""The results page and the LaTeX tables, written from the stored cells."""

from collections.abc import Iterable, Mapping
from os.path import relpath
from pathlib import Path

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.text import printable, significant
from pseudocoreset.report.protocol_words import protocol_sentence
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.beyond.stored import beyond_scopes
from pseudocoreset.reproduce.cells import DATA_TITLES, FULL, SIZES, TABLE2, TABLES, Scope
from pseudocoreset.reproduce.commands import commands_for
from pseudocoreset.reproduce.cost import cost_markdown
from pseudocoreset.reproduce.pictures import chart_path, logits_path, norms_path, picture_path
from pseudocoreset.reproduce.sections import Section, sections
from pseudocoreset.reproduce.shipped import shipped_path
from pseudocoreset.reproduce.stored import Measured, measured_cells
from pseudocoreset.reproduce.summary import summary
from pseudocoreset.reproduce.tables import (
    MADE_WITH,
    Found,
    by_paper,
    dsa_made_with,
    dsa_table,
    order_sentences,
    short_scores,
    table1,
)
from pseudocoreset.reproduce.text_table import folded

FIRST = ("table1", "dsa")
"""The tables that are shown even if none of their cells is measured."""
MARK = "<!-- written by {} from the measured cells: do not edit -->"
COMMAND = "`pseudocoreset reproduce`"

_HOW = """\
{writer} writes this page from the JSON files under `{results}`. They also hold the settings, seeds,
versions and wall-clock times.

- Scores are means ± standard deviations over seeds. Each seed is one chain of SGHMC on the same
  coreset. For `Random`, each seed also draws new images.
- The recipe `paper` uses the settings printed in the paper. `tuned` uses settings found on held-out
  training images.
- *NLL* is computed from the averaged prediction. *NLL of Kim et al.* is computed as in their code
  of 2022 and is larger. We do not know which one the paper prints.
- *better* and *missed* mean that the difference is larger than √(s² + s'²), where s and s' are the
  two standard deviations. They do not include the variation between coresets of different seeds.
"""


def scopes(out: Path) -> list[Scope]:
    """The data sets that have cells, CIFAR-10 first; CIFAR-10 if there are no cells at all."""
    folders = [folder for table in TABLES for folder in (out / table).glob("*/")]
    found = {Scope.labelled(folder.name) for folder in folders} or {Scope(paper.DATA)}
    return sorted(found, key=lambda scope: (scope.data != paper.DATA, scope.label))


def rendered(out: Path) -> dict[Path, str]:
    """All texts that `pseudocoreset reproduce` writes beside the cells, by their path."""
    page = out / "results.md"
    return {page: results_page(out, page), **latex_tables(out)}


def latex_tables(out: Path) -> dict[Path, str]:
    """The tables of all data in LaTeX, by their path."""
    return {path: text for s in scopes(out) for path, text in _latex_tables(out, s).items()}


def _latex_tables(out: Path, scope: Scope) -> dict[Path, str]:
    """The tables by our protocol and by the paper's, if they were measured."""
    found = {table: measured_cells(out, scope, table) for table in FIRST}
    of_paper = {table: by_paper(cells) for table, cells in found.items()}
    texts = {}
    for section in sections(out, scope):
        caption = f"{section.title} ({scope.label}, scored on the {scope.split} images)."
        rows, name = section.rows, f"{scope.label}{section.file}"
        if MADE_WITH in rows.header:
            rows = rows.without(MADE_WITH)
        latex = rows.latex(caption, f"tab:{section.table}-{name}")
        texts[out / section.table / f"{name}.tex"] = latex
    for name, cells, how in (
        (scope.label, found, ""),
        (f"{scope.label}-by-paper", of_paper, " with the paper's protocol"),
    ):
        on = f"({scope.label}, scored on the {scope.split} images{how})"
        if cells["table1"]:
            caption = f"Accuracy and negative log-likelihoods, ours and the paper's {on}."
            rows = table1(cells["table1"], scope, missing=cells is found).without(MADE_WITH)
            texts[out / "table1" / f"{name}.tex"] = rows.latex(caption, f"tab:table1-{name}")
        if cells["dsa"]:
            caption = f"Accuracy without and with DSA, ours and the paper's {on}."
            rows = dsa_table(cells["dsa"], cells["table1"], scope)
            texts[out / "dsa" / f"{name}.tex"] = rows.latex(caption, f"tab:dsa-{name}")
    return texts


def markdown_of(name: str, out: Path, scope: Scope) -> str:
    """One table of cells in Markdown."""
    if name not in FIRST:
        found = [section.markdown() for section in sections(out, scope, name)]
        return "\n".join(found) or f"{name}: nothing is measured on {scope.label} yet."
    of_table1 = measured_cells(out, scope, "table1")
    if name == "table1":
        return table1(of_table1, scope).markdown()
    return dsa_table(measured_cells(out, scope, "dsa"), of_table1, scope).markdown()


def results_page(
    out: Path,
    page: Path,
    *,
    writer: str = COMMAND,
    opening: str = "",
    goals: Mapping[Scope, str] | None = None,
) -> str:
    """The whole page: a summary, then a section for each data set.

    Args:
        out: the folder of the results
        page: the path that the page is for
        writer: the command that writes it
        opening: text that comes after the summary table
        goals: a table of goals by data set
    """
    results = relpath(out, page.parent)
    how = folded("How to read this page", _HOW.format(results=out.name, writer=writer))
    found = scopes(out)
    beyond = [scope for scope in beyond_scopes(out) if scope not in found]
    parts = [f"{MARK.format(writer)}\n\n# Results\n", summary(out, found + beyond), opening, how]
    for scope in found:
        parts += _scope_parts(out, scope, results, (goals or {}).get(scope, ""))
    return "\n".join(part for part in parts if part)


def _scope_parts(out: Path, scope: Scope, results: str, goals: str) -> list[str]:
    found = {table: measured_cells(out, scope, table) for table in TABLES}
    rest = [section.on_page() for section in sections(out, scope)]
    on = "the test images" if not scope.holdout else f"{scope.holdout:,} held-out training images"
    size = f" resized to {scope.image_size}×{scope.image_size}" if scope.image_size else ""
    parts = [f"## {DATA_TITLES.get(scope.data, scope.data)}{size}, scored on {on}\n"]
    if not any(found.values()):
        parts.append("Nothing is measured yet.\n")
    if not rest or any(found[table] for table in FIRST):
        parts += _first_tables(out, scope, results, found)
    parts += [*rest, *_more_pictures(out, scope, results)]
    if scope == Scope(paper.DATA) and cost_markdown(out):
        parts.append(folded("Cost of an update", cost_markdown(out)))
    if goals:
        parts.append(folded("Goals, set before measuring", goals))
    sampled = [cell for table in (*FIRST, TABLE2) for cell in found[table].values()]
    if sampled:
        parts.append(folded("How posteriors were sampled", _protocol_words(sampled)))
    return parts + _command_parts(found.values(), scope, out.name)


def _first_tables(out: Path, scope: Scope, results: str, found: Mapping[str, Found]) -> list[str]:
    """Table 1 and the table of augmentation, with their pictures and coresets."""
    of_table1, of_dsa = found["table1"], found["dsa"]
    title = f"Table 1: {TABLES['table1'].shows}"
    chart = chart_path(out, scope)
    words = "Accuracy by method and images per class, ours and the paper's"
    picture = f"![{words}]({_place(chart, out, results)})" if chart.exists() else ""
    parts = [Section("table1", title, table1(of_table1, scope), picture=picture).on_page()]
    sentences = order_sentences(of_table1, scope)
    if sentences:
        lines = "".join(f"- {sentence}\n" for sentence in sentences)
        parts.append(folded("Methods in order of accuracy", lines))
    same = "with the paper's protocol: the same coresets, the paper's noise, no prior"
    with_dsa, without = by_paper(of_table1), by_paper(of_dsa)
    if with_dsa:
        rows = table1(with_dsa, scope, missing=False)
        parts.append(Section("table1", f"Table 1 {same}", rows, folded=True).on_page())
    parts += _picture_parts(out, scope, results) + _coreset_parts(out, scope, of_table1)
    made = dsa_made_with(of_dsa, scope) if of_dsa else ""
    rows = dsa_table(of_dsa, of_table1, scope)
    parts.append(Section("dsa", f"DSA: {TABLES['dsa'].shows}", rows, made).on_page())
    if without:
        rows = dsa_table(without, with_dsa, scope)
        parts.append(Section("dsa", f"DSA {same}", rows, folded=True).on_page())
    return parts


def _more_pictures(out: Path, scope: Scope, results: str) -> list[str]:
    """The figures of norms and of logits, where they are drawn."""
    drawn = {
        norms_path(out, scope): "Accuracy by norm, of coresets made for one norm and for four",
        logits_path(out, scope): "One image of a coreset, and outputs of networks of four norms",
    }
    pictures = [
        f"![{words}]({_place(path, out, results)})\n"
        for path, words in drawn.items()
        if path.exists()
    ]
    return ["### Pictures of norms\n", *pictures] if pictures else []


def _protocol_words(measured: list[Measured]) -> str:
    """Each protocol in use, with its temperature and weight decay."""
    users: dict[str, dict[str, None]] = {}
    noises: dict[int, str] = {}
    for cell in measured:
        protocol = cell.content["protocol"]
        what = "all training images" if cell.cell.method == FULL else "coresets"
        what += "" if cell.cell.dsa else " made and sampled without augmentation"
        users.setdefault(protocol_sentence(protocol), {})[what] = None
        coreset = cell.content["coreset"]
        noises[coreset.get("seen", coreset["images"])] = (
            f"temperature {significant(protocol['temperature'])}, "
            f"weight decay {significant(protocol['weight_decay'])}"
        )
    lines = [f"- {', '.join(names)}: {sentence}\n" for sentence, names in users.items()]
    sizes = "; ".join(f"{images:,} images seen: {noises[images]}" for images in sorted(noises))
    lines.append(
        "- For coresets, the step, friction, epochs and samples are the paper's. The temperature "
        "and the prior N(0, 1/τ), which is a weight decay of τ/m, were chosen once on held-out "
        f"images for all methods and sizes: {sizes}.\n"
        "- The paper's protocol has no prior. It prints the noise N(0, 2d) with d = 0.01/m. If 2d "
        "is read as a variance, the noise destroys the chains, so we read it as a standard "
        "deviation. This is a temperature of T = 2d²m/(ηα) = 0.067/m. Separate tables score the "
        "same coresets with this protocol.\n"
    )
    return "".join(lines)


def _picture_parts(out: Path, scope: Scope, results: str) -> list[str]:
    parts = []
    for ipc in SIZES:
        picture = picture_path(out, scope, ipc)
        if picture.exists():
            words = picture_title(out, scope, ipc)
            parts.append(f"{words}:\n\n![{words}]({_place(picture, out, results)})\n")
    return ["### Pictures: the images of the FBPC coresets\n", *parts] if parts else []


def _place(picture: Path, out: Path, results: str) -> str:
    """Where a picture is, seen from the page."""
    return (Path(results) / picture.relative_to(out)).as_posix()


def picture_title(out: Path, scope: Scope, ipc: int) -> str:
    """What a picture shows, in words; the recipe is the coreset's."""
    path = shipped_path(out, scope, "fbpc", ipc)
    words = f"FBPC, {ipc} per class"
    if not path.exists():
        return words
    from pseudocoreset.coreset.pictures import (
        images_by_class,  # matplotlib takes a second to import
    )

    coreset = Pseudocoreset.load(path)
    shown = max(len(group.pixels) for group in images_by_class(coreset))
    some = f", {shown} of them shown" if shown < ipc else ""
    recipe = printable(coreset.provenance.config.get("recipe"))
    return f"{words}{some}, recipe `{recipe}`"


def _coreset_parts(out: Path, scope: Scope, found: Found) -> list[str]:
    """The coresets that are shipped, with the scores of the very file."""
    if scope.holdout:
        return []
    rows = []
    for measured in found.values():
        cell = measured.cell
        if cell.ipc is None or cell.recipe is None:
            continue
        path = shipped_path(out, scope, cell.method, cell.ipc)
        fingerprints = measured.content["fingerprints"]
        if path.exists() and Pseudocoreset.load(path).fingerprint in fingerprints:
            scores = short_scores(measured)
            rows.append(f"- `{path.name}`, recipe `{cell.recipe}`: {scores}\n")
    if not rows:
        return []
    return [
        "### Coresets in the repository\n",
        f"These files are in `{out.name}/coresets`, in half precision. The scores are accuracy % / "
        f"NLL / NLL of Kim et al. `pseudocoreset evaluate {out.name}/coresets/FILE --data SPEC` "
        "measures them again; the results agree within the standard deviations.\n",
        "".join(rows),
    ]


def _command_parts(tables: Iterable[Found], scope: Scope, folder: str) -> list[str]:
    """The commands that measure all cells of the page."""
    lines = [line for found in tables for line in commands_for(found, scope)]
    if not lines:
        return []
    listed = "\n".join(lines)
    words = (
        "These commands measure the cells again with the current code and settings. Where a cell "
        f"was made with the shipped coreset, copy it first: `cp -rL {folder}/coresets elsewhere/`."
        "\n"
    )
    return [folded("Commands", words, f"```sh\n{listed}\n```\n")]
