"""How a coreset is made: a person's settings, and the recipe's where there are none."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import ImageData
from pseudocoreset.divergences import METHODS
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.recipes import OF_A_SUM, recipe_for

_FUNCTION_SPACE = ("fbpc", "fbpc-isotropic")
_WEIGHT_SPACE = ("bpc-fkl", "bpc-rkl", "bpc-w")

USED_BY: dict[str, tuple[str, ...]] = {
    "samples": (*_FUNCTION_SPACE, "bpc-fkl", "bpc-rkl"),
    "from_epoch": _FUNCTION_SPACE,
    "to_epoch": _FUNCTION_SPACE,
    "gamma": _FUNCTION_SPACE,
    "lr_map": _FUNCTION_SPACE,
    "max_map_steps": _FUNCTION_SPACE,
    "draws": _FUNCTION_SPACE,
    "lr_x": ("fbpc",),
    "lr_u": ("fbpc",),
    "covariance_steps": ("fbpc",),
    "real_batch": ("fbpc",),
    "start_epochs": _WEIGHT_SPACE,
    "student_steps": _WEIGHT_SPACE,
    "lr_student": _WEIGHT_SPACE,
    "expert_epochs": ("bpc-fkl", "bpc-w"),
    "noise": ("bpc-fkl", "bpc-rkl"),
    "group": ("bpc-fkl", "bpc-rkl"),
    "likelihood_batch": ("bpc-rkl",),
    "weight_x": ("bpc-rkl",),
    "weight_u": ("bpc-rkl",),
    "lr_lr": ("bpc-w",),
}
"""The settings that only some methods use; a person's own method may use any."""

OF_UPDATES = ("steps", "lr_images", "momentum", "average", "learn_labels", "lr_labels", "batch")
"""What every method uses but `random`, which makes no updates."""


@dataclass(frozen=True)
class DistillSettings:
    """How a coreset is made; what is None comes from the recipe.

    A setting that the method has no use for (`USED_BY`) is refused.

    Args:
        method: random, fbpc, fbpc-isotropic, bpc-fkl, bpc-rkl, bpc-w, or your own as
            package.module:factory
        ipc: images per class
        recipe: where the settings that are not given come from, by data, ipc and method: paper, or
            tuned, which is what was found to be better, and the paper's elsewhere
        steps: updates (N)
        lr_images: learning rate of the images, for a mean loss (α)
        momentum: momentum of the images
        average: the coreset is a mean over its updates that weighs the late ones most: about this
            share, the last, counts; 0: it is what the last update left
        batch: coreset images a step and an update (B); bpc-w: a step
        dsa: augmentation: on, off, or kinds separated by commas; default: the experts' own
        learn_labels: learn soft labels too, or not; default: the recipe's
        lr_labels: learning rate of the logits of learned labels
        init: real or noise: what the images are at first
        checkpoint_every: updates between two checkpoints
        samples: Monte-Carlo samples (S)
        from_epoch: experts are used from this epoch on (T)
        to_epoch: experts are used up to this epoch; default: the recipe's, or their last
        gamma: the MAP solution of the coreset is reached at this training loss (γ); with learned
            labels, at this much above their own entropy, which no loss is below
        lr_map: learning rate of Adam towards the MAP solution
        max_map_steps: bound on the steps towards the MAP solution
        draws: augmentations under which an update sees the coreset
        lr_x: learning rate of the steps on real data (λ_x)
        lr_u: learning rate of the steps on the coreset (λ_u)
        covariance_steps: steps behind an empirical covariance (K)
        real_batch: real images a step
        start_epochs: students start from an expert after fewer epochs than this; default: the
            recipe's, or what the experts allow
        student_steps: steps of a student on the coreset
        lr_student: learning rate of a student
        expert_epochs: the student is compared with the expert so many epochs after its start
        noise: standard deviation of the weights' posteriors (σ)
        group: samples of the weights taken at once; memory grows with it
        likelihood_batch: real images whose likelihood is compared with the coreset's
        weight_x: what the mean log-likelihood of the real images counts; their number for the exact
            gradient of the KL
        weight_u: what the mean log-likelihood of the coreset counts; its size for the exact
            gradient of the KL
        lr_lr: learning rate of the students' learning rate, which is learned; 0 leaves it as it is
    """

    method: str = "fbpc"
    ipc: int = 10
    recipe: str = "paper"
    steps: int | None = None
    lr_images: float | None = None
    momentum: float | None = None
    average: float | None = None
    batch: int | None = None
    dsa: str | None = None
    learn_labels: bool | None = None
    lr_labels: float | None = None
    init: str = "real"
    checkpoint_every: int = 25
    samples: int | None = None
    from_epoch: int | None = None
    to_epoch: int | None = None
    gamma: float | None = None
    lr_map: float | None = None
    max_map_steps: int | None = None
    draws: int | None = None
    lr_x: float | None = None
    lr_u: float | None = None
    covariance_steps: int | None = None
    real_batch: int | None = None
    start_epochs: int | None = None
    student_steps: int | None = None
    lr_student: float | None = None
    expert_epochs: int | None = None
    noise: float | None = None
    group: int | None = None
    likelihood_batch: int | None = None
    weight_x: float | None = None
    weight_u: float | None = None
    lr_lr: float | None = None

    def resolved(self, data: ImageData, experts: Sequence[ExpertStore]) -> dict[str, Any]:
        """All settings with the recipe filled in, checked."""
        values = asdict(self)
        if self.ipc < 1:
            raise UserError(f"--ipc {self.ipc} is too small: give 1 or more.")
        _refuse_unused(values)
        recipe = recipe_for(data.name, self.ipc, self.method, self.recipe)
        for name, value in asdict(recipe).items():
            if values[name] is None:
                values[name] = value
        if self.lr_images is None and self.method in OF_A_SUM:
            values["lr_images"] *= min(values["batch"], self.ipc * data.classes)
        if self.method == "random":
            values["steps"] = 0
        if self.lr_labels is not None and not values["learn_labels"]:
            raise UserError("--lr-labels has no use without --learn-labels: give both, or none.")
        if self.start_epochs is None and experts:
            last = min(store.last_epoch for store in experts)
            values["start_epochs"] = start_epochs_within(last, values)
        if self.dsa is None:
            values["dsa"] = _dsa_of(experts)
        values["dsa"] = str(Augmentation.parse(values["dsa"], data.mirror))
        _check(values)
        return values


def start_epochs_within(last_epoch: int, values: dict[str, Any]) -> int:
    """The epochs that students start from, fewer where experts of so many leave too few to follow.

    From the last start, as many as a student follows must be left.
    """
    follows: int = 0 if "expert_epochs" in _unused(values["method"]) else values["expert_epochs"]
    wanted: int = values["start_epochs"]
    return max(1, min(wanted, last_epoch - follows + 1))


def _dsa_of(experts: Sequence[ExpertStore]) -> str:
    """The augmentation that all experts were trained with."""
    for store in experts:
        if store.identity.dsa != experts[0].identity.dsa:
            raise UserError(
                f"{experts[0].path} and {store.path} hold experts of different augmentation "
                f"({experts[0].identity.dsa} and {store.identity.dsa}): give --dsa."
            )
    return experts[0].identity.dsa if experts else "on"


def used_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Those settings that the method uses: what a run was made with, and nothing else."""
    unused = _unused(values["method"])
    if not values["learn_labels"]:
        unused.append("lr_labels")
    return {name: value for name, value in values.items() if name not in unused}


def _unused(method: str) -> list[str]:
    if method != "random" and method not in METHODS:
        return []
    unused = [name for name, methods in USED_BY.items() if method not in methods]
    return [*unused, *OF_UPDATES] if method == "random" else unused


def _refuse_unused(values: dict[str, Any]) -> None:
    for name in _unused(values["method"]):
        if values[name] is not None:
            owners = ", ".join(USED_BY.get(name, METHODS))
            raise UserError(
                f"{_option(name)} is an option of {owners} and has no use in "
                f"{values['method']}: leave it out, or give another --method."
            )


_AT_LEAST_ONE = (
    "batch",
    "checkpoint_every",
    "samples",
    "max_map_steps",
    "draws",
    "covariance_steps",
    "real_batch",
    "start_epochs",
    "student_steps",
    "expert_epochs",
    "group",
    "likelihood_batch",
)
_POSITIVE = (
    "lr_images",
    "lr_labels",
    "gamma",
    "lr_map",
    "lr_x",
    "lr_u",
    "lr_student",
    "noise",
    "weight_x",
    "weight_u",
)


def _check(values: dict[str, Any]) -> None:
    for name in _AT_LEAST_ONE:
        if values[name] < 1:
            raise UserError(f"{_option(name)} {values[name]} is too small: give 1 or more.")
    for name in _POSITIVE:
        if not 0 < values[name] < inf:
            raise UserError(
                f"{_option(name)} {values[name]} is not positive: give a number above 0."
            )
    for name in ("steps", "lr_lr"):
        if not 0 <= values[name] < inf:
            raise UserError(f"{_option(name)} {values[name]} is out of range: give 0 or more.")
    if not 0 <= values["momentum"] < 1:
        raise UserError(f"--momentum {values['momentum']} is not in [0, 1): give 0.5, say.")
    if not 0 <= values["average"] <= 1:
        raise UserError(f"--average {values['average']} is not in [0, 1]: give 0.3, say, or 0.")
    first, last = values["from_epoch"], values["to_epoch"]
    if last is not None and last < first:
        raise UserError(f"--to-epoch {last} is before --from-epoch {first}: give a later one.")
    if values["method"] == "random" and values["init"] == "noise":
        raise UserError(
            "--init noise has no use in random, which is real images: leave it out, or give "
            "another --method."
        )
    if values["init"] not in ("real", "noise"):
        raise UserError(f"--init {values['init']} is not known: give real or noise.")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
