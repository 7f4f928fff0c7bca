"""The cells as a table."""

from pathlib import Path
from typing import Any

from pseudocoreset.reproduce.cells import CONTROL, FIDELITY, FULL, Cell, Scope
from pseudocoreset.reproduce.fidelity.measure import fidelity_found
from pseudocoreset.reproduce.text_table import TextTable

TITLES = {
    "random": "random real images",
    "best": "`best`",
    "fbpc": "FBPC",
    "bpc-fkl": "BPC-fKL",
    "vbpc": "VBPC",
    FULL: "all training images, other chains",
}
HEADER = (
    *("posterior of", "images per class", "accuracy", "agreement", "total variation", "KL"),
    *("agreement where the reference errs", "variance ratio", "mutual information"),
    *("between chains", "R̂ above 1.1", "agreement of halves in time"),
)


def fidelity_table(out: Path, scope: Scope) -> TextTable:
    """A row a posterior, by size; the ceiling last.

    Args:
        out: folder of the results
        scope: what they were measured on
    """
    found = fidelity_found(out, scope)
    sizes = dict.fromkeys(cell.ipc for cell in found)
    groups = [[_row(c, e) for c, e in found.items() if c.ipc == size] for size in sizes]
    return TextTable(HEADER, groups)


def _row(cell: Cell, content: dict[str, Any]) -> tuple[str, ...]:
    apart, own, subset = content["distances"], content["own"], content["subset"]
    signs = content["sampling"].get("convergence") or {}
    title, size = TITLES.get(cell.method, cell.method), str(cell.ipc or "all")
    if subset is not None:
        title = f"real images as accurate as {TITLES[cell.method.removeprefix(CONTROL)]}"
        size = f"{subset['ipc']} (for {cell.ipc})"
    return (
        title,
        size,
        _share(own["accuracy"]),
        _share(apart["agreement"]),
        f"{apart['total_variation']:.3f}",
        f"{apart['kl']:.3f}",
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
    """What was measured on.

    Args:
        out: folder of the results
    """
    folders = sorted(path for path in (out / FIDELITY).glob("*/") if any(path.glob("*.json")))
    return [Scope.labelled(folder.name) for folder in folders]


def fidelity_text(out: Path) -> str:
    """The tables of all data, for the docs.

    Args:
        out: folder of the results
    """
    parts = []
    for scope in fidelity_scopes(out):
        cells = fidelity_found(out, scope)
        if cells:
            reference = next(iter(cells.values()))
            words = (
                f"{scope.label}: {reference['sampling']['chains']} chains a posterior. The "
                f"reference has an accuracy of {_share(reference['reference']['accuracy'])} and a "
                f"mutual information of {reference['reference']['mutual_information']:.3f}."
            )
            parts.append(f"{words}\n\n{fidelity_table(out, scope).markdown()}")
    return "\n".join(parts) or "Not measured yet.\n"
