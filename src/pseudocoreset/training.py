"""The training loop: weights ← rule(weights, ∇ loss(batch)).

Experts, MAP solutions, covariance steps and SGHMC differ only in the rule and the source of the
batches. The loss is the likelihood's *mean* over a batch.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.data import Scaling, Split
from pseudocoreset.engine.loop import (
    Loop,
    State,
    compiled,
    fastest_convolutions,
    training_precision,
)
from pseudocoreset.kernels.adam import adam_step, can_step
from pseudocoreset.likelihoods import Likelihood
from pseudocoreset.nets import Net, Weights

Vector = Float[Tensor, " p"]
Batch = tuple[Float[Tensor, "b ..."], Shaped[Tensor, "b ..."]]


@runtime_checkable
class Rule(Protocol):
    """An update rule of the parameters."""

    def slots(self, params: Vector) -> State:
        """The initial state of the rule."""

    def draw(self, params: Vector, generator: torch.Generator) -> State:
        """The random numbers of an update, to be added to its state."""

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
        if can_step(state["params"]):
            old = (state["params"], state["first"], state["second"])
            constants = (self.lr, self.beta1, self.beta2, self.eps)
            params, first, second = adam_step(*old, gradient, count, constants)
            return {"params": params, "first": first, "second": second, "count": count}
        first = torch.lerp(state["first"], gradient, 1 - self.beta1)
        second = torch.lerp(state["second"], gradient * gradient, 1 - self.beta2)
        scale = self.lr / (1 - self.beta1**count)
        root = (second / (1 - self.beta2**count)).sqrt() + self.eps
        params = state["params"] - scale * first / root
        return {"params": params, "first": first, "second": second, "count": count}


@runtime_checkable
class Source(Protocol):
    """A source of points."""

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:
        """The inputs at these positions, scaled, and their targets; all of them for None."""


@dataclass(frozen=True)
class RealPoints:
    """A data set; images are kept as bytes."""

    split: Split
    scaling: Scaling
    target_scaling: Scaling | None = None

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:  # noqa: ARG002
        """Scale what is taken."""
        inputs, targets = self.split.inputs, self.split.targets
        if index is not None:
            inputs, targets = inputs[index], targets[index]
        if self.target_scaling is not None:
            targets = self.target_scaling.apply(targets)
        return self.scaling.apply(inputs), targets


@dataclass(frozen=True)
class FixedPoints:
    """Scaled points that stay as they are while networks train on them."""

    inputs: Float[Tensor, "n ..."]
    targets: Shaped[Tensor, "n ..."]

    def __call__(self, state: State, index: Int64[Tensor, " b"] | None) -> Batch:  # noqa: ARG002
        """Those that are asked for."""
        if index is None:
            return self.inputs, self.targets
        return self.inputs[index], self.targets[index]


def coreset_points(state: State, index: Int64[Tensor, " b"] | None) -> Batch:
    """The `inputs` and `targets` that the training was started with."""
    inputs, targets = state["inputs"], state["targets"]
    return (inputs, targets) if index is None else (inputs[index], targets[index])


def train_mode(
    net: Net, weights: Weights, inputs: Float[Tensor, "n ..."], *, half: bool
) -> tuple[Float[Tensor, "n k"], Float[Tensor, " q"]]:
    """Outputs in training mode and the buffers after it, which may be differentiated twice.

    Args:
        net: the network
        weights: its weights
        inputs: the points, scaled
        half: compute in bfloat16 on CUDA
    """
    with training_precision(inputs.device) if half else nullcontext():
        outputs, buffers = net.train(weights, inputs)
    return outputs.to(weights.params.dtype), buffers


@lru_cache(maxsize=64)
def _loss_of(
    net: Net, likelihood: Likelihood, device: torch.device
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Mean loss of inputs, outputs, new buffers; kept, since compiling takes seconds."""

    def loss(
        params: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        with training_precision(device):
            outputs, buffers = net.train(Weights(params, buffers), inputs)
        return likelihood.loss(outputs.to(params.dtype), targets), outputs.detach(), buffers

    return compiled(loss, device, fused=net.fused)


@lru_cache(maxsize=64)
def outputs_of(net: Net, device: torch.device) -> Callable[[Weights, Tensor], Tensor]:
    """The network's outputs in test mode, to be differentiated, as precise as in training steps."""

    def outputs(weights: Weights, inputs: Tensor) -> Tensor:
        with training_precision(device):
            return net.apply(weights, inputs).to(inputs.dtype)

    return compiled(outputs, device, fused=net.fused)


@lru_cache(maxsize=64)
def features_of(net: Net, device: torch.device) -> Callable[[Weights, Tensor], Tensor]:
    """The input of the network's last layer, as `outputs_of` gives its outputs."""
    net.head  # noqa: B018 - found, or refused, before anything is compiled

    def features(weights: Weights, inputs: Tensor) -> Tensor:
        with training_precision(device):
            return net.features(weights, inputs).to(inputs.dtype)

    return compiled(features, device, fused=net.fused)


class Training:
    """A network in training; start it, take steps, read its weights, start it again.

    With a `batch`, step t takes that many points at the positions `order[t·batch …]`, round and
    round; without one, all of them.
    """

    def __init__(
        self,
        net: Net,
        rule: Rule,
        source: Source,
        augmentation: Augmentation,
        likelihood: Likelihood,
        generator: torch.Generator,
        *,
        batch: int | None = None,
        observe: Callable[[State], State] | None = None,
    ) -> None:
        self._rule = rule
        self._source = source
        self._batch = batch
        self._augmentation = augmentation
        self._likelihood = likelihood
        self._generator = generator
        self._observe = observe
        self._loop = Loop(self._step, generator)
        self._loss = _loss_of(net, likelihood, generator.device)
        self._own: tuple[str, ...] = ()  # what the update reads and writes
        self._draws = net.draws

    def start(self, weights: Weights, inputs: State | None = None) -> None:
        """Begin at `weights`; `inputs` are what source and observer read from the state.

        A training that goes on has its rule's slots among them.
        """
        params, buffers = weights
        self._loop.load({"params": params, "buffers": buffers})
        slots = self._rule.slots(params)
        self._loop.load(slots)
        self._own = ("params", "loss_sum", "figure_sum", *slots)
        # A user's own network may draw from PyTorch's global generator (dropout). It does so from
        # a stream that follows from the run's; the user's own stays put.
        device = self._generator.device
        seed = self._generator.initial_seed()
        if self._draws:
            seed = int(torch.randint(2**62, (), generator=self._generator, device=device))
        self._global_random = torch.Generator().manual_seed(seed).get_state()
        if self._draws and device.type == "cuda":
            self._global_cuda = torch.Generator(device).manual_seed(seed).get_state()
        zero = params.new_zeros(())
        self._loop.load({"loss_sum": zero, "figure_sum": zero, **(inputs or {})})

    def set_order(self, order: Int64[Tensor, " n"]) -> None:
        """From now on, take batches at these positions, from the first on."""
        self._loop.load({"order": order, "step": order.new_zeros(())})

    def run(self, steps: int) -> None:
        """Take this many steps."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._global_random)
            if self._draws and self._generator.device.type == "cuda":
                self._run_drawing(steps)
            else:
                self._loop.run(steps)
            self._global_random = torch.get_rng_state()

    def _run_drawing(self, steps: int) -> None:
        """Take steps that draw from the global generator of a CUDA device."""
        device = self._generator.device
        before = torch.cuda.get_rng_state(device)
        torch.cuda.set_rng_state(self._global_cuda, device)
        try:
            self._loop.run(steps)
            self._global_cuda = torch.cuda.get_rng_state(device)
        finally:
            torch.cuda.set_rng_state(before, device)

    @property
    def weights(self) -> Weights:
        """The weights now; they change in place as the training goes on."""
        return Weights(self.state["params"], self.state["buffers"])

    @property
    def state(self) -> State:
        """All that the training holds: weights, the rule's slots, inputs, what was observed."""
        return self._loop.state

    def take(self, name: str) -> float:
        """Read a running sum (`loss_sum`, `figure_sum`), wait for it, and set it to zero."""
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
        inputs, targets = self._source(state, index)
        inputs = self._augmentation(inputs, self._generator)
        params = state["params"].detach().requires_grad_()
        with torch.enable_grad(), fastest_convolutions():
            loss, outputs, buffers = self._loss(params, state["buffers"], inputs, targets)
            (gradient,) = torch.autograd.grad(loss, params)
        own = {name: state[name] for name in self._own}
        own |= self._rule.draw(own["params"], self._generator)
        figure = self._likelihood.progress_figure(outputs, targets)
        changed |= self._rule.update(own, gradient)
        changed["loss_sum"] = own["loss_sum"] + loss.detach()
        changed["figure_sum"] = own["figure_sum"] + figure
        changed["buffers"] = buffers.detach()
        if self._observe is not None:
            changed |= self._observe({**state, **changed})
        return changed
