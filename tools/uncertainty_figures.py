"""Draw the figures of docs/uncertainty.md from results/uncertainty.json.

    python tools/uncertainty_figures.py cifar10:DIR

`pseudocoreset evaluate POSTERIOR --data cifar10:DIR --json results/uncertainty.json` measures them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pseudocoreset.data import Data, load_data
from pseudocoreset.engine.files import whole_file
from pseudocoreset.report.figures import reliability_diagram, risk_and_coverage
from pseudocoreset.report.run_report import RunReport
from pseudocoreset.report.style import BAD, INK
from pseudocoreset.reproduce.text_table import TextTable

RESULTS = Path(__file__).parent.parent / "results"
COLUMNS, ROWS = 6, 2
SHARES = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="such as cifar10:DIR")
    data = load_data(parser.parse_args().data)
    found = json.loads((RESULTS / "uncertainty.json").read_text(encoding="utf-8"))
    for name, figure in figures(found, data).items():
        picture = RESULTS / "pictures" / f"uncertainty-{name}.png"
        with whole_file(picture) as part:
            figure.savefig(part, format="png", dpi=150)
        print(f"{picture}: drawn")


def kept_table(results: Path) -> str:
    """Accuracy on the surest part of the images.

    Args:
        results: folder of the results
    """
    found = json.loads((results / "uncertainty.json").read_text(encoding="utf-8"))["selective"]
    pairs = dict(zip(found["kept"], found["accuracy"], strict=True))
    rows = [("accuracy", *(f"{pairs[share]:.1%}" for share in SHARES))]
    return TextTable(("images kept", *(f"{share:.0%}" for share in SHARES)), [rows]).markdown()


def figures(found: dict[str, Any], data: Data) -> dict[str, Figure]:
    """All figures by name.

    Args:
        found: what `evaluate --json` wrote
        data: the data that it scored
    """
    run = RunReport("", None, [], {}, found)
    drawn = {"reliability": reliability_diagram(run), "kept": risk_and_coverage(run)}
    assert None not in drawn.values()
    kinds = {
        kind: examples_figure(found["examples"][kind], data) for kind in ("uncertain", "wrong")
    }
    return {**drawn, **kinds}


def examples_figure(examples: list[dict[str, Any]], data: Data) -> Figure:
    """Test images, their classes, and the predicted ones with their probabilities.

    Args:
        examples: of one kind
        data: the data that they are of
    """
    figure = Figure(figsize=(1.25 * COLUMNS, 1.72 * ROWS))
    axes = figure.subplots(ROWS, COLUMNS).flat
    figure.subplots_adjust(0.005, 0.17, 0.995, 0.99, wspace=0.05, hspace=0.6)
    for axis, example in zip(axes, examples, strict=False):
        pixels = np.moveaxis(data.test.inputs[example["index"]].numpy(), 0, 2)
        axis.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axis.set_axis_off()
        pairs = zip(example["predicted"], example["probabilities"], strict=True)
        said = [f"{data.class_names[c]} {p:.0%}" for c, p in pairs if p >= 0.005]
        right = example["predicted"][0] == example["truth"]
        look = {"ha": "center", "va": "top", "fontsize": 7, "transform": axis.transAxes}
        truth = f"is {data.class_names[example['truth']]}"
        axis.text(0.5, -0.04, truth, color=INK if right else BAD, **look)
        axis.text(0.5, -0.18, "\n".join(said), color=INK, **look)
    return figure


if __name__ == "__main__":
    main()
