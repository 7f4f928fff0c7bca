"""The table of corruptions, and which severities are closest to the paper's figures."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import TITLES, Cell, Scope
from pseudocoreset.reproduce.stored import Measured
from pseudocoreset.reproduce.tables import Found
from pseudocoreset.reproduce.text_table import TextTable

MEAN = "mean"
ALL = "all"
"""Stands for the mean over all severities."""


def corruptions_table(found: Found, scope: Scope) -> TextTable:
    """One row per corruption: accuracy and degradation of each coreset, the paper's in brackets.

    Figures are means over severities.
    """
    names = [*dict.fromkeys(name for each in found.values() for name in _names(each))]
    columns: list[tuple[str, ...]] = []
    for cell, measured in found.items():
        corrupted = measured.content["corruptions"]
        parts = {**corrupted["by_corruption"], MEAN: corrupted["mean"]}
        theirs = papers(cell, scope, names)
        for score in ("accuracy", "degradation"):
            figures = []
            for name in (*names, MEAN):
                printed = f" ({getattr(theirs[name], score):.1f})" if theirs else ""
                figures.append(_per_cent(parts.get(name), score) + printed)
            columns.append((f"{_named(cell)}: {score} %", *figures))
    first = ("corruption", *(name.replace("_", " ") for name in names), MEAN)
    header, *rows = zip(first, *columns, strict=True)
    return TextTable(header, [rows])


def severities_table(found: Found, scope: Scope) -> TextTable:
    """Accuracy, NLL, ECE and degradation in the mean over corruptions, by severity."""
    groups: list[list[tuple[str, ...]]] = []
    for cell, measured in found.items():
        rows: list[tuple[str, ...]] = []
        away = distances(measured, scope)
        for severity, scores in by_severity(measured).items():
            figures = (
                f"{100 * scores['accuracy']:.1f}",
                f"{scores['nll']:.2f}",
                f"{scores['ece']:.3f}",
                f"{100 * scores['degradation']:.1f}",
                f"{away[severity]:.1f}" if away else "–",
            )
            rows.append((_named(cell), str(severity), *figures))
        groups.append(rows)
    header = ("coreset", "severity", "accuracy %", "NLL", "ECE", "degradation %")
    return TextTable((*header, "away from the paper's degradations"), groups)


def by_severity(measured: Measured) -> dict[int | str, dict[str, float]]:
    """The mean of each score over corruptions, at each severity and in the mean over these."""
    corrupted = measured.content["corruptions"]
    scores = ("accuracy", "nll", "ece", "degradation")
    found: dict[int | str, dict[str, float]] = {}
    for severity in corrupted["severities"]:
        rows = [each for each in corrupted["each"] if each["severity"] == severity]
        found[severity] = {name: fmean(row[name] for row in rows) for name in scores}
    found[ALL] = {name: corrupted["mean"][name] for name in scores}
    return found


def distances(measured: Measured, scope: Scope) -> dict[int | str, float]:
    """By how many points our degradations are away from the paper's, in the mean over corruptions.

    By severity, and for the mean over severities; nothing where the paper has no figures.
    """
    corrupted, theirs = measured.content["corruptions"], papers(measured.cell, scope)
    if not theirs:
        return {}

    def away(parts: Mapping[str, Any]) -> float:
        return fmean(
            abs(100 * part["degradation"] - theirs[name].degradation)
            for name, part in parts.items()
        )

    found: dict[int | str, float] = {}
    for severity in corrupted["severities"]:
        rows = [each for each in corrupted["each"] if each["severity"] == severity]
        found[severity] = away({row["corruption"]: row for row in rows})
    found[ALL] = away(corrupted["by_corruption"])
    return found


def fit_sentences(found: Found, scope: Scope) -> list[str]:
    """Which severity, or the mean over all, is nearest to the paper's degradations."""
    lines = []
    for cell, measured in found.items():
        away = distances(measured, scope)
        if away:
            best = min(away, key=away.__getitem__)
            which = "the mean over all severities" if best == ALL else f"severity {best}"
            words = f"{_named(cell)}: {which} is closest to the paper's degradations, "
            lines.append(
                words + f"with a mean distance of {away[best]:.1f} points over the corruptions."
            )
        missing = [name for name in paper.CORRUPTIONS["fbpc"] if name not in _names(measured)]
        if missing:
            lines.append(f"{_named(cell)}: {', '.join(missing)} not measured.")
    return lines


def papers(
    cell: Cell, scope: Scope, names: Iterable[str] | None = None
) -> dict[str, paper.Corrupted]:
    """What the paper prints, and its mean over these corruptions; nothing for other data."""
    theirs = paper.CORRUPTIONS.get(cell.method)
    if theirs is None or scope != Scope(paper.DATA):
        return {}
    chosen = dict(theirs) if names is None else {name: theirs[name] for name in names}
    mean = paper.CORRUPTIONS_MEAN[cell.method]
    if chosen.keys() != theirs.keys():
        each = zip(*chosen.values(), strict=True)
        mean = paper.Corrupted(*map(fmean, each))
    return {**chosen, MEAN: mean}


def _names(measured: Measured) -> list[str]:
    return list(measured.content["corruptions"]["by_corruption"])


def _named(cell: Cell) -> str:
    return f"{TITLES[cell.method]}, recipe `{cell.recipe}`"


def _per_cent(part: Mapping[str, Any] | None, score: str) -> str:
    return "–" if part is None else f"{100 * part[score]:.1f}"
