"""Draw every corruption at every severity.

    python tools/corruption_sheet.py cifar10:DIR

The page docs/shifts.md shows it. Frost needs `pip install 'pseudocoreset[frost]'`.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pseudocoreset.data import Data, load_data
from pseudocoreset.engine.files import whole_file
from pseudocoreset.evaluation.corruptions import SEVERITIES, chosen_corruptions, corrupt

PICTURE = Path(__file__).parent.parent / "results" / "pictures" / "corruptions.png"
SHOWN = (1, 13)
"""Test images that are shown: a ship and a horse."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="such as cifar10:DIR")
    figure = contact_sheet(load_data(parser.parse_args().data))
    with whole_file(PICTURE) as part:
        figure.savefig(part, format="png", dpi=100)
    print(f"{PICTURE}: drawn")


def contact_sheet(data: Data) -> Figure:
    """A row a corruption; for each image the clean one, then severities 1 to 5."""
    images = data.test.inputs[list(SHOWN)]
    names = chosen_corruptions("all", data.input_shape)
    columns = 1 + len(SEVERITIES)
    figure = Figure(figsize=(0.56 * columns * len(SHOWN) + 1.6, 0.56 * len(names) + 0.3))
    axes = figure.subplots(len(names), columns * len(SHOWN))
    figure.subplots_adjust(0.17, 0.002, 0.998, 0.975, wspace=0.03, hspace=0.03)
    for row, name in enumerate(names):
        versions = [images, *(corrupt(images, name, severity) for severity in SEVERITIES)]
        for number in range(len(SHOWN)):
            for column, version in enumerate(versions):
                axis = axes[row, number * columns + column]
                pixels = np.moveaxis(version[number].numpy(), 0, 2)
                axis.imshow(
                    pixels.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest"
                )
                axis.set_axis_off()
                if row == 0:
                    axis.set_title("clean" if column == 0 else str(column), fontsize=9, pad=3)
        axes[row, 0].text(
            -0.08, 0.5, name, ha="right", va="center", fontsize=9, transform=axes[row, 0].transAxes
        )
    return figure


if __name__ == "__main__":
    main()
