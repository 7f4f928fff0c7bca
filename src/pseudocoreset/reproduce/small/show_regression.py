"""A table of the trials and a figure of chains."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from pseudocoreset.reproduce.pictures import POINTS, shown_by, store_picture
from pseudocoreset.reproduce.small.regression import ALONE, OF_ALL, STUDY, TITLES, TRACED, names
from pseudocoreset.reproduce.small.study import REFERENCE
from pseudocoreset.reproduce.text_table import TextTable

HEADER = (
    *("posterior of", "points", "RMSE", "NLL", "coverage of 90 %", "RMSE from the reference"),
    *("KL from the reference", "variance ratio", "R̂ above 1.1", "effective samples"),
)


def regression_table(out: Path) -> TextTable:
    """Means over trials.

    Args:
        out: folder of the results
    """
    trials = STUDY.complete(out)
    if not trials:
        return TextTable(HEADER, [])
    rows: list[tuple[str, ...]] = []
    for name in (REFERENCE, *names()):
        method, _, size = name.partition("/")
        title = {REFERENCE: "all points, HMC: the reference", **TITLES, **OF_ALL}[method]

        def mean(key: str, of: str | None = None, name: str = name) -> float:
            found = [each[name][of] if of else each[name] for each in trials]
            return fmean(each[key] or 0.0 for each in found)

        own = (f"{mean('rmse'):.2f}", f"{mean('nll'):.3f}", f"{mean('coverage'):.1%}")
        apart = (
            ("–",) * 3
            if name == REFERENCE
            else (
                f"{mean('rmse', 'apart'):.2f}",
                f"{mean('kl', 'apart'):.3f}",
                f"{mean('variance_ratio', 'apart'):.2f}",
            )
        )
        signs = ("–", "–")
        if name != ALONE:
            signs = (f"{mean('r_hat_share'):.0%}", f"{mean('effective_size'):.0f}")
        rows.append((title, size or "all", *own, *apart, *signs))
    return TextTable(HEADER, [rows])


CHAINS = dict(zip(TRACED, ("HMC", "SGHMC", "SGHMC, cosine cycles", "SGLD"), strict=True))
"""Titles of the chains that are drawn."""


def traces_picture(out: Path) -> Path:
    """Where the traces are.

    Args:
        out: folder of the results
    """
    return out / "pictures" / "traces.png"


def draw_traces(out: Path) -> Iterator[str]:
    """Draw chains of the first trial where there are others than those drawn.

    Args:
        out: folder of the results
    """
    picture = traces_picture(out)
    trials = STUDY.complete(out)
    if not trials:
        return
    traces = {name: trials[0][name]["trace"] for name in TRACED}
    shows = json.dumps(traces)
    if shown_by(picture, POINTS) == shows:
        return
    from pseudocoreset.report.style import LINES, dress, new_figure

    figure = new_figure(2.6 * len(CHAINS) + 0.5, 2.4)
    axes = figure.subplots(1, len(CHAINS), sharey=True)
    figure.subplots_adjust(left=0.06, right=0.99, bottom=0.2, top=0.88, wspace=0.08)
    for place, (name, chains) in zip(axes, traces.items(), strict=True):
        dress(place, x="sample", y="prediction" if name == REFERENCE else "")
        place.set_title(CHAINS[name], fontsize=9)
        for colour, chain in zip(LINES, chains, strict=False):
            place.plot(range(len(chain)), chain, color=colour, linewidth=0.7)
    store_picture(figure, picture, {POINTS: shows})
    yield f"{picture}: drawn"
