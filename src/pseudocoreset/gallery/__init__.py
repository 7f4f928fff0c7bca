"""Coresets that come with the package.

Each is a `.safetensors` file in this folder with a JSON file of the same name beside it, which says
what it is and how it scored (`python tools/add_to_gallery.py` writes both). `results/coresets` has
links to those that `reproduce` made; a new one replaces the link, not the file here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data.load import PLACES
from pseudocoreset.engine.parse import check_shape, read_json
from pseudocoreset.engine.text import did_you_mean, printable
from pseudocoreset.errors import UserError, require_type
from pseudocoreset.recipes import FALLBACKS, NAMES, recipe_for, recipe_sizes

FOLDER = Path(__file__).parent
DATA = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet")
"""The data sets of the gallery."""
SPEC = "gallery:"
BEST_METHOD = "fbpc-isotropic"
"""The method of the recipes `best` for images."""
EXPERTS, EPOCHS = 20, 30
SHAPE = {
    **dict.fromkeys(("data", "recipe", "method", "fingerprint"), str),
    **dict.fromkeys(("ipc", "chains"), int),
    "chain": {"accuracy": float, "nll": float, "ece": float},
    "pooled": dict | None,
    "protocol": dict,
}
"""What a JSON file of the gallery has, at least. `chain` are means over chains, `pooled` the
scores of all their samples together, if these were measured."""


@dataclass(frozen=True)
class Entry:
    """A coreset of the gallery: where it is, what it is, and how it scored."""

    path: Path
    about: dict[str, Any]

    @property
    def data(self) -> str:
        """The data set that it was made of."""
        return str(self.about["data"])

    @property
    def ipc(self) -> int:
        """Stored images per class."""
        return int(self.about["ipc"])

    @property
    def recipe(self) -> str:
        """The recipe that it was made by."""
        return str(self.about["recipe"])

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it stands in the gallery."""
        return DATA.index(self.data), self.ipc, -NAMES.index(self.recipe)


@cache
def entries() -> Sequence[Entry]:
    """All coresets that came with the package: by data set, size, and the best recipe first."""
    found = []
    for about in FOLDER.glob("*.json"):
        try:
            content = read_json(about)
            check_shape(content, SHAPE, about.name)
            if content["data"] not in DATA or content["recipe"] not in NAMES:
                raise ValueError("it names data or a recipe that are not known")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{printable(about)} is damaged ({printable(error)}): install the package again."
            ) from None
        found.append(Entry(about.with_suffix(".safetensors"), content))
    return sorted(found, key=lambda entry: entry.order)


def sizes(name: str) -> list[int]:
    """The sizes of a data set that the gallery has or tells how to make.

    Args:
        name: the data set
    """
    return recipe_sizes(FALLBACKS["images"] if name in PLACES else name)


def commands(name: str, ipc: int, recipe: str = "best") -> list[str]:
    """The commands that make a coreset, with the settings that we know for its data and size.

    Args:
        name: the data set
        ipc: stored images per class
        recipe: `best`, `tuned` or `paper`
    """
    spec = PLACES.get(name, name)
    method, asked = (BEST_METHOD, "") if recipe == "best" else ("fbpc", f"--recipe {recipe} ")
    values = recipe_for(name, ipc, method, recipe).values
    epochs = values.get("to_epoch") or max(EPOCHS, values.get("from_epoch", 0))
    return [
        f"pseudocoreset experts --data {spec} --num {EXPERTS} --epochs {epochs} "
        f"--out experts-{epochs}",
        f"pseudocoreset distill --method {method} {asked}--data {spec} "
        f"--experts experts-{epochs} --ipc {ipc} --out run-{ipc}",
    ]


def load(name: str, *, ipc: int | None = None, recipe: str = "best") -> Pseudocoreset:
    """Load a coreset that comes with the package. Needs no data, training or network connection.

    `Pseudocoreset.load` reads a file.

    Args:
        name: the data set: `digits`, `cifar10`, `cifar100`, …
        ipc: stored images per class; must be given
        recipe: `best` for the most accurate coreset of this size, which stores soft labels and
            often several small images in the space of one; `tuned` or `paper` for pixels and
            hard labels. If this recipe is missing for a size, the one before it is used.
    """
    require_type(name, str, "name", "the name of a data set, such as cifar10")
    if ipc is None:
        raise UserError(
            f"`ipc` must be given to load {printable(name)} from the gallery, such as 10; read a "
            "file with Pseudocoreset.load.",
            "ipc",
        )
    require_type(ipc, int, "ipc", "the number of images per class, such as 10")
    entry = find(name, ipc, recipe)
    coreset = Pseudocoreset.load(entry.path)
    if coreset.fingerprint != entry.about["fingerprint"]:
        raise UserError(
            f"{printable(entry.path)} is not the coreset that was scored: install the package "
            "again."
        )
    return coreset


def find(name: str, ipc: int, recipe: str = "best") -> Entry:
    """The coreset of a data set, size and recipe.

    Args:
        name: the data set
        ipc: stored images per class
        recipe: `best`, `tuned` or `paper`
    """
    if ipc < 1:
        raise UserError(f"`ipc` is {ipc}: give 1 or more.", "ipc")
    if recipe not in NAMES:
        raise UserError(f"`recipe` is {printable(recipe)}: give {', '.join(NAMES)}.", "recipe")
    if name not in DATA:
        raise UserError(
            f"`name` is {printable(name)}{did_you_mean(name, DATA)}: the gallery has "
            f"{_listed(entries())}; read a file with Pseudocoreset.load.",
            "name",
        )
    asked = NAMES.index(recipe)
    of_size = [each for each in entries() if (each.data, each.ipc) == (name, ipc)]
    found = [each for each in of_size if NAMES.index(each.recipe) <= asked]
    if found:
        return found[0]
    make = f"make it with `{'` and `'.join(commands(name, ipc, recipe))}`"
    if of_size:
        there = ", ".join(each.recipe for each in of_size)
        raise UserError(
            f"`recipe` is {recipe}, and the gallery has {name} at {ipc} per class only by {there}: "
            f"{make}.",
            "recipe",
        )
    there = _listed([each for each in entries() if each.data == name]) or f"no coreset of {name}"
    raise UserError(f"`ipc` is {ipc}, and the gallery has {there}: {make}.", "ipc")


def gallery_path(spec: str) -> Path:
    """The file that a spec such as `gallery:cifar10-10` or `gallery:cifar10-10-tuned` names.

    Args:
        spec: `gallery:NAME-IPC` or `gallery:NAME-IPC-RECIPE`
    """
    name, _, last = spec.removeprefix(SPEC).rpartition("-")
    recipe = "best"
    if last in NAMES:
        recipe = last
        name, _, last = name.rpartition("-")
    if not last.isdecimal() or len(last) > 9 or not name:
        raise UserError(
            f"{printable(spec)} names no coreset: give {SPEC}NAME-IPC, such as {SPEC}cifar10-10; "
            f"the gallery has {_listed(entries())}."
        )
    try:
        return find(name, int(last), recipe).path
    except UserError as error:  # which names parameters that were not given
        said = re.sub("`([a-z]+)`", r"\1", str(error))
        raise UserError(f"{printable(spec)}: {said}") from None


def coreset_path(text: str) -> Path:
    """The file of a coreset: itself, that of a run's folder, or one that came with the package.

    Args:
        text: a path, or `gallery:NAME-IPC`
    """
    if text.startswith(SPEC):
        return gallery_path(text)
    inside = Path(text) / "coreset.safetensors"
    return inside if inside.is_file() else Path(text)


def _listed(found: Sequence[Entry]) -> str:
    """Data sets with their sizes, in words."""
    by_data: dict[str, list[str]] = {}
    for each in found:
        by_data.setdefault(each.data, []).append(str(each.ipc))
    return "; ".join(
        f"{name} at {', '.join(dict.fromkeys(texts))} per class" for name, texts in by_data.items()
    )
