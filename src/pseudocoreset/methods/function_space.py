"""Gaussian posteriors over a network's outputs, and the gradient of the KL between them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from pseudocoreset.engine.loop import State, compiled
from pseudocoreset.engine.random import Rng
from pseudocoreset.likelihoods import Likelihood
from pseudocoreset.methods.base import Context
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
    likelihood: Likelihood, outputs: Float[Tensor, "s m k"], targets: Shaped[Tensor, "m ..."]
) -> Float[Tensor, ""]:
    """−log p(ỹ | f_u), the mean over samples and points."""
    repeated = targets.repeat(len(outputs), *[1] * (targets.ndim - 1))
    return likelihood.loss(outputs.flatten(0, 1), repeated)


class OutputVariance:
    """Ψ̂ of equation `mu_and_Psi`: the variance of the outputs at some points over K SGD steps.

    Each step sees the points under an augmentation of its own, as it does the images it is taken
    on. The variance is gathered a step at a time by Welford's recurrence, which equals
    1/K Σ g² − (1/K Σ g)² without its cancellation where outputs are large and change little. No
    gradient flows through it.
    """

    def __init__(
        self,
        context: Context,
        source: Source,
        lr: float,
        steps: int,
        batch: int | None,
        rng: Rng,
    ) -> None:
        self._outputs = context.net.outputs
        self._steps = steps
        self._training = Training(
            context.net,
            SGD(lr * context.likelihood.step_scale),
            source,
            context.augmentation,
            context.likelihood,
            rng.device,
            batch=batch,
            observe=_observer(context, rng.device),
        )

    def along(
        self,
        start: Weights,
        points: Float[Tensor, "b ..."],
        inputs: State,
        order: Int64[Tensor, " n"] | None,
    ) -> Float[Tensor, "b k"]:
        """Take the K steps from `start`; the variance at the points."""
        zeros = points.new_zeros((len(points), self._outputs))
        inputs = {**inputs, "points": points, "mean": zeros, "spread": zeros}
        self._training.start(start, {**inputs, "seen": points.new_zeros(())})
        if order is not None:
            self._training.set_order(order)
        self._training.run(self._steps)
        return self._training.state["spread"] / self._steps


def _observer(context: Context, generator: torch.Generator) -> Callable[[State], State]:
    """What takes one more output at each point into `mean` and `spread`."""
    augmentation, device = context.augmentation, context.device
    apply = compiled(context.net.apply, device, fused=context.net.fused)
    # In halves, which in full precision take as much memory as the whole does in training steps.
    pieces = 2 if context.net.by_image else 1

    @torch.no_grad()
    def observe(state: State) -> State:
        weights, points = Weights(state["params"], state["buffers"]), state["points"]
        points = augmentation(points, generator)
        outputs = torch.cat([apply(weights, piece) for piece in points.chunk(pieces)])
        seen = state["seen"] + 1
        away = outputs - state["mean"]
        mean = state["mean"] + away / seen
        return {"mean": mean, "spread": state["spread"] + away * (outputs - mean), "seen": seen}

    return observe
