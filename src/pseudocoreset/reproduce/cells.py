"""The cells of the paper's tables: what is measured, what each is called, where it is stored."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError
from pseudocoreset.recipes import recipe_for
from pseudocoreset.reproduce.beyond.kinds import kinds

SIZES = (1, 10, 50)
FULL = "full"
"""The posterior of all training images, in the place of a method."""
TITLES = {
    "random": "Random",
    "bpc-rkl": "BPC-rKL",
    "bpc-fkl": "BPC-fKL",
    "fbpc-isotropic": "FBPC-isotropic",
    "fbpc": "FBPC",
    FULL: "All training images",
}
"""The methods as the paper calls them."""
TABLES = {
    "table1": "accuracy and NLL by method and images per class",
    "dsa": "accuracy without augmentation (experts, coresets and SGHMC alike)",
}
METHODS = ("bpc-rkl", "bpc-fkl", "fbpc-isotropic", "fbpc")
"""The methods of Table 1."""
WITH_AND_WITHOUT = ("bpc-fkl", "fbpc")
"""The methods of the table of augmentation."""
PICTURES = "pictures"
BEYOND = "beyond"
EXACT = "exact"
OF_PAPER = (*TABLES, PICTURES)
"""What is reproduced where nothing is named."""
NAMES = {
    **TABLES,
    PICTURES: "the images of the FBPC coresets",
    BEYOND: "the best coresets for their size, controls of the same storage, an ablation",
    EXACT: "how far coresets' posteriors are from the data's, where these are known; needs no data",
}
"""All that can be reproduced, and what it is."""


@dataclass(frozen=True)
class Scope:
    """What all cells of a table are measured on: a data set, its images of their own size or
    resized, and how many of them are held out.

    With a holdout, scores are those on the images held out: for choosing, never beside the paper's.
    """

    data: str
    holdout: int = 0
    image_size: int | None = None

    @property
    def label(self) -> str:
        """The folder of its cells."""
        size = f"-{self.image_size}px" if self.image_size else ""
        return f"{self.data}{size}" + (f"-holdout{self.holdout}" if self.holdout else "")

    @staticmethod
    def labelled(label: str) -> "Scope":
        """The scope whose cells are in a folder of this name."""
        found = re.fullmatch(r"(.+?)(?:-(\d+)px)?(?:-holdout(\d+))?", label)
        assert found is not None  # no folder has an empty name
        data, size, holdout = found.groups()
        return Scope(data, int(holdout or 0), int(size) if size else None)

    @property
    def split(self) -> str:
        """The images that cells are scored on."""
        return "holdout" if self.holdout else "test"


@dataclass(frozen=True)
class Cell:
    """One measurement of a table; a recipe of None has nothing to tune."""

    table: str
    method: str
    ipc: int | None
    recipe: str | None

    @property
    def dsa(self) -> bool:
        """Whether experts, coreset and sampler augment images."""
        return self.table != "dsa"

    @property
    def name(self) -> str:
        """What it is called where cells are chosen."""
        return f"{self.method}/{self.ipc or 'all'}"

    @property
    def file_name(self) -> str:
        """What its files are called."""
        size = f"-ipc{self.ipc}" if self.ipc else ""
        return f"{self.method}{size}" + (f"-{self.recipe}" if self.recipe else "")

    def path(self, out: Path, scope: Scope) -> Path:
        """Where it is stored."""
        return out / self.table / scope.label / f"{self.file_name}.json"


def cell_with(table: str, method: str, ipc: int, recipe: str | None, data: str) -> Cell:
    """The cell with this recipe, or with the one that it falls back to."""
    section = recipe_for(data, ipc, method, recipe).section if recipe else None
    return Cell(table, method, ipc, section)


def cells_of(table: str, recipe: str, data: str) -> list[Cell]:
    """The cells of a table with this recipe, those without any among them."""
    methods = WITH_AND_WITHOUT if table == "dsa" else METHODS
    cells = [cell_with(table, method, ipc, recipe, data) for method in methods for ipc in SIZES]
    if table == "dsa":
        return cells
    random = [Cell(table, "random", ipc, None) for ipc in SIZES]
    return [*random, *cells, Cell(table, FULL, None, None)]


def beyond_cells(data: str) -> list[Cell]:
    """The cells of what goes beyond the paper, whether this version has their methods or not."""
    return [Cell(BEYOND, name, ipc, None) for ipc in SIZES for name in kinds(data, ipc)]


def pictured_cells(recipe: str, data: str) -> list[Cell]:
    """The cells whose coresets are drawn."""
    return [cell_with("table1", "fbpc", ipc, recipe, data) for ipc in SIZES]


def chosen_cells(names: Sequence[str], recipe: str, data: str, wanted: str | None) -> list[Cell]:
    """The cells of what was named, each once; `wanted` are patterns such as fbpc/10,random/*."""
    found: dict[Cell, None] = {}
    for name in names:
        found |= dict.fromkeys(_named_cells(name, recipe, data))
    if wanted is None:
        return list(found)
    patterns = [pattern.strip() for pattern in wanted.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in found):
            known = ", ".join(dict.fromkeys(cell.name for cell in found))
            raise UserError(f"`cells` {printable(pattern)} is none of {known}.", "cells")
    return [cell for cell in found if any(fnmatchcase(cell.name, p) for p in patterns)]


def _named_cells(name: str, recipe: str, data: str) -> list[Cell]:
    """The cells of a name that can be measured."""
    if name == BEYOND:
        found = beyond_cells(data)
        return [c for c in found if c.ipc is not None and kinds(data, c.ipc)[c.method].there]
    return pictured_cells(recipe, data) if name == PICTURES else cells_of(name, recipe, data)


def chosen_names(names: Sequence[str]) -> list[str]:
    """What is to be reproduced; all of the paper where nothing is named."""
    for name in names:
        if name not in NAMES:
            hint = did_you_mean(name, NAMES)
            raise UserError(
                f"{printable(name)} can't be reproduced{hint}: give {', '.join(NAMES)}, or "
                "nothing for those of the paper.",
                "names",
            )
    return list(names) or list(OF_PAPER)
