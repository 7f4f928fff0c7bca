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


def same_function() -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Two networks of six tanh units: their weights, their outputs, and where these are taken.

    The second has the units of the first in another order, three of them with both signs changed.
    """
    rng = np.random.default_rng(4)
    slopes, shifts, out = rng.normal(size=(3, 6)) * np.array([[2.0], [1.0], [1.0]])
    order, sign = np.roll(np.arange(6), 1), np.array([1, -1, 1, -1, -1, 1])
    networks = [(slopes, shifts, out), tuple(each[order] * sign for each in (slopes, shifts, out))]
    at = np.linspace(-2, 2, 201)
    outputs = [np.tanh(at[:, None] * w + b) @ v for w, b, v in networks]
    return [np.concatenate(each) for each in networks], outputs, at


def function_figure():
    """Two networks with different weights and the same outputs."""
    weights, outputs, at = same_function()
    assert np.allclose(*outputs)
    figure = new_figure(5.6, 2.6)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.19, top=0.96, wspace=0.28)
    dress(left, x="number of the weight", y="weight")
    dress(right, x="input", y="output")
    points = np.flatnonzero(np.isin(np.arange(len(at)), (30, 80, 120, 175)))
    styles = ({"linewidth": 5, "alpha": 0.35}, {"linewidth": 1.4})
    for place, (colour, style) in enumerate(zip(LINES, styles, strict=False)):
        name = f"network {place + 1}"
        left.plot(weights[place], "os"[place], color=colour, markersize=4, label=name)
        right.plot(at, outputs[place], color=colour, **style)
    right.plot(at[points], outputs[0][points], "k.", markersize=9, label="at the coreset's points")
    for axes in (left, right):
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.25 * (high - low))
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
    drawn = {"function-space": function_figure(), "weight": weight_figure()}
    for name, figure in {**drawn, "protocol": protocol_figure()}.items():
        path = RESULTS / "pictures" / f"{name}.png"
        with whole_file(path) as part:
            figure.savefig(part, format="png", dpi=130)
        print(f"{path.name}: drawn")


if __name__ == "__main__":
    main()
