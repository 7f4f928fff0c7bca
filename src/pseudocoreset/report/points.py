"""A coreset's points on the page: images before and after distillation, or a table's heat map."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.report.run_report import RunReport

if TYPE_CHECKING:  # it imports matplotlib
    from pseudocoreset.coreset.pictures import ClassImages

LONGEST_NAME = 16
"""Letters of a class name that stand in one line."""
STARTS = {"real": "the real training image", "noise": "the noise"}


@dataclass(frozen=True)
class Pair:
    """An image, and what it was before the first update (empty where that is not known)."""

    after: str
    before: str
    words: str


@dataclass(frozen=True)
class ClassPairs:
    """The images of a class that are shown."""

    name: str
    pairs: list[Pair]
    total: int


@dataclass
class Tiles:
    """All images that are shown, and how large."""

    classes: list[ClassPairs] = field(default_factory=list)
    caption: str = ""
    tile: int = 0
    widest: int = 0
    name_width: float = 0.0


def tiles(run: RunReport, coreset: Pseudocoreset) -> Tiles:
    """The images by class, one by one, so that they can wrap on a narrow screen.

    Args:
        run: the run
        coreset: its coreset of images
    """
    from pseudocoreset.coreset import pictures

    groups = pictures.images_by_class(coreset)
    starts: Sequence[ClassImages | None] = [None] * len(groups)
    if run.start is not None:  # in the order and under the classes of today's images
        starts = pictures.images_by_class(replace(coreset, inputs=run.start.inputs))
    size = max(coreset.input_shape[1:])
    longest = max(len(group.name) for group in groups)
    caption = pictures.images_caption(coreset, groups)
    if run.start is not None:
        what = STARTS.get(str(run.config.get("init")), "the image")
        caption += f" Each pair shows {what} it started from (above) and the result (below)."
    caption += " Point at an image, or tap it, to enlarge it."
    if coreset.class_names and coreset.targets.ndim == 2:
        caption += " Labels are soft: each image is listed under its most probable class."
    return Tiles(
        [_pairs(group, start) for group, start in zip(groups, starts, strict=True)],
        caption,
        size * pictures.zoom_for(size),
        max(len(group.pixels) for group in groups),
        round(0.2 + 0.6 * min(max(longest, 2), LONGEST_NAME), 2),
    )


def _pairs(group: "ClassImages", start: "ClassImages | None") -> ClassPairs:
    from pseudocoreset.coreset.pictures import image_uri

    after = [image_uri(image) for image in group.pixels]
    before = [""] * len(after) if start is None else [image_uri(image) for image in start.pixels]
    words = group.name if start is None else f"{group.name}: start (left) and result (right)"
    pairs = [Pair(new, old, words) for new, old in zip(after, before, strict=True)]
    return ClassPairs(group.name, pairs, group.total)
