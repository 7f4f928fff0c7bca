"""The sections of the results page: one table each, with our figures and the paper's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import (
    CONVNET,
    CORRUPTIONS,
    CROSS,
    FOUR_NORMS,
    NORMS,
    PROTOCOL,
    RESNET18,
    SIZES,
    TABLE2,
    TABLES,
    TITLES,
    Cell,
    Scope,
)
from pseudocoreset.reproduce.compare import NOISE, verdict
from pseudocoreset.reproduce.corruptions_table import (
    corruptions_table,
    fit_sentences,
    severities_table,
)
from pseudocoreset.reproduce.stored import Measured, measured_cells
from pseudocoreset.reproduce.tables import (
    IPC,
    MADE_WITH,
    UNKNOWN,
    Found,
    by_paper,
    made_with,
    paper_scores,
    shown,
    table1,
)
from pseudocoreset.reproduce.text_table import TextTable, folded

NET_TITLES = {
    CONVNET: "ConvNet",
    "resnet18": "ResNet18",
    "resnet34": "ResNet34",
    "vgg11": "VGG11",
    "alexnet": "AlexNet",
    "group": "group norm",
    "layer": "layer norm",
    "batch": "batch norm",
}
"""The networks as people call them; in the table of norms the ConvNet is one of instance norm."""
NORM_TITLES = {**NET_TITLES, CONVNET: "instance norm"}
PAPERS = "with the paper's protocol"
POOLED = "chains pooled (number)"
DETAILS = ("NLL of Kim et al.", "ECE", "Brier", POOLED, MADE_WITH)
"""The columns that are folded away below a table that has the last of them."""


@dataclass(frozen=True)
class Section:
    """A table of the page with a note below it.

    Args:
        table: the name of the table of the paper
        title: its heading, after a colon what it shows
        rows: the table
        words: the note
        file: the end of the name of its LaTeX file
        folded: whether the page shows it only when the reader clicks on its title
        picture: what the page shows above the table
    """

    table: str
    title: str
    rows: TextTable
    words: str = ""
    file: str = ""
    folded: bool = False
    picture: str = ""

    def markdown(self) -> str:
        """All columns, for the terminal."""
        return f"### {self.title}\n\n{self._body(self.rows)}"

    def on_page(self) -> str:
        """For the page: columns of details are folded away below the table."""
        name, _, what = self.title.partition(": ")
        heading = f"### {name}\n\n" + (f"{what[0].upper()}{what[1:]}.\n\n" if what else "")
        heading += f"{self.picture}\n\n" if self.picture else ""
        if MADE_WITH not in self.rows.header:
            body = self._body(self.rows)
        elif self.folded:
            body = self._body(self.rows.without(MADE_WITH))
        else:
            shown = [name for name in self.rows.header if name not in DETAILS]
            details = self.rows.only(*self.rows.header[:3], *DETAILS)
            named = "More scores and how" if len(details.header) > 4 else "How"
            below = folded(f"{named} each was made", details.markdown())
            body = f"{self._body(self.rows.only(*shown))}\n{below}"
        return folded(self.title, body) if self.folded else heading + body

    def _body(self, rows: TextTable) -> str:
        return rows.markdown() + (f"\n{self.words}\n" if self.words else "")


def sections(out: Path, scope: Scope, table: str | None = None) -> list[Section]:
    """The sections of all tables but the first two that have cells; or of one of them."""
    found: list[Section] = []
    for name, write in _WRITERS.items():
        cells = measured_cells(out, scope, name) if table in (None, name) else {}
        if cells:
            found += write(cells, scope)
    return found


def table2(found: Found, scope: Scope) -> TextTable:
    """Table 2: the columns of Table 1, and the scores of all chains pooled."""
    rows = table1(found, scope, missing=False)
    place = rows.header.index(MADE_WITH)
    header = (*rows.header[:place], POOLED, MADE_WITH)
    ordered: dict[tuple[str, ...], Measured] = {_row_key(c): m for c, m in found.items()}
    groups = [
        [(*row[:place], _pooled(ordered[row[:3]]), row[place]) for row in group]
        for group in rows.groups
    ]
    return TextTable(header, groups)


def _row_key(cell: Cell) -> tuple[str, str, str]:
    return str(cell.ipc), TITLES[cell.method], cell.recipe or UNKNOWN


def _pooled(measured: Measured) -> str:
    """Accuracy / NLL of all chains together; random images of several draws have none."""
    pooled = measured.content.get("pooled")
    if not pooled:
        return UNKNOWN
    return f"{100 * pooled['accuracy']:.2f} / {pooled['nll']:.2f} ({measured.seeds})"


def _table2(found: Found, scope: Scope) -> list[Section]:
    again = table2(by_paper(found), scope)
    return [
        Section(TABLE2, f"Table 2: {TABLES[TABLE2].shows}", table2(found, scope)),
        Section(TABLE2, f"Table 2 {PAPERS}", again, file="-by-paper", folded=True),
    ]


def _corruptions(found: Found, scope: Scope) -> list[Section]:
    made = []
    for cells, how, file in ((found, "", ""), (by_paper(found), f" {PAPERS}", "-by-paper")):
        rows = corruptions_table(cells, scope)
        title = f"Corruptions{how}: {TABLES[CORRUPTIONS].shows}"
        of_paper = ", with the paper's figures in brackets" if scope == Scope(paper.DATA) else ""
        lines = [f"Means over severities{of_paper}.", *_clean_sentences(cells, scope)]
        printed = "\n".join(lines)
        made.append(Section(CORRUPTIONS, title, rows, printed, file, folded=bool(file)))
        words = "\n".join(f"- {line}" for line in fit_sentences(cells, scope))
        title = f"Corruptions by severity{how}"
        rows = severities_table(cells, scope)
        made.append(Section(CORRUPTIONS, title, rows, words, f"{file}-severities", folded=True))
    return made


def _clean_sentences(found: Found, scope: Scope) -> list[str]:
    """The accuracy on images that are not corrupted, and what each coreset was made with."""
    lines = []
    for cell, measured in found.items():
        accuracy, made = shown(measured.score("accuracy"), 1), made_with(measured, scope.data)
        named = f"{TITLES[cell.method]}, recipe `{cell.recipe}`"
        lines.append(f"- {named}: {accuracy} % on clean images; {made}.")
    return lines


def pair(measured: Measured | None) -> str:
    """Accuracy / NLL."""
    if measured is None:
        return UNKNOWN
    accuracy, nll = measured.score("accuracy"), measured.score("nll")
    return f"{shown(accuracy, 1)} / {nll.mean:.2f}"


def by_network(
    found: Found,
    scope: Scope,
    nets: Sequence[str],
    named: Callable[[Cell], str],
    theirs: Callable[[Cell], str] = lambda _: "",
    titles: Mapping[str, str] = NET_TITLES,
) -> TextTable:
    """One row per coreset, one column per network it is scored on; `theirs` adds the paper's."""
    lines: list[tuple[str, ...]] = []
    for coreset in dict.fromkeys(replace(cell, on=CONVNET) for cell in found):
        cells = [replace(coreset, on=net) for net in nets]
        measured = [found[cell] for cell in cells if cell in found]
        figures = (pair(found.get(cell)) + theirs(cell) for cell in cells)
        made = next((each for each in measured if each.content["experts"]), measured[0])
        words = made_with(made, scope.data)
        lines.append((str(coreset.ipc), named(coreset), str(coreset.recipe), *figures, words))
    header = (IPC, "coreset", "recipe", *(titles[net] for net in nets), MADE_WITH)
    return TextTable(header, [lines])


def made_for_words(cell: Cell) -> str:
    """The networks that a coreset is made for."""
    return f"made for {' + '.join(NET_TITLES[net] for net in cell.made_for)}"


def _cross(found: Found, scope: Scope) -> list[Section]:
    def theirs(cell: Cell) -> str:
        if scope != Scope(paper.DATA) or cell.made_for != (CONVNET,) or cell.ipc is None:
            return ""
        scores = paper.CROSS_ARCHITECTURE[cell.ipc, cell.on]
        return f" (paper {scores.accuracy.mean:.1f} / {scores.nll.mean:.2f})"

    return _both(CROSS, "Across architectures", found, scope, theirs)


def _resnet18(found: Found, scope: Scope) -> list[Section]:
    def theirs(cell: Cell) -> str:
        scores = (
            paper.RESNET18.get((cell.made_for, cell.on)) if scope == Scope(paper.DATA) else None
        )
        if scores is None:
            return ""
        accuracy, nll = scores
        return f" (paper {accuracy:.1f}" + ("" if nll is None else f" / {nll:.2f}") + ")"

    return _both(RESNET18, "ResNet18", found, scope, theirs)


def _both(
    table: str,
    title: str,
    found: Found,
    scope: Scope,
    theirs: Callable[[Cell], str],
) -> list[Section]:
    """Accuracy % / NLL by our protocol and by the paper's."""
    nets = TABLES[table].on
    made = [
        by_network(cells, scope, nets, made_for_words, theirs) for cells in (found, by_paper(found))
    ]
    diverged = [
        f"{cell.ipc} per class on {NET_TITLES[cell.on]}"
        for cell, measured in found.items()
        if measured.by_paper is None
    ]
    words = f"Chains diverged: {', '.join(diverged)}." if diverged else ""
    return [
        Section(table, f"{title}: {TABLES[table].shows}; accuracy % / NLL", made[0]),
        Section(table, f"{title} {PAPERS}", made[1], words, file="-by-paper", folded=True),
    ]


def norm_name(cell: Cell) -> str:
    """A coreset of the table of norms, as the paper calls it."""
    several = cell.made_for == FOUR_NORMS
    if cell.method == "fbpc":
        return f"FBPC-{'multi' if several else 'single'}"
    return f"WBPC{'-multi' if several else ''}"


def _norms(found: Found, scope: Scope) -> list[Section]:
    words = "WBPC is BPC-fKL. The paper has a figure without numbers."
    words = "\n".join([words, *(f"- {line}" for line in claim_sentences(found))])
    rows = by_network(found, scope, FOUR_NORMS, norm_name, titles=NORM_TITLES)
    return [Section(NORMS, f"Norms: {TABLES[NORMS].shows}; accuracy % / NLL", rows, words)]


def claim_sentences(found: Found) -> list[str]:
    """Whether what the paper says of its figure is so here, where all of it is measured."""
    said = []
    for recipe in dict.fromkeys(cell.recipe for cell in found):
        means = {
            (norm_name(cell), cell.on): measured.score("accuracy").mean
            for cell, measured in found.items()
            if cell.recipe == recipe
        }
        others = [net for net in FOUR_NORMS if net != CONVNET]
        for better, worse, nets, where in (
            ("FBPC-multi", "FBPC-single", others, "every norm that FBPC-single is not made for"),
            ("FBPC-multi", "WBPC-multi", FOUR_NORMS, "all norms"),
        ):
            pairs = [(means.get((better, net)), means.get((worse, net))) for net in nets]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            if len(known) == len(nets):
                so = "is" if all(a > b for a, b in known) else "is not"
                said.append(f"{better} {so} above {worse} on {where} (recipe `{recipe}`).")
    return said


def protocol_table(found: Found, scope: Scope) -> TextTable:
    """Random images: the paper's figures, and ours by the two readings of its protocol."""
    lines: list[tuple[str, ...]] = []
    for ipc in SIZES:
        cell = Cell(PROTOCOL, "random", ipc, None)
        theirs = paper_scores(cell, scope)
        if cell not in found:
            continue
        printed = (UNKNOWN, UNKNOWN)
        if theirs is not None:
            printed = (shown(theirs.accuracy), shown(theirs.nll))
        lines.append((str(ipc), "the paper's", printed[0], UNKNOWN, printed[1], UNKNOWN))
        readings = {"`paper`": found[cell].by_paper, "`paper-epochs`": found[cell]}
        for name, measured in readings.items():
            if measured is None:
                continue
            scores = [shown(measured.score(each)) for each in ("accuracy", "nll", "nll_kim")]
            lines.append((str(ipc), name, *scores, _met(measured, theirs)))
    header = (
        IPC,
        "protocol",
        "accuracy %",
        "NLL",
        "NLL of Kim et al.",
        "compared with the paper",
    )
    return TextTable(header, [lines])


def _met(measured: Measured, theirs: paper.Scores | None) -> str:
    """Whether accuracy and Kim et al.'s NLL are the paper's within the noise of both."""
    if theirs is None:
        return UNKNOWN
    pairs = {"accuracy": theirs.accuracy, "nll_kim": theirs.nll}
    names = {"accuracy": "accuracy", "nll_kim": "NLL"}
    words = []
    for name, figure in pairs.items():
        same = verdict(measured.score(name), figure, higher_is_better=True) == NOISE
        words.append(f"{names[name]} {'within noise' if same else 'differs'}")
    return ", ".join(words)


def _protocol(found: Found, scope: Scope) -> list[Section]:
    words = (
        "`paper-epochs` has weight decay 5·10⁻⁴ and keeps the network after the first epoch as "
        "one of eleven samples. The paper's NLL is listed in the column of the NLL of Kim et al., "
        "which their code of 2022 computes."
    )
    rows = protocol_table(found, scope)
    title = "The paper's protocol: random images, two readings"
    return [Section(PROTOCOL, title, rows, words, folded=True)]


_WRITERS: dict[str, Callable[[Found, Scope], list[Section]]] = {
    TABLE2: _table2,
    CORRUPTIONS: _corruptions,
    CROSS: _cross,
    NORMS: _norms,
    RESNET18: _resnet18,
    PROTOCOL: _protocol,
}
