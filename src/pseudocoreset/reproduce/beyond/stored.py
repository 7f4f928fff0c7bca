"""Cells on disk: one JSON file per cell, with one entry per coreset."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape
from pseudocoreset.report.run_report import finite
from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import BEYOND, Cell, Scope, beyond_cells
from pseudocoreset.reproduce.paper import Figure

FORMAT = 1
WAYS = ("single", "chain", "pooled")
"""How a coreset is scored: one network, one chain (the mean over all), all chains pooled."""
SCORES = ("accuracy", "nll", "ece", "brier")
SHAPE: Shape = {
    "data_fingerprint": str,
    "experts": dict | None,
    "experts_s": float,
    "experts_whole": bool,
    "coresets": [
        {
            "seed": int,
            "fingerprint": str,
            "storage": {
                "numbers": int | float | None,
                **dict.fromkeys(("bytes", "stored", "seen"), float),
            },
            "distill_s": float,
            "distill_whole": bool,
            "scores": dict,
        }
    ],
    "device": str,
    "versions": dict,
}
"""The required content of a cell's file."""
_SCORES: Shape = dict.fromkeys(SCORES, float)
SCORED: Shape = {**dict.fromkeys(WAYS, _SCORES), "seconds": float}
"""The scores of a coreset by one sampler."""
OPTIONAL: dict[str, Shape] = {
    "sampling_steps": int | None,
    "pooled_temperature": int | float | None,
    "pooled_calibrated": dict,
}


@dataclass(frozen=True)
class BeyondCell:
    """A cell and what its file holds; `content["coresets"]` are those that were scored."""

    cell: Cell
    content: dict[str, Any]

    @property
    def coresets(self) -> list[dict[str, Any]]:
        """What is known of each coreset."""
        return list(self.content["coresets"])

    def score(self, name: str, way: str = "pooled", sampler: str = "sghmc") -> Figure | None:
        """A score's mean and deviation over coresets, accuracy in per cent; None if not scored.

        Args:
            name: accuracy, nll, ece or brier
            way: single, chain, pooled or pooled_calibrated
            sampler: the posterior
        """
        found = [each["scores"].get(sampler, {}).get(way, {}).get(name) for each in self.coresets]
        values = [
            v * (100.0 if name == "accuracy" else 1.0) for v in found if finite(v) is not None
        ]
        if not values:
            return None
        return Figure(fmean(values), stdev(values) if len(values) > 1 else None)

    def storage(self, name: str) -> float | None:
        """Stored numbers, bytes, images stored or seen, mean over coresets."""
        found = [finite(each["storage"][name]) for each in self.coresets]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None

    def minutes(self) -> tuple[float, float, float]:
        """Of the experts, of distillation, and of scoring by SGHMC, for the fastest coreset."""
        found = [
            (
                each.get("experts_s", self.content["experts_s"]) / 60,
                each["distill_s"] / 60,
                each["scores"].get("sghmc", {}).get("seconds", 0.0) / 60,
            )
            for each in self.coresets
        ]
        return min(found, key=sum)

    def temperature(self, sampler: str) -> float | None:
        """The mean over coresets of the best predictive temperature on these points."""
        found = [
            each["scores"].get(sampler, {}).get("pooled_temperature") for each in self.coresets
        ]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None


def write_cell(path: Path, found: BeyondCell) -> None:
    """Store a cell, completely or not at all."""
    write_json(path, {"format": FORMAT, "cell": found.cell.as_json(), **found.content})


def read_cell(path: Path, cell: Cell) -> BeyondCell:
    """Read a cell back; anything else in its place is refused by name."""
    return BeyondCell(cell, cell.read(path, FORMAT, _check))


def _check(content: dict[str, Any]) -> None:
    check_shape(content, SHAPE)
    if content["experts"] is not None:
        check_shape(content["experts"], {"num": int, "epochs": int, "fingerprint": str})
    if not content["coresets"]:
        raise ValueError("it has no coresets")
    for each in content["coresets"]:
        for found in each["scores"].values():
            check_shape(found, SCORED)
            for name in OPTIONAL.keys() & found.keys():
                check_shape(found[name], OPTIONAL[name], name)


def beyond_scopes(out: Path) -> list[Scope]:
    """The data sets that have cells scored on test images, CIFAR-10 first."""
    own = Scope(paper.DATA)
    labels = [folder.name for folder in (out / BEYOND).glob("*/")]
    others = {s for s in map(Scope.labelled, labels) if not s.holdout} - {own}
    return [own, *sorted(others, key=lambda scope: scope.label)]


def found_cells(out: Path, scope: Scope) -> dict[Cell, BeyondCell]:
    """All cells that were measured."""
    paths = {cell: cell.path(out, scope) for cell in beyond_cells(scope.data)}
    return {cell: read_cell(path, cell) for cell, path in paths.items() if path.exists()}


def held_out_temperature(out: Path, scope: Scope, cell: Cell, sampler: str) -> float | None:
    """The predictive temperature that the same cell has on held-out images, if it was measured."""
    if scope.holdout:
        return None
    labels = [folder.name for folder in (out / BEYOND).glob("*/")]
    twins = [s for s in map(Scope.labelled, labels) if s.holdout]
    twins = [s for s in twins if (s.data, s.image_size) == (scope.data, scope.image_size)]
    for twin in sorted(twins, key=lambda s: -s.holdout):
        path = cell.path(out, twin)
        if path.exists():
            return read_cell(path, cell).temperature(sampler)
    return None


Found = Mapping[Cell, BeyondCell]
"""The cells that were measured."""
