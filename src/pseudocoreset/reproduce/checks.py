"""What only some cells hold, looked at before it is shown."""

import base64
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

from pseudocoreset.report.run_report import finite
from pseudocoreset.reproduce.cells import CORRUPTIONS, Cell

CORRUPTED = ("accuracy", "nll", "ece", "degradation")
LARGEST_SIDE = 1024


def check_more(content: dict[str, Any], cell: Cell) -> None:
    """Raise ValueError, KeyError, TypeError or OSError where a cell's own parts are damaged."""
    for scores in (content, content["by_paper"]):
        if scores.get("pooled") is not None:
            _numbers(scores["pooled"], ("accuracy", "nll"))
        if cell.table == CORRUPTIONS:
            _corruptions(scores["corruptions"])
    if "outputs" in content:
        _outputs(content["outputs"])


def _numbers(part: Any, names: Sequence[str]) -> None:
    for name in names:
        if finite(_object(part)[name]) is None:
            raise ValueError(f"its {name} is {part[name]}")


def _object(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise TypeError(f"{part} is no JSON object")
    return part


def _corruptions(found: Any) -> None:
    by_name, each = _object(_object(found)["by_corruption"]), found["each"]
    for part in (found["mean"], *by_name.values(), *each):
        _numbers(part, CORRUPTED)
    rows = {(row["corruption"], row["severity"]) for row in each}
    if not rows or rows != {(name, s) for name in by_name for s in found["severities"]}:
        raise ValueError("its corruptions are not all there")


def _outputs(found: Any) -> None:
    classes = _object(found)["classes"]
    if not all(isinstance(name, str) for name in (found["class"], *classes)):
        raise TypeError("its classes are no texts")
    for name in ("mean", "std"):
        numbers = [finite(value) for value in found[name]]
        if None in numbers or len(numbers) != len(classes):
            raise ValueError(f"its {name} is {found[name]}")
    with Image.open(io.BytesIO(base64.b64decode(found["png"])), formats=["PNG"]) as image:
        if max(image.size) > LARGEST_SIDE:
            raise ValueError(f"its image has {image.size} pixels")
        image.load()
