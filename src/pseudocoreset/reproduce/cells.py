"""The cells of the paper's tables: their names and files."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pseudocoreset.engine.parse import check_shape, read_json
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.recipes import recipe_for
from pseudocoreset.reproduce.beyond.kinds import kinds

SIZES = (1, 10, 50)
DATA_TITLES = {
    "digits": "Digits",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "Tiny-ImageNet",
}
"""The names of data sets in pages; others are shown as they are."""
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
TABLE2 = "table2"
CORRUPTIONS = "corruptions"
CROSS = "cross-architecture"
NORMS = "norms"
RESNET18 = "resnet18"
PROTOCOL = "protocol"
WITH_AND_WITHOUT = ("bpc-fkl", "fbpc")
"""The methods of the tables of augmentation, corruptions and norms, and of Table 2."""
CONVNET = "convnet"
"""The network of the paper, which coresets are made for and scored on if nothing is said."""
SEVERAL = (CONVNET, "resnet18", "vgg11")
"""The networks that one coreset is made for, beside those made for the ConvNet alone."""
FOUR_NORMS = (CONVNET, "group", "layer", "batch")
"""ConvNets with instance, group, layer and batch norm."""
MIDDLE = 10
"""Images per class in tables with one size."""


@dataclass(frozen=True)
class Table:
    """A table that consists of cells: what it shows, and which cells."""

    shows: str
    methods: tuple[str, ...]
    best: tuple[str, ...] = ()
    """Methods that have cells with the recipe `best`, whatever the recipe of the others."""
    sizes: tuple[int, ...] = SIZES
    made_for: tuple[tuple[str, ...], ...] = ((CONVNET,),)
    """The networks that coresets are made for; those for several have the middle size."""
    on: tuple[str, ...] = (CONVNET,)
    """The networks that coresets are scored on."""
    again: bool = False
    """Whether it scores the shipped coresets of Table 1, if they are made in the same way. Its
    default recipe is `tuned`, as for the shipped ones."""
    ships: bool = False
    """Whether its coresets are stored with the results."""


TABLES = {
    "table1": Table(
        "accuracy and NLL by method and images per class",
        ("random", "bpc-rkl", "bpc-fkl", "fbpc-isotropic", "fbpc", FULL),
        ships=True,
    ),
    "dsa": Table(
        "accuracy without augmentation (experts, coresets and SGHMC alike)", WITH_AND_WITHOUT
    ),
    TABLE2: Table(
        "accuracy and NLL on CIFAR-100 and Tiny-ImageNet, and our best",
        ("random", *WITH_AND_WITHOUT),
        best=("fbpc-isotropic",),
        ships=True,
    ),
    CORRUPTIONS: Table(
        "accuracy on corrupted images, 10 per class", WITH_AND_WITHOUT, sizes=(MIDDLE,), again=True
    ),
    CROSS: Table(
        "coresets made for the ConvNet, and for several networks, scored on others",
        ("fbpc",),
        made_for=((CONVNET,), SEVERAL),
        on=(CONVNET, "resnet18", "resnet34", "vgg11", "alexnet"),
        again=True,
    ),
    NORMS: Table(
        "coresets made for one norm, and for four, scored on four",
        WITH_AND_WITHOUT,
        sizes=(MIDDLE,),
        made_for=((CONVNET,), FOUR_NORMS),
        on=FOUR_NORMS,
        again=True,
    ),
    RESNET18: Table(
        "coresets made for ResNet18 alone and with the ConvNet",
        ("fbpc",),
        sizes=(MIDDLE,),
        made_for=(("resnet18",), ("resnet18", CONVNET)),
        on=("resnet18", CONVNET),
        again=True,
    ),
    PROTOCOL: Table("random images by two readings of the paper's protocol", ("random",)),
}
"""The tables that consist of cells."""
BEYOND = "beyond"
FIDELITY = "fidelity"
FIDELITY_METHODS = ("bpc-fkl", "fbpc", "vbpc", "bpc-cd", "best")
"""The methods whose shipped coresets are compared with all images."""
RELABELLED = {"fbpc+experts": ("fbpc", "experts"), "vbpc+hard": ("vbpc", "hard")}
"""The same coresets with other labels, to see what labels do: the method, and the labels."""
REAL_SIZES = (*SIZES, 150, 400, 1000, 2500)
"""Real images per class, for a control with the same accuracy."""
TUNED = "tuned"
FIDELITY_PROTOCOLS = (TUNED, "bayes", "plain")
"""The protocols that are compared: the default; temperature 1 with a prior that mixes; and the same
without augmentation."""


@dataclass(frozen=True)
class Scope:
    """What cells are measured on: a data set, an image size and a number of held-out images.

    With held-out images, scores are those on them. They are for choosing settings and are not
    compared with the paper.
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
    """One measurement of a table. The recipe is None if there is nothing to tune."""

    table: str
    method: str
    ipc: int | None
    recipe: str | None
    made_for: tuple[str, ...] = (CONVNET,)
    """The networks that its coreset is made for, by name."""
    on: str = CONVNET
    """The network that it is scored on."""
    protocol: str = TUNED
    """How its posterior is sampled, where the table has several ways."""

    @property
    def dsa(self) -> bool:
        """Whether experts, coreset and sampler augment images."""
        return self.table != "dsa"

    @property
    def name(self) -> str:
        """Its name for `--cells`, such as fbpc/10, fbpc@resnet18/10/convnet or bayes:fbpc/10."""
        protocol = "" if self.protocol == TUNED else f"{self.protocol}:"
        made_for = "" if self.made_for == (CONVNET,) else f"@{'+'.join(self.made_for)}"
        table = TABLES.get(self.table)
        on = f"/{self.on}" if table is not None and len(table.on) > 1 else ""
        return f"{protocol}{self.method}{made_for}/{self.ipc or 'all'}{on}"

    @property
    def keeps_outputs(self) -> bool:
        """Whether it keeps its networks' outputs at one image: FBPC made for four norms."""
        return (self.table, self.method, self.made_for) == (NORMS, "fbpc", FOUR_NORMS)

    @property
    def coreset_name(self) -> str:
        """The name of its coreset."""
        size = f"-ipc{self.ipc}" if self.ipc else ""
        made_for = "" if self.made_for == (CONVNET,) else f"-for-{'+'.join(self.made_for)}"
        return f"{self.method}{made_for}{size}" + (f"-{self.recipe}" if self.recipe else "")

    @property
    def file_name(self) -> str:
        """The name of its file."""
        on = "" if self.on == CONVNET else f"-on-{self.on}"
        return self.coreset_name + on + ("" if self.protocol == TUNED else f"-{self.protocol}")

    def as_json(self) -> dict[str, Any]:
        """Its description in its file, without default values."""
        found = {**asdict(self), "made_for": list(self.made_for)}
        usual = {"made_for": [CONVNET], "on": CONVNET, "protocol": TUNED}
        return {name: value for name, value in found.items() if usual.get(name, ...) != value}

    def path(self, out: Path, scope: Scope) -> Path:
        """Where it is stored."""
        return out / self.table / scope.label / f"{self.file_name}.json"

    def read(
        self, path: Path, number: int, check: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """What its file holds, if it has the format of this number and passes a check.

        Anything else in its place is refused by name.
        """
        try:
            content = read_json(path)
            check_shape(content, {"format": int, "cell": dict})
            if content["format"] != number:
                raise ValueError(f"its format is {content['format']}, not {number}")
            if content["cell"] != self.as_json():
                raise ValueError(f"it holds {printable(content['cell'])}")
            check(content)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} can't be read as the measured cell {self.name} ({error}): delete it to "
                "measure it again."
            ) from None
        del content["format"], content["cell"]
        return dict(content)


def cell_with(table: str, method: str, ipc: int | None, recipe: str | None, data: str) -> Cell:
    """The cell with this recipe, or with the one that it falls back to."""
    if recipe is None or ipc is None or method == "random":
        return Cell(table, method, ipc, None)
    return Cell(table, method, ipc, recipe_for(data, ipc, method, recipe).section)


def cells_of(name: str, recipe: str | None, data: str) -> list[Cell]:
    """The cells of a table with this recipe, by default its own, or without a recipe."""
    table = TABLES[name]
    usual = recipe or ("tuned" if table.again else "paper")
    made = [(method, usual) for method in table.methods] + [(m, "best") for m in table.best]
    coresets = []
    for method, section in made:
        for nets in table.made_for:
            sizes = table.sizes if len(nets) == 1 else (MIDDLE,)
            for ipc in (None,) if method == FULL else sizes:
                cell = cell_with(name, method, ipc, section, data)
                coresets.append(replace(cell, made_for=nets))
    return [replace(cell, on=net) for cell in coresets for net in table.on]


def beyond_cells(data: str) -> list[Cell]:
    """The cells of what goes beyond the paper."""
    return [Cell(BEYOND, name, ipc, None) for ipc in SIZES for name in kinds(data, ipc)]


def fidelity_cells() -> list[Cell]:
    """The posteriors that are compared with that of all images, which come last: the ceiling."""
    names = (*FIDELITY_METHODS, *RELABELLED)
    made = [Cell(FIDELITY, name, ipc, None) for ipc in SIZES for name in names]
    real = [Cell(FIDELITY, "random", ipc, None) for ipc in REAL_SIZES]
    found = [*made, *real, Cell(FIDELITY, FULL, None, None)]
    return [replace(cell, protocol=each) for each in FIDELITY_PROTOCOLS for cell in found]
