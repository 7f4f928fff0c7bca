"""Common parts of the weight-space methods, with posteriors N(μ, σ²·1) over the weights.

Both start from θ₀, an expert's snapshot at an early random epoch: μ_x is the same expert some
epochs on, and μ_u is where a student comes from θ₀ by SGD on the coreset.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.engine.loop import State, compiled
from pseudocoreset.engine.options import option
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.search import Around, Epochs
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods.base import Context, Divergence, Estimate, Method, Points
from pseudocoreset.methods.map_solution import random_order
from pseudocoreset.nets import Weights
from pseudocoreset.training import SGD, Training, coreset_points


class Segment(NamedTuple):
    """A piece of an expert's trajectory: θ₀, and where the expert is some epochs on."""

    start: Weights
    target: Weights
    epoch: int


class Update:
    """The loops of one update of a method, made once: their steps are captured on first use."""

    def __init__(self, method: "WeightSpace", context: Context, size: int, rng: Rng) -> None:
        self.steps = method.student_steps
        self.context = context
        self.likelihood = context.likelihood
        self.rng = rng
        self.batch = context.batch_of(size)
        """Points of the coreset that a step takes; None for all."""
        self.apply = compiled(context.net.apply, context.device, fused=context.net.fused)

    def estimate(self, coreset: Points, segment: Segment, state: State) -> Estimate:
        """The gradient, given where the expert starts and where it goes."""
        raise NotImplementedError


@dataclass(frozen=True)
class WeightSpace(Method):
    """The options of methods that start from a piece of an expert's trajectory."""

    title: ClassVar[str]
    update: ClassVar[type[Update]]

    start_epochs: int = option(
        20,
        "students start from an expert after fewer than this many epochs",
        at_least=1,
        search=Epochs(),
    )
    student_steps: int = option(30, "steps of a student on the coreset", at_least=1)
    lr_student: float = option(0.03, "learning rate of a student", above=0, search=Around(4))

    @property
    def follows(self) -> int:
        """Epochs of the expert between θ₀ and μ_x."""
        return 0

    def within(self, last_epoch: int, given: frozenset[str]) -> Self:
        """Start early enough that the epochs that are followed are there."""
        if "start_epochs" in given:
            return self
        most = max(1, min(self.start_epochs, last_epoch - self.follows + 1))
        return replace(self, start_epochs=most)

    def prepare(self, context: Context) -> Divergence:
        """The gradient for one network."""
        return _WeightSpaceDivergence(self, context)

    def begin(self, context: Context) -> State:  # noqa: ARG002
        """What is kept between updates, before the first.

        Args:
            context: a network, its experts and the data
        """
        return {}


@dataclass(frozen=True)
class Sampled(WeightSpace):
    """The options of methods that sample weights."""

    samples: int = option(30, "Monte-Carlo samples (S)", at_least=1)
    noise: float = option(0.01, "standard deviation of the weights' posteriors (σ)", above=0)
    group: int = option(
        1, "samples computed at the same time; more need more memory", at_least=1, extendable=True
    )

    @property
    def group_size(self) -> int:
        """Samples that a step takes; every step is the same, so it divides `samples`."""
        largest = min(self.group, self.samples)
        return next(g for g in range(largest, 0, -1) if self.samples % g == 0)


class _WeightSpaceDivergence:
    """Draws pieces of trajectories, and makes an update with each."""

    def __init__(self, method: WeightSpace, context: Context) -> None:
        if context.experts is None:
            raise UserError(f"{method.title} needs trained experts: give `experts`.", "experts")
        context.experts.require(0, method.start_epochs - 1 + method.follows)
        self._method = method
        self._context = context
        self._experts = context.experts
        self._update: Update | None = None

    def start(self) -> State:
        """What is kept between updates, before the first."""
        return self._method.begin(self._context)

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """Draw a piece of a trajectory, and make the update with it."""
        method, context = self._method, self._context
        if self._update is None or self._update.rng is not rng:
            self._update = method.update(method, context, len(coreset.inputs), rng)
        segment = draw_segment(self._experts, method, context.device, rng)
        return self._update.estimate(coreset, segment, state)


def draw_segment(
    experts: ExpertStore, method: WeightSpace, device: torch.device, rng: Rng
) -> Segment:
    """A piece that starts in [0, `start_epochs`), from all trajectories."""
    trajectory = experts.trajectories[rng.choose(len(experts))]
    epoch = rng.choose(method.start_epochs)
    start = experts.snapshot(trajectory, epoch, device)
    target = start
    if method.follows:
        target = experts.snapshot(trajectory, epoch + method.follows, device)
    return Segment(start, target, epoch)


class Student:
    """μ_u: SGD steps on (u, ỹ) from θ₀, augmented; no gradient flows through them.

    A coreset of more than `batch` points is gone through in random order, `batch` at a time.
    """

    def __init__(self, method: WeightSpace, update: Update) -> None:
        context = update.context
        self._steps = method.student_steps
        self._batch = update.batch
        self._rng = update.rng
        self._training = Training(
            context.net,
            SGD(method.lr_student * context.likelihood.step_scale),
            coreset_points,
            context.augmentation,
            context.likelihood,
            update.rng.device,
            batch=update.batch,
        )

    def train(self, start: Weights, coreset: Points) -> Weights:
        """The weights after all steps; they stay as they are until the next call."""
        self._training.start(start, coreset._asdict())
        if self._batch is not None:
            self._training.set_order(random_order(len(coreset.inputs), self._rng))
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
    """Which points an update moves: a batch of them, or all."""
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
    """The parts of the coreset that get a gradient, as leaves: `inputs`, and soft `targets`."""
    names = ["inputs", "targets"] if state["targets"].is_floating_point() else ["inputs"]
    return {name: state[name].detach().requires_grad_() for name in names}


def gradients_by(leaves: State, value: Float[Tensor, ""]) -> State:
    """The gradients of a value by the leaves, by the name `gradient_…`."""
    found = torch.autograd.grad(value, list(leaves.values()))
    return {f"gradient_{name}": gradient for name, gradient in zip(leaves, found, strict=True)}


def nothing_gathered(coreset: Points, *sums: str) -> State:
    """The coreset in a loop's state, and zeros where its gradients and these sums are gathered."""
    inputs: State = coreset._asdict()
    gradients = {f"gradient_{k}": torch.zeros_like(v) for k, v in learned_leaves(inputs).items()}
    return {**inputs, **gradients, **dict.fromkeys(sums, coreset.inputs.new_zeros(()))}


def gathered(state: State) -> State:
    """The gradients in a loop's state as values of their own, by what they are gradients of."""
    prefix = "gradient_"
    return {k.removeprefix(prefix): v.clone() for k, v in state.items() if k.startswith(prefix)}
