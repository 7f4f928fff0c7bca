"""Check optional parts of cells."""

import base64
import io
from typing import Any

from PIL import Image

from pseudocoreset.engine.parse import Shape, check_shape
from pseudocoreset.reproduce.cells import CORRUPTIONS, Cell

LARGEST_SIDE = 1024
_PART: dict[str, Shape] = dict.fromkeys(("accuracy", "nll", "ece", "degradation"), float)
_CORRUPTED: Shape = {
    "severities": [int],
    "mean": _PART,
    "by_corruption": dict,
    "each": [{**_PART, "corruption": str, "severity": int}],
}
_OUTPUTS: Shape = {"class": str, "classes": [str], "mean": [float], "std": [float], "png": str}


def check_more(content: dict[str, Any], cell: Cell) -> None:
    """Raise ValueError or OSError where a cell's own parts are damaged."""
    for scores in filter(None, (content, content["by_paper"])):
        if scores.get("pooled") is not None:
            check_shape(scores["pooled"], {"accuracy": float, "nll": float}, "pooled")
        if cell.table == CORRUPTIONS:
            check_shape(scores, {"corruptions": _CORRUPTED})
            _corruptions(scores["corruptions"])
    if "outputs" in content:
        check_shape(content["outputs"], _OUTPUTS, "outputs")
        _outputs(content["outputs"])


def _corruptions(found: dict[str, Any]) -> None:
    for name, part in found["by_corruption"].items():
        check_shape(part, _PART, name)
    rows = {(row["corruption"], row["severity"]) for row in found["each"]}
    wanted = {(name, s) for name in found["by_corruption"] for s in found["severities"]}
    if not rows or rows != wanted:
        raise ValueError("its corruptions are not all there")


def _outputs(found: dict[str, Any]) -> None:
    if not len(found["mean"]) == len(found["std"]) == len(found["classes"]):
        raise ValueError("its outputs are not one a class")
    with Image.open(io.BytesIO(base64.b64decode(found["png"])), formats=["PNG"]) as image:
        if max(image.size) > LARGEST_SIDE:
            raise ValueError(f"its image has {image.size} pixels")
        image.load()
