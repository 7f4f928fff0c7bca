"""How a coreset is made: a person's settings, and the recipe's where there are none."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import ImageData
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.recipes import recipe_for


@dataclass(frozen=True)
class DistillSettings:
    """How a coreset is made; what is None comes from the recipe for the data and `ipc`.

    Args:
        method: random, fbpc, fbpc-isotropic, bpc-fkl, bpc-rkl, bpc-w, or your own as
            package.module:factory
        ipc: images per class
        steps: updates (N)
        lr_images: learning rate of the images, for a mean loss (α)
        momentum: momentum of the images
        from_epoch: experts are used from this epoch on (T)
        gamma: the MAP solution of the coreset is reached at this training loss (γ)
        lr_x: learning rate of the steps on real data (λ_x)
        lr_u: learning rate of the steps on the coreset (λ_u)
        batch: coreset images a step and an update (B)
        lr_map: learning rate of Adam towards the MAP solution
        real_batch: real images a step
        covariance_steps: steps behind an empirical covariance (K)
        samples: Monte-Carlo samples (S)
        draws: augmentations an update
        dsa: augmentation: on, off, or kinds separated by commas; default: the experts' own
        max_map_steps: bound on the steps towards the MAP solution
        learn_labels: learn soft labels too
        lr_labels: learning rate of the labels' logits
        init: real or noise: what the images are at first
        checkpoint_every: updates between two checkpoints
    """

    method: str = "fbpc"
    ipc: int = 10
    steps: int | None = None
    lr_images: float | None = None
    momentum: float | None = None
    from_epoch: int | None = None
    gamma: float | None = None
    lr_x: float | None = None
    lr_u: float | None = None
    batch: int | None = None
    lr_map: float | None = None
    real_batch: int | None = None
    covariance_steps: int | None = None
    samples: int = 30
    draws: int = 1
    dsa: str | None = None
    max_map_steps: int = 5000
    learn_labels: bool = False
    lr_labels: float = 10.0
    init: str = "real"
    checkpoint_every: int = 25

    def resolved(self, data: ImageData, experts: Sequence[ExpertStore]) -> dict[str, Any]:
        """All settings with the recipe filled in, checked."""
        values = asdict(self)
        if self.ipc < 1:
            raise UserError(f"--ipc {self.ipc} is too small: give 1 or more.")
        for name, value in asdict(recipe_for(data.name, self.ipc, self.method)).items():
            if values[name] is None:
                values[name] = value
        if self.method == "random":
            values["steps"] = 0
        if self.dsa is None:
            values["dsa"] = experts[0].identity.dsa if experts else "on"
        values["dsa"] = str(Augmentation.parse(values["dsa"], data.mirror))
        _check(values)
        return values


def _check(values: dict[str, Any]) -> None:
    at_least_one = ("batch", "real_batch", "covariance_steps", "samples", "draws")
    for name in (*at_least_one, "max_map_steps", "checkpoint_every"):
        if values[name] < 1:
            raise UserError(f"{_option(name)} {values[name]} is too small: give 1 or more.")
    if not 0 <= values["momentum"] < 1:
        raise UserError(f"--momentum {values['momentum']} is not in [0, 1): give 0.5, say.")
    if values["steps"] < 0:
        raise UserError(f"--steps {values['steps']} is negative: give 0 or more.")
    for name in ("lr_images", "lr_x", "lr_u", "lr_map", "lr_labels", "gamma"):
        if not 0 < values[name] < inf:
            raise UserError(
                f"{_option(name)} {values[name]} is not positive: give a number above 0."
            )
    if values["init"] not in ("real", "noise"):
        raise UserError(f"--init {values['init']} is not known: give real or noise.")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
