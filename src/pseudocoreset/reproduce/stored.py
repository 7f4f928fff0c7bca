"""Measured cells on disk: one JSON file per cell."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pseudocoreset.engine.files import write_json
from pseudocoreset.engine.parse import Shape, check_shape
from pseudocoreset.recipes import NAMES as RECIPES
from pseudocoreset.reproduce.cells import TABLES, Cell, Scope, cells_of
from pseudocoreset.reproduce.checks import check_more
from pseudocoreset.reproduce.paper import Figure
from pseudocoreset.reproduce.settings import CellSettings
from pseudocoreset.run_folder import with_names_of_today

FORMAT = 2
SCORE_KEYS = tuple(
    key for name in ("accuracy", "nll", "nll_kim", "ece", "brier") for key in (name, f"{name}_std")
)
_SCORES: dict[str, Shape] = dict.fromkeys(SCORE_KEYS, float)
SHAPE: Shape = {
    **_SCORES,
    "by_paper": dict | None,
    "seeds": list,
    "samplers": [{"seed": int}],
    "protocol": {"epochs": int, "temperature": float, "weight_decay": float},
    "coreset": {"images": int},
    "experts": dict | None,
    "fingerprints": [str],
    "device": str,
    "duration": {
        **dict.fromkeys(("experts_s", "distill_s", "evaluate_s"), float),
        **dict.fromkeys(("whole", "experts_whole"), bool),
    },
}
"""The required content of a cell's file."""
SHAPE_WITH_EXPERTS: Shape = {
    "coreset": {"config": {"steps": int}},
    "experts": {"num": int, "epochs": int, "fingerprint": str},
}


@dataclass(frozen=True)
class Measured:
    """A cell and what its file holds; `content` is `Evaluation.as_json` and more."""

    cell: Cell
    content: dict[str, Any]

    def score(self, name: str) -> Figure:
        """A score over seeds; accuracy in per cent, as the paper prints it."""
        scale = 100.0 if name == "accuracy" else 1.0
        std = self.content[f"{name}_std"] * scale if self.seeds > 1 else None
        return Figure(self.content[name] * scale, std)

    @property
    def by_paper(self) -> "Measured | None":
        """The same cell as scored by the paper's own protocol; None if that diverges."""
        if self.content["by_paper"] is None:
            return None
        of_paper = {"pooled": None, **self.content["by_paper"]}
        return replace(self, content={**self.content, **of_paper})

    @property
    def seeds(self) -> int:
        """How many posteriors its scores are the mean of."""
        return len(self.content["seeds"])

    @property
    def seconds(self) -> float:
        """Seconds of the cell without its experts, which several cells use."""
        duration = self.content["duration"]
        return float(duration["distill_s"] + duration["evaluate_s"])


def other_than_recipe(measured: Measured, data: str) -> dict[str, tuple[Any, Any]]:
    """Settings of a cell that its recipe of today has otherwise: its own, and the recipe's.

    Of a shipped coreset, of whose experts the cell knows nothing, the number of updates.
    """
    cell, content = measured.cell, measured.content
    if cell.ipc is None or cell.recipe is None:
        return {}
    config = with_names_of_today(content["coreset"]["config"])
    settings, experts = CellSettings.of(cell, data), content["experts"]
    if experts is None:
        wanted: dict[str, Any] = {"steps": settings.options.steps}
    else:
        wanted = settings.config(experts["epochs"], content["coreset"]["images"])
        if wanted.get("to_epoch", 0) is None and config.get("to_epoch") == experts["epochs"]:
            del wanted["to_epoch"]  # none is their last
    return {n: (config[n], v) for n, v in wanted.items() if n in config and config[n] != v}


def write_measured(path: Path, measured: Measured) -> None:
    """Store a cell, completely or not at all."""
    write_json(path, {"format": FORMAT, "cell": measured.cell.as_json(), **measured.content})


def read_measured(path: Path, cell: Cell) -> Measured:
    """Read a cell back; anything else in its place is refused by name."""
    return Measured(cell, cell.read(path, FORMAT, lambda content: _check(content, cell)))


def _check(content: dict[str, Any], cell: Cell) -> None:
    check_shape(content, SHAPE)
    if content["by_paper"] is not None:
        check_shape(content["by_paper"], _SCORES, "by_paper")
    if not content["seeds"] or not content["samplers"]:
        raise ValueError("it has no seeds")
    shipped = TABLES[cell.table].again and content["experts"] is None
    if cell.recipe is not None and not shipped:
        check_shape(content, SHAPE_WITH_EXPERTS)
    elif cell.recipe is None and content["experts"] is not None:
        raise ValueError("it has experts")
    check_more(content, cell)


def measured_cells(out: Path, scope: Scope, table: str) -> dict[Cell, Measured]:
    """All cells of a table that were measured, of whichever recipe."""
    known = dict.fromkeys(
        cell for recipe in RECIPES for cell in cells_of(table, recipe, scope.data)
    )
    paths = {cell: cell.path(out, scope) for cell in known}
    return {cell: read_measured(path, cell) for cell, path in paths.items() if path.exists()}
