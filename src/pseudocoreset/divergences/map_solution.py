"""The MAP solution of the coreset: a fresh network trained on it until its loss is small."""

from dataclasses import dataclass

import torch

from pseudocoreset.divergences.base import Context, Points
from pseudocoreset.engine.random import Rng
from pseudocoreset.nets import Weights
from pseudocoreset.training import Adam, Training, coreset_images

BLOCK = 10
"""Steps between two looks at the loss; what is looked at is the mean over them. To look is to wait
for the device; were the next step begun before, one step an update would be in vain."""


@dataclass(frozen=True)
class MapSolution:
    """θ_u, and what it took to find it."""

    weights: Weights
    loss: float
    steps: int
    reached: bool


class MapSolver:
    """Adam on (u, ỹ) from a random init until the training loss is at most γ.

    The loss is that of the augmented batches it trains on, averaged over a block of steps. Labels
    that are probabilities have an entropy, below which no loss can be: there it is the loss above
    that entropy, a KL divergence, as the loss of labels that are classes is.
    """

    def __init__(self, context: Context, batch: int | None, rng: Rng) -> None:
        self._net = context.net
        self._settings = context.settings
        self._batch = batch
        self._rng = rng
        self._training = Training(
            context.net,
            Adam(context.settings.lr_map),
            coreset_images,
            context.augmentation,
            rng.device,
            batch=batch,
        )

    def solve(self, coreset: Points) -> MapSolution:
        """Train until γ is reached, or for as many steps as are allowed."""
        start = self._net.init(self._rng.device)
        self._training.start(start, {"images": coreset.images, "labels": coreset.labels})
        least = _entropy(coreset.labels)
        steps, loss = 0, float("inf")
        # A loss that is NaN ends the search too: it can't come back from there.
        while loss > self._settings.gamma and steps < self._settings.max_map_steps:
            if self._batch is not None:
                self._training.set_order(random_order(len(coreset.images), self._rng))
            block = min(BLOCK, self._settings.max_map_steps - steps)
            self._training.run(block)
            loss = self._training.take("loss_sum") / block - least
            steps += block
        return MapSolution(self._training.weights, loss, steps, loss <= self._settings.gamma)


def _entropy(labels: torch.Tensor) -> float:
    """The mean entropy of labels; none where they are classes."""
    return float(torch.special.entr(labels).sum(1).mean()) if labels.is_floating_point() else 0.0


def random_order(number: int, rng: Rng) -> torch.Tensor:
    """0 … number − 1 in random order, on the device."""
    return torch.randperm(number, generator=rng.device, device=rng.device.device)
