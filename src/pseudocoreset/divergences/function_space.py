"""Gaussian posteriors over a network's outputs, and the gradient of the KL between them."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.divergences.base import Context
from pseudocoreset.engine.loop import State, compiled
from pseudocoreset.engine.random import Rng
from pseudocoreset.nets import Weights
from pseudocoreset.training import SGD, Source, Training


class FunctionPosterior(NamedTuple):
    """N(f_u; mean, diag(variance)): the outputs at the coreset's m points, k classes each."""

    mean: Float[Tensor, "m k"]
    variance: Float[Tensor, "m k"]

    def sample(self, number: int, generator: torch.Generator) -> Float[Tensor, "s m k"]:
        """mean + variance^½ ε, with ε standard Gaussian."""
        noise = self.mean.new_empty((number, *self.mean.shape)).normal_(generator=generator)
        return self.mean + self.variance.sqrt() * noise


def negative_log_likelihood(
    outputs: Float[Tensor, "s m k"], labels: Shaped[Tensor, "m ..."]
) -> Float[Tensor, ""]:
    """−log p(ỹ | f_u), the mean over samples and points."""
    samples = len(outputs)
    return F.cross_entropy(outputs.flatten(0, 1), labels.repeat(samples, *[1] * (labels.ndim - 1)))


class OutputVariance:
    """Ψ̂ of equation `mu_and_Psi`: the variance of the outputs at some points over K SGD steps.

    It is gathered a step at a time by Welford's recurrence, which equals 1/K Σ g² − (1/K Σ g)²
    without its cancellation: outputs are of the order of 10, their changes of 0.01. No gradient
    flows through it.
    """

    def __init__(
        self,
        context: Context,
        source: Source,
        lr: float,
        batch: int | None,
        rng: Rng,
    ) -> None:
        self._classes = context.net.classes
        self._steps = context.settings.covariance_steps
        # A draw at a time; if there is but one, in halves, which in full precision take as much
        # memory as the whole does in training steps.
        draws = context.settings.draws
        pieces = max(2, draws) if context.net.by_image else draws
        self._training = Training(
            context.net,
            SGD(lr),
            source,
            context.augmentation,
            rng.device,
            batch=batch,
            observe=partial(_observe, compiled(context.net.apply, context.device), pieces),
        )

    def along(
        self,
        start: Weights,
        points: Float[Tensor, "d b c h w"],
        inputs: State,
        order: Int64[Tensor, " n"] | None,
    ) -> Float[Tensor, "d b k"]:
        """Take the K steps from `start`; the variance at each of d augmented batches of points."""
        zeros = points.new_zeros((*points.shape[:2], self._classes))
        inputs = {**inputs, "points": points, "mean": zeros, "spread": zeros}
        self._training.start(start, {**inputs, "seen": points.new_zeros(())})
        if order is not None:
            self._training.set_order(order)
        self._training.run(self._steps)
        return self._training.state["spread"] / self._steps


@torch.no_grad()
def _observe(apply: Callable[[Weights, Tensor], Tensor], pieces: int, state: State) -> State:
    """One more output at each point, into mean and spread; the points are taken in `pieces`."""
    weights = Weights(state["params"], state["buffers"])
    parts = [apply(weights, piece) for piece in state["points"].flatten(0, 1).chunk(pieces)]
    outputs = torch.cat(parts).view_as(state["mean"])
    seen = state["seen"] + 1
    away = outputs - state["mean"]
    mean = state["mean"] + away / seen
    return {"mean": mean, "spread": state["spread"] + away * (outputs - mean), "seen": seen}
