"""Tables of the fidelity cells."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pseudocoreset.reproduce.cells import DATA_TITLES, FIDELITY, FULL, TUNED, Cell, Scope
from pseudocoreset.reproduce.fidelity.measure import fidelity_found
from pseudocoreset.reproduce.matched import MATCHED, at_accuracy
from pseudocoreset.reproduce.text_table import TextTable, folded

TITLES = {
    "random": "random real images",
    "best": "`best`",
    "fbpc": "FBPC",
    "bpc-fkl": "BPC-fKL",
    "bpc-cd": "BPC-CD",
    "vbpc": "VBPC",
    "fbpc+experts": "FBPC, experts' labels",
    "vbpc+hard": "VBPC, hard labels",
    FULL: "all training images, other chains",
}
HEADER = (
    *("posterior of", "images per class", "accuracy", "agreement", "total variation", "KL"),
    *("agreement where the reference errs", "variance ratio", "mutual information"),
    *("between chains", "R̂ above 1.1", "agreement of halves in time"),
)
MORE = (
    *("agreement where the reference errs", "mutual information"),
    *("between chains", "R̂ above 1.1", "agreement of halves in time"),
)
"""The columns that the docs fold away."""
PROTOCOL_WORDS = {
    "tuned": "the default",
    "bayes": "temperature 1, prior N(0, 1/100), each point counting n/m times",
    "plain": "as `bayes`, without augmentation",
}
Found = dict[Cell, dict[str, Any]]


def same_accuracy(accuracy: float, found: Found) -> dict[str, float] | None:
    """Distances of real images with this accuracy, interpolated between the two nearest sizes.

    None if the accuracy is not between those of two sizes.

    Args:
        accuracy: of a coreset's posterior
        found: the cells of one protocol
    """
    real = [each for cell, each in found.items() if cell.method in ("random", FULL)]
    real.sort(key=lambda each: int(each["sampling"]["seen"]))
    return at_accuracy(accuracy, [(each["own"]["accuracy"], each["distances"]) for each in real])


def fidelity_table(out: Path, scope: Scope, protocol: str = TUNED) -> TextTable:
    """One row per posterior, by size; the ceiling comes last.

    Args:
        out: folder of the results
        scope: what they were measured on
        protocol: how posteriors were sampled
    """
    found = of_protocol(fidelity_found(out, scope), protocol)
    made = [cell for cell in found if cell.method not in ("random", FULL)]
    sizes = dict.fromkeys(cell.ipc for cell in made)
    groups = [[_row(c, found) for c in made if c.ipc == size] for size in sizes]
    return TextTable(HEADER, [*groups, [_row(cell, found) for cell in found if cell not in made]])


def ranks_table(out: Path, scope: Scope, protocol: str, ipc: int) -> TextTable:
    """Methods with plain pixels and real images at one size, the most accurate first.

    Args:
        out: folder of the results
        scope: what they were measured on
        protocol: how posteriors were sampled
        ipc: images per class
    """
    found = of_protocol(fidelity_found(out, scope), protocol)
    cells = [c for c in found if c.ipc == ipc and c.method != "best"]
    cells.sort(key=lambda cell: -found[cell]["own"]["accuracy"])
    rows: list[tuple[str, ...]] = []
    for cell in cells:
        own, apart = found[cell]["own"], found[cell]["distances"]
        mine = _share(apart["agreement"]), f"{apart['total_variation']:.3f}"
        if cell.method != "random":
            real = same_accuracy(own["accuracy"], found)
            assert real is not None
            theirs = _share(real["agreement"]), f"{real['total_variation']:.3f}"
            mine = f"{mine[0]} ({theirs[0]})", f"{mine[1]} ({theirs[1]})"
        ratio = f"{apart['variance_ratio']:.1f}"
        rows.append((TITLES[cell.method], _share(own["accuracy"]), *mine, ratio))
    names = ("accuracy", "agreement", "total variation", "variance ratio")
    return TextTable(("posterior of", *names), [rows])


def of_protocol(found: Found, protocol: str) -> Found:
    """The cells of one protocol.

    Args:
        found: cells
        protocol: how posteriors were sampled
    """
    return {cell: each for cell, each in found.items() if cell.protocol == protocol}


def _row(cell: Cell, found: Found) -> tuple[str, ...]:
    content = found[cell]
    apart, own = content["distances"], content["own"]
    signs = content["sampling"].get("convergence") or {}
    cells = [_share(apart["agreement"]), f"{apart['total_variation']:.3f}", f"{apart['kl']:.3f}"]
    if cell.method not in ("random", FULL):
        real = same_accuracy(own["accuracy"], found)
        beside = ["–"] * 3
        if real is not None:
            beside = [_share(real["agreement"]), *(f"{real[name]:.3f}" for name in MATCHED[1:])]
        cells = [f"{mine} ({theirs})" for mine, theirs in zip(cells, beside, strict=True)]
    return (
        TITLES.get(cell.method, cell.method),
        str(cell.ipc or "all"),
        _share(own["accuracy"]),
        *cells,
        _share(apart["agreement_on_errors"]),
        "–" if apart["variance_ratio"] is None else f"{apart['variance_ratio']:.2f}",
        f"{own['mutual_information']:.3f}",
        _share(own["between_chains"]),
        _share(signs.get("r_hat", {}).get("share_above_1.1")),
        _share(content["halves"]["agreement"]),
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def fidelity_scopes(out: Path) -> list[Scope]:
    """The data sets that have cells.

    Args:
        out: folder of the results
    """
    folders = sorted(path for path in (out / FIDELITY).glob("*/") if any(path.glob("*.json")))
    return [Scope.labelled(folder.name) for folder in folders]


def fidelity_text(out: Path) -> str:
    """The tables of all data, for the terminal.

    Args:
        out: folder of the results
    """
    parts = [f"{head}\n\n{table.markdown()}" for head, table in _tables(out)]
    return "\n".join(parts) or "Not measured yet.\n"


def fidelity_page(out: Path) -> str:
    """The tables of all data for the docs, with the signs of convergence folded away.

    Args:
        out: folder of the results
    """
    parts = []
    for head, table in _tables(out):
        more = table.only(*HEADER[:2], *MORE).markdown()
        shown = table.only(*(name for name in HEADER if name not in MORE)).markdown()
        parts += [f"{head}\n", shown, folded("More columns", more)]
    stored = {cell.protocol for s in fidelity_scopes(out) for cell in fidelity_found(out, s)}
    missing = [f"`{name}`" for name in PROTOCOL_WORDS if name not in stored]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _tables(out: Path) -> Iterator[tuple[str, TextTable]]:
    """A heading and a table for each data set and protocol that has cells."""
    for scope in fidelity_scopes(out):
        for protocol, words in PROTOCOL_WORDS.items():
            cells = of_protocol(fidelity_found(out, scope), protocol)
            if cells:
                one = next(iter(cells.values()))
                mean, sampling = one["reference"], one["reference_sampling"]
                data = scope.label.replace(scope.data, DATA_TITLES.get(scope.data, scope.data))
                head = (
                    f"**{data}, protocol `{protocol}`: {words}.** Each posterior has "
                    f"{sampling['chains']} chains. Those of the reference have "
                    f"{sampling['steps']:,} steps; its accuracy is {_share(mean['accuracy'])} and "
                    f"its mutual information {mean['mutual_information']:.3f}."
                )
                yield head, fidelity_table(out, scope, protocol)
