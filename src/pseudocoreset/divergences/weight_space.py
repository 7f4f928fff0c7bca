"""What the weight-space methods share: Gaussian posteriors N(μ, σ²·1) over a network's weights.

Both start from θ₀, an expert's snapshot at an early random epoch: μ_x is the same expert some
epochs on, and μ_u is where a student comes from θ₀ by SGD on the coreset.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pseudocoreset.divergences.base import Context, Points
from pseudocoreset.divergences.map_solution import random_order
from pseudocoreset.engine.loop import State
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Weights
from pseudocoreset.training import SGD, Training, coreset_images


@dataclass(frozen=True)
class StudentRecipe:
    """Where a student starts and how it is trained; one row of Kim et al.'s (2022) settings."""

    start_epochs: int
    """θ₀ is a snapshot of an epoch in [0, this)."""
    steps: int
    lr: float


RECIPES = {1: StudentRecipe(2, 50, 0.01), 10: StudentRecipe(20, 30, 0.03)}
"""By images per class; other sizes take the nearest one's, in ratio."""


def nearest(sizes: Iterable[int], context: Context, coreset_size: int) -> int:
    """Which of these numbers of images per class is nearest to the coreset's, in ratio."""
    ipc = coreset_size / context.net.classes
    return min(sizes, key=lambda size: max(size / ipc, ipc / size))


def recipe_for(
    context: Context, experts: ExpertStore, coreset_size: int, ahead: int = 1
) -> StudentRecipe:
    """The recipe for a coreset of this size; what the settings say goes before the table.

    Experts of fewer epochs than the table's are used up to the last one from which `ahead` more
    are left.
    """
    usual = RECIPES[nearest(RECIPES, context, coreset_size)]
    settings = context.settings
    experts.require(0, (settings.start_epochs or 1) - 1 + ahead)
    return StudentRecipe(
        settings.start_epochs or min(usual.start_epochs, experts.last_epoch - ahead + 1),
        settings.student_steps or usual.steps,
        settings.lr_student or usual.lr,
    )


def experts_of(context: Context, method: str) -> ExpertStore:
    """The experts, refused by name where there are none or where they lack the early epochs."""
    if context.experts is None:
        raise UserError(f"{method} needs trained experts: give --experts.")
    context.experts.require(0, context.settings.start_epochs or 1)
    return context.experts


class Segment(NamedTuple):
    """A piece of an expert's trajectory: θ₀, and where the expert is some epochs on."""

    start: Weights
    target: Weights
    epoch: int


def draw_segment(
    store: ExpertStore, start_epochs: int, rng: Rng, device: torch.device, ahead: int = 1
) -> Segment:
    """A piece of `ahead` epochs that starts in [0, `start_epochs`), from all trajectories."""
    trajectory = store.trajectories[rng.choose(len(store))]
    epoch = rng.choose(start_epochs)
    start, target = (store.snapshot(trajectory, e, device) for e in (epoch, epoch + ahead))
    return Segment(start, target, epoch)


class Student:
    """μ_u: SGD steps on (u, ỹ) from θ₀, augmented; no gradient flows through them.

    A coreset of more than `batch` images is gone through in random order, `batch` at a time.
    """

    def __init__(self, context: Context, recipe: StudentRecipe, batch: int | None, rng: Rng):
        self._steps = recipe.steps
        self._batch = batch
        self._rng = rng
        rule, augmentation = SGD(recipe.lr), context.augmentation
        self._training = Training(
            context.net, rule, coreset_images, augmentation, rng.device, batch=batch
        )

    def train(self, start: Weights, coreset: Points) -> Weights:
        """The weights after all steps; they stay as they are until the next call."""
        self._training.start(start, coreset._asdict())
        if self._batch is not None:
            self._training.set_order(random_order(len(coreset.images), self._rng))
        self._training.run(self._steps)
        return self._training.weights

    def mean_loss(self) -> float:
        """The mean training loss of the last call's steps; waits for the device."""
        return self._training.take("loss_sum") / self._steps


def draw_chosen(size: int, batch: int | None, rng: Rng) -> Int64[Tensor, " b"]:
    """Which images an update moves: `batch` of them, or all."""
    if batch is None:
        return torch.arange(size, device=rng.device.device)
    return random_order(size, rng)[:batch]


def around(
    mean: Float[Tensor, " p"], std: float, generator: torch.Generator
) -> Float[Tensor, " p"]:
    """μ + σ ε, with ε standard Gaussian."""
    noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    return mean + std * noise


def learned_leaves(state: State) -> State:
    """The parts of the coreset that get a gradient, as leaves: `images`, and soft `labels`."""
    names = ["images", "labels"] if state["labels"].is_floating_point() else ["images"]
    return {name: state[name].detach().requires_grad_() for name in names}


def zero_gradients(coreset: Points) -> State:
    """Where the gradients of what is learned are gathered, by the name `gradient_…`."""
    return {
        f"gradient_{name}": torch.zeros_like(v)
        for name, v in learned_leaves(coreset._asdict()).items()
    }


def gradients_of(state: State) -> State:
    """The gradients in a loop's state as values of their own, by what they are gradients of."""
    prefix = "gradient_"
    return {k.removeprefix(prefix): v.clone() for k, v in state.items() if k.startswith(prefix)}
