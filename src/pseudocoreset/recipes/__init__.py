"""Recipes: settings by data set, size and method, in the YAML files of this folder.

A file `DATA-IPC.yaml` has the sections `paper`, `tuned` and `best`, each with values by method.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

NAMES = ("paper", "tuned", "best")
"""Sections in order. If one has no values for a method, the one before it is used. Methods that are
not from the paper have later sections only."""
FALLBACKS = {"images": "cifar10", "table": "breast-cancer", "regression": "diabetes"}
"""The data set whose recipes are used for data without recipes, by the kind of data."""

Section = Mapping[str, Mapping[str, Any]]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""`safe_load` in C where PyYAML has it: reading all recipes takes 0.03 s instead of 0.25 s."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a recipe and their origin."""

    values: Mapping[str, Any]
    """Values by option. Options that are missing have their default."""
    section: str
    """paper, tuned or best."""
    data: str
    """The data set they were made for, or the name of a file of your own."""
    ipc: int


def recipe_for(
    data: str, ipc: int, method: str, recipe: str = "best", *, kind: str = "images"
) -> Recipe:
    """The settings for a data set, a size and a method.

    For other sizes the nearest size (by ratio) is used, and for other data sets that of
    `FALLBACKS`.

    Args:
        data: the data set's name
        ipc: images per class; points for regression
        method: the method's name
        recipe: `paper`, `tuned`, `best`, or the path of a YAML file
        kind: `images`, `table` or `regression`
    """
    if recipe not in NAMES:
        return _from_file(recipe, method, ipc)
    known, found = _shipped(), []
    for name in (data, FALLBACKS[kind]):
        sizes = [size for there, size in known if there == name]
        if sizes:
            size = _nearest(sizes, ipc)
            section, values = _chosen(known[name, size], method, recipe)
            found.append(Recipe(values, section, name, size))
    return next((each for each in found if each.values), found[0])


def recipe_sizes(data: str) -> list[int]:
    """The sizes that a data set has recipes for."""
    return sorted(size for name, size in _shipped() if name == data)


def _chosen(
    sections: Mapping[str, Section], method: str, recipe: str
) -> tuple[str, dict[str, Any]]:
    """The section with values for a method: what was asked for, one before, or one after it."""
    asked = NAMES.index(recipe) + 1
    for section in (*reversed(NAMES[:asked]), *NAMES[asked:]):
        found = sections.get(section, {}).get(method)
        if found is not None:
            return section, dict(found)
    return "paper", {}


@cache
def _shipped() -> dict[tuple[str, int], dict[str, Section]]:
    found = {}
    for entry in files("pseudocoreset.recipes").iterdir():
        if entry.name.endswith(".yaml"):
            data, _, ipc = entry.name.removesuffix(".yaml").rpartition("-")
            found[data, int(ipc)] = yaml.load(entry.read_text(encoding="utf-8"), _LOADER)
    return found


def _from_file(path: str, method: str, ipc: int) -> Recipe:
    """The recipe in a file of a user's own, which has the sections that the shipped ones have."""
    if not Path(path).is_file():
        raise UserError(
            f"`recipe` {printable(path)} is neither a file nor one of {', '.join(NAMES)}.", "recipe"
        )
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except Exception:  # a value that is not what its tag says can raise nearly anything
        content = None
    sections = isinstance(content, dict) and all(
        name in NAMES
        and isinstance(section, dict)
        and all(isinstance(method, str) for method in section)
        and all(isinstance(values, dict) for values in section.values())
        and all(isinstance(option, str) for values in section.values() for option in values)
        for name, section in content.items()
    )
    if not sections:
        raise UserError(
            f"{path} is not a recipe: give YAML with the sections {', '.join(NAMES)}, each with "
            "options by method.",
            "recipe",
        )
    section, values = _chosen(content, method, "best")
    if not values:
        raise UserError(f"{path} has no settings for the method {method}.", "recipe")
    return Recipe(values, section, path, ipc)


def _nearest(sizes: Iterable[int], ipc: int) -> int:
    return min(sizes, key=lambda size: max(size / ipc, ipc / size))
