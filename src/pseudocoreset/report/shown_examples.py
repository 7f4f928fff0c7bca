"""Examples of test points on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from pseudocoreset.engine.text import printable, significant
from pseudocoreset.report.run_report import RunReport, count, finite, listed, mapping

MOST = 12
LONGEST_NAME = 40
UNCERTAIN = (
    "Most uncertain",
    "Test {} whose averaged prediction has the highest entropy.",
)
WRONG = (
    "Most confidently wrong",
    "Test {} that get a wrong class with the highest probability.",
)
WORST = (
    "Worst predicted",
    "Test {} whose targets are most standard deviations away from the mean prediction.",
)


@dataclass(frozen=True)
class Example:
    """A test point: its image where it has one, the truth, and what is predicted."""

    index: int
    uri: str
    truth: str
    predicted: list[tuple[str, str]]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples of one kind."""

    title: str
    caption: str
    examples: list[Example]


def example_groups(run: RunReport) -> list[ExampleGroup]:
    """All examples that can be shown. Damaged ones are left out.

    Args:
        run: the run
    """
    if run.coreset is None:
        return []
    kinds = {"uncertain": UNCERTAIN, "wrong": WRONG} if run.coreset.class_names else {}
    kinds = kinds or {"worst": WORST}
    found = []
    for kind, (title, caption) in kinds.items():
        rows = [mapping(row) for row in listed(run.examples.get(kind))[:MOST]]
        shown = [one for one in (_example(run, row) for row in rows) if one is not None]
        if shown:
            noun = "images" if run.is_image else "points"
            found.append(ExampleGroup(title, caption.format(noun), shown))
    return found


def _example(run: RunReport, row: dict[str, Any]) -> Example | None:
    index = count(row.get("index"))
    if index is None or run.coreset is None:
        return None
    uri = _uri(run, index)
    if not run.coreset.class_names:
        target, mean, std = (_numbers(row.get(name)) for name in ("target", "mean", "std"))
        if not target or not len(target) == len(mean) == len(std):
            return None
        said = [f"{significant(m)} ± {significant(s)}" for m, s in zip(mean, std, strict=True)]
        return Example(index, uri, "; ".join(map(significant, target)), [("; ".join(said), "")])
    names = run.coreset.class_names
    truth = _name(names, row.get("truth"))
    top = [
        (_name(names, place), finite(share))
        for place, share in zip(
            listed(row.get("predicted")), listed(row.get("probabilities")), strict=False
        )
    ]
    predicted = [(name, f"{share:.0%}") for name, share in top if name and share is not None]
    return Example(index, uri, truth, predicted) if truth and predicted else None


def _numbers(value: object) -> list[float]:
    return [number for number in map(finite, listed(value)) if number is not None]


def _name(names: Sequence[str], place: object) -> str:
    number = count(place)
    if number is None or number >= len(names):
        return ""
    return printable(names[number], LONGEST_NAME) or "(no name)"


def _uri(run: RunReport, index: int) -> str:
    from pseudocoreset.coreset.pictures import image_uri

    image = run.images.get(index)
    if image is None:
        return ""
    colour = image if len(image) == 3 else image[:1].repeat(3, axis=0)
    return image_uri(numpy.ascontiguousarray(colour.transpose(1, 2, 0)))
