"""The one inner loop: weights ← rule(weights, ∇ loss(batch)).

Experts, MAP solutions, the steps behind an empirical covariance and SGHMC differ in the rule and in
where the batches come from, and in nothing else. The loss is the *mean* cross-entropy of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.augment import Augmentation, Chance
from pseudocoreset.data import Normalisation, Split
from pseudocoreset.engine.loop import (
    Loop,
    State,
    compiled,
    fastest_convolutions,
    training_precision,
)
from pseudocoreset.nets import Net, Weights

Vector = Float[Tensor, " p"]
Batch = tuple[Float[Tensor, "b c h w"], Shaped[Tensor, "b ..."]]


@runtime_checkable
class Rule(Protocol):
    """How a gradient moves the parameters."""

    def __hash__(self) -> int:
        """Equal rules share what is compiled for them."""

    def slots(self, params: Vector) -> State:
        """What the rule keeps between steps, at the start."""

    def draw(self, params: Vector, generator: torch.Generator) -> State:
        """What is random in an update; it finds it in its state."""

    def update(self, state: State, gradient: Vector) -> State:
        """The new `params` and slots."""


@dataclass(frozen=True)
class SGD:
    """θ ← θ − lr·∇."""

    lr: float

    def slots(self, params: Vector) -> State:  # noqa: ARG002
        """Nothing is kept."""
        return {}

    def draw(self, params: Vector, generator: torch.Generator) -> State:  # noqa: ARG002
        """Nothing is random."""
        return {}

    def update(self, state: State, gradient: Vector) -> State:
        """One step downhill."""
        return {"params": state["params"] - self.lr * gradient}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015) with its usual constants."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def slots(self, params: Vector) -> State:
        """Both moments and the number of steps, which lives on the device as all else does."""
        zeros = torch.zeros_like(params)
        return {"first": zeros, "second": zeros.clone(), "count": params.new_zeros(())}

    def draw(self, params: Vector, generator: torch.Generator) -> State:  # noqa: ARG002
        """Nothing is random."""
        return {}

    def update(self, state: State, gradient: Vector) -> State:
        """One bias-corrected step."""
        count = state["count"] + 1
        first = torch.lerp(state["first"], gradient, 1 - self.beta1)
        second = torch.lerp(state["second"], gradient * gradient, 1 - self.beta2)
        scale = self.lr / (1 - self.beta1**count)
        root = (second / (1 - self.beta2**count)).sqrt() + self.eps
        params = state["params"] - scale * first / root
        return {"params": params, "first": first, "second": second, "count": count}


@runtime_checkable
class Source(Protocol):
    """Where a step's images come from."""

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:
        """The images at these positions, normalised, and their labels; all of them for None."""


@dataclass(frozen=True)
class RealImages:
    """A data set, kept as bytes."""

    split: Split
    normalisation: Normalisation

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:  # noqa: ARG002
        """Normalise what is taken."""
        images, labels = self.split.images, self.split.labels
        if index is not None:
            images, labels = images[index], labels[index]
        return self.normalisation.apply(images), labels


@dataclass(frozen=True)
class StillImages:
    """Normalised images that stay as they are while networks train on them, kept once for all."""

    images: Float[Tensor, "n c h w"]
    labels: Shaped[Tensor, "n ..."]

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:  # noqa: ARG002
        """Those that are asked for."""
        if index is None:
            return self.images, self.labels
        return self.images[index], self.labels[index]


def coreset_images(state: State, index: Int64[Tensor, " b"] | None) -> Batch:
    """The `images` and `labels` that the training was started with."""
    images, labels = state["images"], state["labels"]
    return (images, labels) if index is None else (images[index], labels[index])


@lru_cache(maxsize=64)
def _loss_of(
    net: Net, augmentation: Augmentation, device: torch.device
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Mean loss of augmented images, logits, new buffers; kept, since compiling takes seconds."""

    def loss(
        params: Tensor, buffers: Tensor, images: Tensor, labels: Tensor, chance: Chance | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if chance is not None:
            images = augmentation.by_chance(images, chance)
        with training_precision(device):
            logits, buffers = net.train(Weights(params, buffers), images)
        return F.cross_entropy(logits.to(params.dtype), labels), logits.detach(), buffers

    return compiled(loss, device)


@lru_cache(maxsize=64)
def outputs_of(net: Net, device: torch.device) -> Callable[[Weights, Tensor], Tensor]:
    """The network's outputs in test mode, to be differentiated, as precise as in training steps."""

    def outputs(weights: Weights, images: Tensor) -> Tensor:
        with training_precision(device):
            return net.apply(weights, images).to(images.dtype)

    return compiled(outputs, device)


@lru_cache(maxsize=64)
def _update_of(rule: Rule, device: torch.device) -> Callable[..., State]:
    """What a step changes, given its gradient."""

    def update(state: State, gradient: Tensor, loss: Tensor, correct: Tensor) -> State:
        sums = {"loss_sum": state["loss_sum"] + loss, "correct_sum": state["correct_sum"] + correct}
        return {**rule.update(state, gradient), **sums}

    return compiled(update, device)


class Training:
    """A network in training; start it, take steps, read its weights, start it again.

    With a `batch`, step t takes that many images at the positions `order[t·batch …]`, round and
    round; without one, all of them.
    """

    def __init__(
        self,
        net: Net,
        rule: Rule,
        source: Source,
        augmentation: Augmentation,
        generator: torch.Generator,
        *,
        batch: int | None = None,
        observe: Callable[[State], State] | None = None,
    ) -> None:
        self._rule = rule
        self._source = source
        self._batch = batch
        self._augmentation = augmentation
        self._generator = generator
        self._observe = observe
        self._loop = Loop(self._step, generator)
        self._loss = _loss_of(net, augmentation, generator.device)
        self._update = _update_of(rule, generator.device)
        self._own: tuple[str, ...] = ()  # what the update reads and writes
        self._draws = generator.device.type == "cpu" and net.draws

    def start(self, weights: Weights, inputs: State | None = None) -> None:
        """Begin at `weights`; `inputs` are what source and observer read from the state."""
        params, buffers = weights
        self._loop.load({"params": params, "buffers": buffers})
        slots = self._rule.slots(params)
        self._loop.load(slots)
        self._own = ("params", "loss_sum", "correct_sum", *slots)
        # A person's own network may draw from PyTorch's global generator (dropout). On a CPU it
        # does so from a stream that follows from the run's; the person's own stays put.
        seed = self._generator.initial_seed()
        if self._draws:
            seed = int(torch.randint(2**62, (), generator=self._generator))
        self._global_random = torch.Generator().manual_seed(seed).get_state()
        zero = params.new_zeros(())
        self._loop.load({"loss_sum": zero, "correct_sum": zero, **(inputs or {})})

    def set_order(self, order: Int64[Tensor, " n"]) -> None:
        """From now on, take batches at these positions, from the first on."""
        self._loop.load({"order": order, "step": order.new_zeros(())})

    def run(self, steps: int) -> None:
        """Take so many steps."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._global_random)
            self._loop.run(steps)
            self._global_random = torch.get_rng_state()

    @property
    def weights(self) -> Weights:
        """The weights now; they change in place as the training goes on."""
        return Weights(self.state["params"], self.state["buffers"])

    @property
    def state(self) -> State:
        """All that the training holds: weights, the rule's slots, inputs, what was observed."""
        return self._loop.state

    def take(self, name: str) -> float:
        """Read a running sum (`loss_sum`, `correct_sum`), wait for it, and set it to zero."""
        value = float(self.state[name])
        self.state[name].zero_()
        return value

    def _step(self, state: State) -> State:
        changed: State = {}
        index = None
        if self._batch is not None:
            order = state["order"]
            place = state["step"] * self._batch + torch.arange(self._batch, device=order.device)
            index = order[place % len(order)]
            changed["step"] = state["step"] + 1
        images, labels = self._source(state, index)
        off = not self._augmentation.kinds
        chance = None if off else self._augmentation.chance(len(images), self._generator)
        params = state["params"].detach().requires_grad_()
        with torch.enable_grad(), fastest_convolutions():
            loss, logits, buffers = self._loss(params, state["buffers"], images, labels, chance)
            (gradient,) = torch.autograd.grad(loss, params)
        own = {name: state[name] for name in self._own}
        own |= self._rule.draw(own["params"], self._generator)
        changed |= self._update(own, gradient, loss.detach(), _share_correct(logits, labels))
        changed["buffers"] = buffers.detach()
        if self._observe is not None:
            changed |= self._observe({**state, **changed})
        return changed


def _share_correct(logits: Float[Tensor, "b k"], labels: Shaped[Tensor, "b ..."]) -> Tensor:
    classes: Int64[Tensor, " b"] = labels if labels.ndim == 1 else labels.argmax(1)
    return (logits.argmax(1) == classes).float().mean()
