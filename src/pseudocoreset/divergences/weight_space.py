"""What the weight-space methods share: Gaussian posteriors N(μ, σ²·1) over a network's weights.

Both start from θ₀, an expert's snapshot at an early random epoch: μ_x is the same expert some
epochs on, and μ_u is where a student comes from θ₀ by SGD on the coreset.
"""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.divergences.base import Context, Estimate, Points
from pseudocoreset.divergences.map_solution import random_order
from pseudocoreset.engine.loop import State, compiled
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.nets import Weights
from pseudocoreset.training import SGD, Training, coreset_images


class Segment(NamedTuple):
    """A piece of an expert's trajectory: θ₀, and where the expert is some epochs on."""

    start: Weights
    target: Weights
    epoch: int


class Update:
    """The loops of one update of a method, made once: their steps are captured on first use."""

    def __init__(self, context: Context, size: int, rng: Rng) -> None:
        self.context = context
        self.settings = context.settings
        self.rng = rng
        self.batch = self.settings.batch if self.settings.batch < size else None
        """Images of the coreset that a step takes; None for all."""
        self.apply = compiled(context.net.apply, context.device)
        samples = self.settings.samples
        # Every step of a loop is the same: the group must divide the samples.
        largest = min(self.settings.group, samples)
        self.group = next(g for g in range(largest, 0, -1) if samples % g == 0)
        """Samples of the weights that a step takes."""

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The gradient, given where the expert starts and where it goes."""
        raise NotImplementedError


class WeightSpaceMethod:
    """A divergence whose updates each begin with a piece of an expert's trajectory."""

    name: ClassVar[str]
    update: ClassVar[type[Update]]
    needs_target: ClassVar[bool] = True
    """Whether an update asks where the expert goes from θ₀."""

    def __init__(self, context: Context) -> None:
        if context.experts is None:
            raise UserError(f"{self.name} needs trained experts: give --experts.")
        settings = context.settings
        self._epochs = settings.expert_epochs if self.needs_target else 0
        context.experts.require(0, settings.start_epochs - 1 + self._epochs)
        self._context = context
        self._experts = context.experts
        self._update: Update | None = None

    def start(self) -> State:
        """Nothing is kept between updates."""
        return {}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """Draw a piece of a trajectory, and make the update with it."""
        if self._update is None or self._update.rng is not rng:
            self._update = self.update(self._context, len(coreset.images), rng)
        segment = draw_segment(self._experts, self._context, rng, self._epochs)
        return self._update.estimate(coreset, segment, state)


def draw_segment(experts: ExpertStore, context: Context, rng: Rng, epochs: int) -> Segment:
    """A piece of so many epochs that starts in [0, `start_epochs`), from all trajectories."""
    trajectory = experts.trajectories[rng.choose(len(experts))]
    epoch = rng.choose(context.settings.start_epochs)
    start = experts.snapshot(trajectory, epoch, context.device)
    target = experts.snapshot(trajectory, epoch + epochs, context.device) if epochs else start
    return Segment(start, target, epoch)


class Student:
    """μ_u: SGD steps on (u, ỹ) from θ₀, augmented; no gradient flows through them.

    A coreset of more than `batch` images is gone through in random order, `batch` at a time.
    """

    def __init__(self, update: Update) -> None:
        context = update.context
        self._steps = context.settings.student_steps
        self._batch = update.batch
        self._rng = update.rng
        self._training = Training(
            context.net,
            SGD(context.settings.lr_student),
            coreset_images,
            context.augmentation,
            update.rng.device,
            batch=update.batch,
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


def sampled_estimate(found: State, segment: Segment, student: Student, state: State) -> Estimate:
    """What an update by samples of the weights found, and what it says of itself."""
    info = {
        "loss_x": float(found["loss_x"]),
        "loss_u": float(found["loss_u"]),
        "student_loss": student.mean_loss(),
        "start_epoch": segment.epoch,
    }
    return Estimate(gathered(found), state, info)


def draw_chosen(size: int, update: Update) -> Int64[Tensor, " b"]:
    """Which images an update moves: a batch of them, or all."""
    if update.batch is None:
        return torch.arange(size, device=update.rng.device.device)
    return random_order(size, update.rng)[: update.batch]


def around(
    mean: Float[Tensor, " p"], std: float, generator: torch.Generator
) -> Float[Tensor, " p"]:
    """μ + σ ε, with ε standard Gaussian."""
    return mean + std * torch.empty_like(mean).normal_(generator=generator)


def draw_entries(draw: Draw) -> State:
    """An augmentation as entries of a loop's state, by the name `draw_…`."""
    return {f"draw_{name}": value for name, value in draw._asdict().items()}


def learned_leaves(state: State) -> State:
    """The parts of the coreset that get a gradient, as leaves: `images`, and soft `labels`."""
    names = ["images", "labels"] if state["labels"].is_floating_point() else ["images"]
    return {name: state[name].detach().requires_grad_() for name in names}


def gradients_by(leaves: State, value: Float[Tensor, ""]) -> State:
    """The gradients of a value by the leaves, by the name `gradient_…`."""
    found = torch.autograd.grad(value, list(leaves.values()))
    return {f"gradient_{name}": gradient for name, gradient in zip(leaves, found, strict=True)}


def nothing_gathered(coreset: Points, *sums: str) -> State:
    """The coreset in a loop's state, and zeros where its gradients and these sums are gathered."""
    inputs: State = coreset._asdict()
    gradients = {f"gradient_{k}": torch.zeros_like(v) for k, v in learned_leaves(inputs).items()}
    return {**inputs, **gradients, **dict.fromkeys(sums, coreset.images.new_zeros(()))}


def gathered(state: State) -> State:
    """The gradients in a loop's state as values of their own, by what they are gradients of."""
    prefix = "gradient_"
    return {k.removeprefix(prefix): v.clone() for k, v in state.items() if k.startswith(prefix)}
