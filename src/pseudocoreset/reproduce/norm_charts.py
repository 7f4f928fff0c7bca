"""The paper's figures of several networks: accuracy by norm, and one image's outputs."""

import base64
import io
from typing import Any

from matplotlib.figure import Figure as Drawing
from PIL import Image

from pseudocoreset.report.style import INK, LINES, add_legend, dress, new_figure
from pseudocoreset.reproduce.cells import FOUR_NORMS
from pseudocoreset.reproduce.sections import NORM_TITLES, norm_name
from pseudocoreset.reproduce.tables import Found

ORDER = ("WBPC", "WBPC-multi", "FBPC-single", "FBPC-multi")


def bars_of(found: Found) -> list[tuple[str, str, float, float | None]]:
    """Coreset, network, accuracy and its deviation; of the last recipe if there are several."""
    bars = {}
    for cell, measured in found.items():
        mean, std = measured.score("accuracy")
        bars[norm_name(cell), cell.on] = (norm_name(cell), cell.on, mean, std)
    return list(bars.values())


def norms_chart(bars: list[tuple[str, str, float, float | None]]) -> Drawing:
    """A group of bars a coreset, a colour a network."""
    names = [name for name in ORDER if name in {bar[0] for bar in bars}]
    figure = new_figure(6.5, 3.0)
    axes = figure.add_axes((0.09, 0.12, 0.9, 0.76))
    dress(axes, y="accuracy %")
    axes.yaxis.set_label_coords(-0.06, 0.5)
    width = 0.8 / len(FOUR_NORMS)
    for number, net in enumerate(FOUR_NORMS):
        chosen = [bar for bar in bars if bar[1] == net]
        places = [names.index(bar[0]) + (number - 1.5) * width for bar in chosen]
        errors = [bar[3] or 0.0 for bar in chosen]
        axes.bar(
            places,
            [bar[2] for bar in chosen],
            width,
            yerr=errors,
            color=LINES[number],
            ecolor=INK,
            label=NORM_TITLES[net],
        )
    axes.set_xticks(range(len(names)), names)
    add_legend(axes, ncols=len(FOUR_NORMS))
    return figure


def outputs_of(found: Found) -> dict[str, Any]:
    """What networks of each norm put out at the image, by network; of one coreset's cells."""
    kept = {c: m.content["outputs"] for c, m in found.items() if "outputs" in m.content}
    recipes = {cell.recipe for cell in kept}
    if len(kept) < len(FOUR_NORMS) or not recipes:
        return {}
    recipe = sorted(map(str, recipes))[-1]
    return {cell.on: outputs for cell, outputs in kept.items() if str(cell.recipe) == recipe}


def logits_chart(outputs: dict[str, Any]) -> Drawing:
    """The image, and for each class a bar a network: mean and deviation over samples."""
    figure = new_figure(7.5, 2.6)
    first = next(iter(outputs.values()))
    shown = figure.add_axes((0.01, 0.2, 0.2, 0.6))
    with Image.open(io.BytesIO(base64.b64decode(first["png"]))) as image:
        shown.imshow(image.convert("RGB"), interpolation="nearest")
    shown.set_axis_off()
    shown.set_title(first["class"], color=INK, fontsize=8)
    axes = figure.add_axes((0.29, 0.27, 0.7, 0.58))
    dress(axes, y="output")
    axes.yaxis.set_label_coords(-0.06, 0.5)
    width = 0.8 / len(outputs)
    for number, net in enumerate(net for net in FOUR_NORMS if net in outputs):
        found = outputs[net]
        places = [place + (number - 1.5) * width for place in range(len(found["mean"]))]
        axes.bar(
            places,
            found["mean"],
            width,
            yerr=found["std"],
            color=LINES[number],
            ecolor=INK,
            error_kw={"linewidth": 0.5},
            label=NORM_TITLES[net],
        )
    axes.set_xticks(range(len(first["classes"])), first["classes"], rotation=40, ha="right")
    add_legend(axes, ncols=len(FOUR_NORMS))
    return figure
