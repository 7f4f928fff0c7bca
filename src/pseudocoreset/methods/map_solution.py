"""MAP solutions of the coreset: new networks trained on it until the loss is small."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from pseudocoreset.engine.loop import State
from pseudocoreset.engine.random import Rng
from pseudocoreset.methods.base import Context, Points
from pseudocoreset.nets import Weights
from pseudocoreset.training import Adam, Training, coreset_points

BLOCK = 10
"""Steps between two checks of the mean loss. Each check waits for the device."""

_KEPT = ("params", "buffers", "first", "second", "count")
"""A network in training by Adam."""


@dataclass(frozen=True)
class MapSolution:
    """θ_u and how many steps it took."""

    weights: Weights
    loss: float
    steps: int
    reached: bool


@runtime_checkable
class MapOptions(Protocol):
    """The options of the search for a MAP solution."""

    @property
    def gamma(self) -> float:
        """γ"""

    @property
    def lr_map(self) -> float:
        """Learning rate of Adam."""

    @property
    def max_map_steps(self) -> int:
        """Bound on the steps."""


class MapSolver:
    """Adam on (u, ỹ) from a random init until the training loss is at most γ.

    The loss is that of the augmented batches it trains on, averaged over a block of steps. γ counts
    from the lowest loss that the likelihood has for these targets: the entropy of soft labels, a
    constant for regression, 0 for classes.
    """

    def __init__(self, options: MapOptions, context: Context, batch: int | None, rng: Rng) -> None:
        self._net = context.net
        self._likelihood = context.likelihood
        self._options = options
        self._batch = batch
        self._rng = rng
        self._training = Training(
            context.net,
            Adam(options.lr_map),
            coreset_points,
            context.augmentation,
            context.likelihood,
            rng.device,
            batch=batch,
        )

    def solve(self, coreset: Points) -> MapSolution:
        """Train until γ is reached, or for as many steps as are allowed."""
        start = self._net.init(self._rng.device)
        self._training.start(start, coreset._asdict())
        steps, loss = 0, float("inf")
        # A loss that is NaN ends the search too: it can't come back from there.
        while loss > self._options.gamma and steps < self._options.max_map_steps:
            block = min(BLOCK, self._options.max_map_steps - steps)
            loss = self._trained(coreset, block)
            steps += block
        return MapSolution(self._training.weights, loss, steps, loss <= self._options.gamma)

    def follow(self, coreset: Points, kept: State, steps: int) -> MapSolution:
        """Train a solution for a few more steps, on a coreset that has moved a little."""
        start = Weights(kept["params"], kept["buffers"])
        slots = {name: kept[name] for name in _KEPT if name in kept}
        self._training.start(start, {**coreset._asdict(), **slots})
        loss = self._trained(coreset, steps)
        return MapSolution(self._training.weights, loss, steps, True)

    def kept(self) -> State:
        """What `follow` goes on from."""
        return {name: self._training.state[name].clone() for name in _KEPT}

    def _trained(self, coreset: Points, steps: int) -> float:
        """Take steps; their mean loss, above the lowest that the targets allow."""
        if self._batch is not None:
            self._training.set_order(random_order(len(coreset.inputs), self._rng))
        self._training.run(steps)
        least = self._likelihood.lowest(coreset.targets)
        return self._training.take("loss_sum") / steps - least


def random_order(number: int, rng: Rng) -> torch.Tensor:
    """0 … number − 1 in random order, on the device."""
    return torch.randperm(number, generator=rng.device, device=rng.device.device)
