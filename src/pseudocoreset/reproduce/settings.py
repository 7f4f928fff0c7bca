"""The settings of a cell from its recipe."""

from dataclasses import dataclass
from typing import Any

from pseudocoreset.distillation import DistillOptions
from pseudocoreset.experts import ExpertOptions
from pseudocoreset.methods import FBPC, FBPCIsotropic, Method, method_class
from pseudocoreset.methods.weight_space import WeightSpace
from pseudocoreset.recipes import recipe_for
from pseudocoreset.reproduce.cells import Cell

EXPERT_LR, EXPERT_BATCH = ExpertOptions().lr, ExpertOptions().batch
"""The paper's, for data of any size; another learning rate can be given."""


@dataclass(frozen=True)
class CellSettings:
    """The options of a cell's method and of its updates, by the cell's recipe."""

    method: Method
    options: DistillOptions

    @staticmethod
    def of(cell: Cell, data: str) -> "CellSettings":
        """Those of a cell that has a recipe."""
        assert cell.ipc is not None
        assert cell.recipe is not None
        values = recipe_for(data, cell.ipc, cell.method, cell.recipe).values
        return CellSettings(
            method_class(cell.method)().resolved(values),
            DistillOptions(ipc=cell.ipc).resolved(values),
        )

    def config(self, epochs: int, images: int) -> dict[str, Any]:
        """By name, for experts of this many epochs and a coreset of this many images.

        What no recipe decides (augmentation, checkpoints) is left out.
        """
        options = self.options.as_dict()
        for name in ("dsa", "checkpoint_every"):
            del options[name]
        if self.method.along_sum:
            options["lr_images"] *= min(self.options.batch, images)
        return {**options, **self.method.within(epochs, frozenset()).as_dict()}

    @property
    def epochs_needed(self) -> int:
        """The least number of epochs of experts; students start as late as there are epochs for."""
        if isinstance(self.method, FBPC | FBPCIsotropic):
            return max(self.method.from_epoch, self.method.to_epoch or 0)
        return max(1, self.method.follows) if isinstance(self.method, WeightSpace) else 1
