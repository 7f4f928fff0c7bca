"""The images of the FBPC coresets, as the paper's appendix shows them; and the charts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.engine.files import whole_file
from pseudocoreset.reproduce.cells import NORMS, SIZES, Scope
from pseudocoreset.reproduce.shipped import shipped_path
from pseudocoreset.reproduce.stored import measured_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORESET, POINTS = "coreset", "points"
"""Under these names a picture says which coreset it shows, and a chart what its points are."""


def picture_path(out: Path, scope: Scope, ipc: int) -> Path:
    """Where the picture of the FBPC coreset of this size is."""
    return out / "pictures" / f"{scope.label}-fbpc-ipc{ipc}.png"


def draw_pictures(out: Path, scope: Scope) -> Iterator[str]:
    """Draw missing pictures of coresets and yield a line about each."""
    for ipc in SIZES:
        stored, picture = shipped_path(out, scope, "fbpc", ipc), picture_path(out, scope, ipc)
        if scope.holdout or not stored.exists():
            yield f"{picture.name}: no coreset yet (table1's fbpc/{ipc} on all training images)"
            continue
        coreset = Pseudocoreset.load(stored)
        if shown_by(picture, CORESET) == coreset.fingerprint:
            yield f"{picture}: drawn before"
            continue
        from pseudocoreset.coreset.pictures import (
            coreset_grid,  # matplotlib takes a second to import
        )

        store_picture(coreset_grid(coreset), picture, {CORESET: coreset.fingerprint})
        yield f"{picture}: drawn"


def chart_path(out: Path, scope: Scope) -> Path:
    """Where the chart of Table 1 is."""
    return out / "pictures" / f"{scope.label}-table1.png"


def norms_path(out: Path, scope: Scope) -> Path:
    """Where the figure of norms is."""
    return out / "pictures" / f"{scope.label}-norms.png"


def logits_path(out: Path, scope: Scope) -> Path:
    """Where the figure of one image's outputs is."""
    return out / "pictures" / f"{scope.label}-logits.png"


def draw_charts(out: Path, scope: Scope) -> None:
    """Draw Table 1, norms and logits anew where there are other figures than those drawn."""
    from pseudocoreset.reproduce.chart import accuracy_chart, points_of
    from pseudocoreset.reproduce.norm_charts import bars_of, logits_chart, norms_chart, outputs_of

    points = points_of(measured_cells(out, scope, "table1"), scope)
    _draw(chart_path(out, scope), points, accuracy_chart)
    norms = measured_cells(out, scope, NORMS)
    _draw(norms_path(out, scope), bars_of(norms), norms_chart)
    _draw(logits_path(out, scope), outputs_of(norms), logits_chart)


def _draw(chart: Path, points: Any, draw: "Callable[[Any], Figure]") -> None:
    """Draw points, if there are any, unless this very chart is there."""
    shows = json.dumps(points)
    if points and shown_by(chart, POINTS) != shows:
        store_picture(draw(points), chart, {POINTS: shows})


def shown_by(picture: Path, key: str) -> str | None:
    """What a picture says that it shows; None if there is no whole picture."""
    try:
        with Image.open(picture) as image:
            return image.info.get(key)
    except Exception:  # on damaged bytes Pillow raises nearly anything
        return None


def store_picture(figure: "Figure", picture: Path, shows: dict[str, str]) -> None:
    """Write a figure as a PNG file that says what it shows."""
    with whole_file(picture) as part:
        figure.savefig(part, format="png", dpi=figure.dpi, metadata=shows)
