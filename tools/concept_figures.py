"""Draw the figures of docs/concepts.md that no table has.

python tools/concept_figures.py
"""

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np

from pseudocoreset.engine.files import whole_file
from pseudocoreset.report.style import LINES, dress, new_figure

RESULTS = Path(__file__).parent.parent / "results"
SIZES = (1, 10, 50)


def posterior_of_mean(points: int, weight: float, mean: float) -> NormalDist:
    """Of the mean of points with variance 1, each counting `weight` times; prior N(0, 1)."""
    counted = weight * points
    return NormalDist(counted * mean / (1 + counted), (1 + counted) ** -0.5)


def weight_figure():
    """Posteriors of a Gaussian mean: data, and a coreset whose points count once or n/m times."""
    n, m, mean = 100, 5, 1.0
    curves = {
        f"the data, n = {n}": posterior_of_mean(n, 1, mean),
        f"a coreset of m = {m}, weight 1": posterior_of_mean(m, 1, mean),
        f"the same, weight n/m = {n // m}": posterior_of_mean(m, n / m, mean),
        "the prior": NormalDist(),
    }
    figure = new_figure(5.6, 2.6)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.19, top=0.96)
    dress(axes, x="the unknown mean", y="density")
    at = np.linspace(-1, 2, 400)
    styles = ({"linewidth": 4, "alpha": 0.35}, {}, {}, {"linestyle": ":"})
    for colour, style, (name, density) in zip(LINES, styles, curves.items(), strict=False):
        axes.plot(at, [density.pdf(x) for x in at], color=colour, label=name, **style)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def protocol_scores() -> dict[str, list[tuple[float, float]]]:
    """Accuracy and NLL of the FBPC coresets of CIFAR-10, by protocol and size."""
    found: dict[str, list[tuple[float, float]]] = {"tuned": [], "paper": [], "bayes": []}
    for ipc in SIZES:
        cell = json.loads((RESULTS / f"table1/cifar10/fbpc-ipc{ipc}-tuned.json").read_text())
        bayes = json.loads((RESULTS / f"fidelity/cifar10/fbpc-ipc{ipc}-bayes.json").read_text())
        for name, scores in zip(found, (cell, cell["by_paper"], bayes["own"]), strict=True):
            found[name].append((100 * scores["accuracy"], scores["nll"]))
    return found


def protocol_figure():
    """The same coresets by three protocols."""
    figure = new_figure(5.6, 2.6)
    both = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.19, top=0.96, wspace=0.28)
    for part, (axes, what) in enumerate(zip(both, ("accuracy %", "NLL"), strict=True)):
        dress(axes, x="images per class", y=what)
        for colour, (name, scores) in zip(LINES, protocol_scores().items(), strict=False):
            values = [each[part] for each in scores]
            axes.plot(range(len(SIZES)), values, marker="o", color=colour, label=name)
        axes.set_xticks(range(len(SIZES)), [str(ipc) for ipc in SIZES])
    both[0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    for name, figure in {"weight": weight_figure(), "protocol": protocol_figure()}.items():
        path = RESULTS / "pictures" / f"{name}.png"
        with whole_file(path) as part:
            figure.savefig(part, format="png", dpi=130)
        print(f"{path.name}: drawn")


if __name__ == "__main__":
    main()
