"""Goals for the rest of the paper and whether they are met."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from goals import reached
from pseudocoreset.reproduce.cells import (
    CONVNET,
    CORRUPTIONS,
    CROSS,
    MIDDLE,
    RESNET18,
    SEVERAL,
    TABLE2,
    Cell,
    Scope,
    cell_with,
)
from pseudocoreset.reproduce.stored import Measured, measured_cells
from pseudocoreset.reproduce.text_table import TextTable


class Goal(NamedTuple):
    """At least this accuracy in per cent and, where there is one, at most this NLL."""

    title: str
    cell: Cell
    accuracy: float
    nll: float | None = None
    pooled: bool = False
    """Whether it is a goal for all chains together, or for the mean over them."""


FBPC = {
    "cifar100": {1: (22.0, 3.6), 10: (41.0, 2.5), 50: (46.0, 2.4)},
    "tiny-imagenet": {1: (10.14, 4.69), 10: (19.42, 4.14), 50: (26.43, 4.30)},
}
BEST = {"cifar100": {1: 36.0, 10: 47.0, 50: 51.0}, "tiny-imagenet": {1: 20.0, 10: 25.0}}
"""The least that our best coresets should reach, all chains together."""
ACROSS = {"resnet18": 52.0, "resnet34": 45.0, "vgg11": 50.0, "alexnet": 40.0}
WITH_RESNET18 = {("resnet18",): (52.0, 1.5), ("resnet18", CONVNET): (57.0, 1.35)}
CORRUPTED = (50.0, 22.0)
"""Accuracy, and degradation in per cent, in the mean over corruptions and severities."""


def goals_of(data: str) -> list[Goal]:
    """The goals for cells of accuracy and NLL."""
    if data in FBPC:
        fbpc = [
            Goal(f"FBPC, {ipc} per class", cell_with(TABLE2, "fbpc", ipc, "tuned", data), *wanted)
            for ipc, wanted in FBPC[data].items()
        ]
        best = [
            Goal(
                f"`best`, {ipc} stored per class, 10 chains pooled",
                cell_with(TABLE2, "fbpc-isotropic", ipc, "best", data),
                accuracy,
                pooled=True,
            )
            for ipc, accuracy in BEST[data].items()
        ]
        return fbpc + best
    if data != "cifar10":
        return []
    one = cell_with(CROSS, "fbpc", MIDDLE, "tuned", data)
    across = [
        Goal(
            f"one coreset for several networks, on {net}",
            replace(one, made_for=SEVERAL, on=net),
            accuracy,
        )
        for net, accuracy in ACROSS.items()
    ]
    own = cell_with(RESNET18, "fbpc", MIDDLE, "tuned", data)
    resnet = [
        Goal(
            f"made for {' + '.join(nets)}, on resnet18",
            replace(own, made_for=nets, on="resnet18"),
            *wanted,
        )
        for nets, wanted in WITH_RESNET18.items()
    ]
    return across + resnet


def rest_goals_table(out: Path, scope: Scope) -> TextTable | None:
    """Each goal whose cell is measured, and whether it is met; nothing where none is."""
    if scope != Scope(scope.data):
        return None
    rows: list[tuple[str, ...]] = []
    for goal in goals_of(scope.data):
        measured = measured_cells(out, scope, goal.cell.table).get(goal.cell)
        if measured is not None:
            asked = f"{goal.accuracy:g}" + (f" / {goal.nll:.2f}" if goal.nll else "")
            rows.append((goal.title, asked, *_reached(goal, measured)))
    corrupted = measured_cells(out, scope, CORRUPTIONS)
    measured = corrupted.get(cell_with(CORRUPTIONS, "fbpc", MIDDLE, "tuned", scope.data))
    if measured is not None and scope.data == "cifar10":
        mean = measured.content["corruptions"]["mean"]
        found = (100 * mean["accuracy"], 100 * mean["degradation"])
        met = found[0] >= CORRUPTED[0] and found[1] <= CORRUPTED[1]
        asked = "{:g}, degradation {:g} %".format(*CORRUPTED)
        ours = "{:.1f}, degradation {:.1f} %".format(*found)
        rows.append(("FBPC on corrupted images", asked, ours, "met" if met else "missed"))
    header = ("", "goal: accuracy % / NLL", "ours: accuracy % / NLL", "")
    return TextTable(header, [rows]) if rows else None


def _reached(goal: Goal, measured: Measured) -> tuple[str, str]:
    """Our figures, and whether they meet the goal."""
    accuracy, nll = measured.score("accuracy").mean, measured.score("nll").mean
    if goal.pooled:
        pooled = measured.content["pooled"]
        accuracy, nll = 100 * pooled["accuracy"], pooled["nll"]
        met = "met" if accuracy >= goal.accuracy else f"{goal.accuracy - accuracy:.2f} short"
        return f"{accuracy:.2f} / {nll:.2f} ({measured.seeds} chains)", met
    return f"{accuracy:.2f} / {nll:.2f}", reached(measured, goal.accuracy, goal.nll)
