"""A table of the trials on the digits."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.reproduce.matched import MATCHED, at_accuracy
from pseudocoreset.reproduce.small import classification
from pseudocoreset.reproduce.small.classification import EXACT, MADE, OF_ALL, STUDY
from pseudocoreset.reproduce.small.study import REFERENCE
from pseudocoreset.reproduce.text_table import TextTable

HEADER = (
    *("posterior of", "images per class", "accuracy", "NLL", "agreement", "total variation", "KL"),
    *("R̂ above 1.1", "effective samples"),
)
TITLES = {
    REFERENCE: "all images, HMC: the reference",
    **{name: how.title for name, how in MADE.items()},
    **{name: title for name, (title, _) in EXACT.items()},
    "random": "random real images",
    **OF_ALL,
}


def classification_table(out: Path) -> TextTable:
    """Means over trials; in brackets the distances of real images of the same accuracy.

    Args:
        out: folder of the results
    """
    trials = STUDY.complete(out)
    if not trials:
        return TextTable(HEADER, [])
    means = {name: _mean([rows[name] for rows in trials]) for name in (REFERENCE, *STUDY.rows())}
    real = [
        means[name] for name in (*(f"random/{size}" for size in classification.REAL_SIZES), "hmc")
    ]
    control = [(each["accuracy"], each["apart"]) for each in real]
    return TextTable(HEADER, [[_row(name, mean, control) for name, mean in means.items()]])


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of what the table shows."""
    shown = ("accuracy", "nll", "r_hat_share", "effective_size")
    apart = {name: fmean(row["apart"][name] for row in rows) for name in MATCHED}
    return {**{name: fmean(row[name] for row in rows) for name in shown}, "apart": apart}


def _row(
    name: str, mean: dict[str, Any], control: list[tuple[float, Mapping[str, Any]]]
) -> tuple[str, ...]:
    method, _, size = name.partition("/")
    apart = ["–"] * 3
    if name != REFERENCE:
        apart = _distances(mean["apart"])
    if method in (*MADE, *EXACT):
        real = at_accuracy(mean["accuracy"], control)
        beside = ["–"] * 3 if real is None else _distances(real)
        apart = [f"{mine} ({theirs})" for mine, theirs in zip(apart, beside, strict=True)]
    return (
        TITLES[method],
        size or "all",
        f"{mean['accuracy']:.1%}",
        f"{mean['nll']:.3f}",
        *apart,
        f"{mean['r_hat_share']:.0%}",
        f"{mean['effective_size']:.0f}",
    )


def _distances(of: Mapping[str, Any]) -> list[str]:
    agreement, variation, kl = (of[name] for name in MATCHED)
    return [f"{agreement:.1%}", f"{variation:.3f}", f"{kl:.3f}"]
