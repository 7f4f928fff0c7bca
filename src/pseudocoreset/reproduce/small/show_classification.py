"""A table of the trials on the digits."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from pseudocoreset.reproduce.matched import MATCHED, at_accuracy
from pseudocoreset.reproduce.small import classification
from pseudocoreset.reproduce.small.classification import MADE, OF_ALL, STUDY
from pseudocoreset.reproduce.small.study import REFERENCE
from pseudocoreset.reproduce.text_table import TextTable

HEADER = (
    *("posterior of", "images per class", "accuracy", "NLL", "agreement", "total variation", "KL"),
    *("variance ratio", "R̂ above 1.1", "effective samples"),
)
TITLES = {
    REFERENCE: "all images, HMC: the reference",
    **{name: how.title for name, how in MADE.items()},
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
    """Means of all numbers; those that are missing in a trial are left out."""
    found: dict[str, Any] = {}
    for key, value in rows[0].items():
        if isinstance(value, dict):
            found[key] = _mean([row[key] for row in rows])
        else:
            known = [row[key] for row in rows if row[key] is not None]
            found[key] = fmean(known) if known else None
    return found


def _row(
    name: str, mean: dict[str, Any], control: list[tuple[float, Mapping[str, Any]]]
) -> tuple[str, ...]:
    method, _, size = name.partition("/")
    apart, spread = ["–"] * 3, "–"
    if name != REFERENCE:
        apart = _distances(mean["apart"])
        ratio = mean["apart"]["variance_ratio"]
        spread = "–" if ratio is None else f"{ratio:.3g}"
    if method in MADE:
        real = at_accuracy(mean["accuracy"], control)
        beside = ["–"] * 3 if real is None else _distances(real)
        apart = [f"{mine} ({theirs})" for mine, theirs in zip(apart, beside, strict=True)]
    return (
        TITLES[method],
        size or "all",
        f"{mean['accuracy']:.1%}",
        f"{mean['nll']:.3f}",
        *apart,
        spread,
        f"{mean['r_hat_share']:.0%}",
        f"{mean['effective_size']:.0f}",
    )


def _distances(of: Mapping[str, Any]) -> list[str]:
    agreement, variation, kl = (of[name] for name in MATCHED)
    return [f"{agreement:.1%}", f"{variation:.3f}", f"{kl:.3f}"]
