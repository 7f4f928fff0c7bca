"""Linear models under the Gaussian likelihood: every posterior is known in closed form."""

from math import cos, sin

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact.moments import Moments, kl, linear_posterior
from pseudocoreset.reproduce.exact.problems import (
    AS_IN_THE_PAPER,
    NOISE,
    PRIOR,
    Loss,
    Problem,
)

TIME = 1.0
"""t of a step of a chain; a quarter of a period, π/2, would forget where it was."""


class Walkers:
    """Chains on a Gaussian posterior that may change a little between their steps.

    A step follows Hamilton's equations exactly, from a momentum that is drawn, for a time t:
    θ ← μ + cos t (θ − μ) + sin t Σ^½ ε. It is never rejected.
    """

    def __init__(self, chains: int, generator: torch.Generator) -> None:
        self._chains, self._generator = chains, generator
        self._theta: Tensor | None = None

    def walk(self, moments: Moments) -> Float[Tensor, "c d k"]:
        """Where chains are after a step on this posterior; the first step draws from it.

        Args:
            moments: of the posterior
        """
        shape = (self._chains, *moments.mean.shape)
        root = torch.linalg.cholesky(moments.covariance)
        noise = root @ torch.randn(shape, generator=self._generator, dtype=root.dtype)
        if self._theta is None:
            self._theta = moments.mean + noise
        else:
            away = self._theta - moments.mean
            self._theta = moments.mean + cos(TIME) * away + sin(TIME) * noise
        return self._theta


class LinearTruth:
    """The data's posterior, and losses and distances of coresets by it."""

    def __init__(self, problem: Problem, generator: torch.Generator) -> None:
        self._problem = problem
        self._generator = generator
        self.moments = self._of(problem.train, 1.0)

    def posterior(self, points: Points) -> Moments:
        """Of a coreset in which each of m points counts n/m times.

        Args:
            points: the coreset
        """
        return self._of(points, self._problem.weight(len(points.inputs)))

    def _of(self, points: Points, weight: float) -> Moments:
        phi = self._problem.features(points.inputs)
        return linear_posterior(phi, points.targets, weight=weight, prior=PRIOR, noise=NOISE)

    def loss(self, method: str) -> Loss:
        """What a method follows the gradient of.

        Args:
            method: `reverse-kl`, `forward-kl`, `fbpc-moments` or `fbpc-samples`
        """
        if method == "reverse-kl":
            return lambda points: kl(self.posterior(points), self.moments)
        if method == "forward-kl":
            return lambda points: kl(self.moments, self.posterior(points))
        if method == "fbpc-samples":
            return self._by_samples(AS_IN_THE_PAPER.samples)
        assert method == "fbpc-moments"
        return self._by_moments

    def _by_moments(self, points: Points) -> Float[Tensor, ""]:
        """FBPC's losses with exact means; a covariance without gradient drops out of them."""
        likelihood = self._problem.likelihood
        phi = self._problem.features(points.inputs)
        mine = self.posterior(Points(*(part.detach() for part in points))).mean
        under_data = likelihood.losses(phi @ self.moments.mean, points.targets).sum()
        under_coreset = likelihood.losses(phi @ mine, points.targets).sum()
        return self._problem.weight(len(points.inputs)) * (under_data - under_coreset)

    def _by_samples(self, chains: int) -> Loss:
        """FBPC's losses over samples of both posteriors, by chains that follow the coreset."""
        of_data, of_coreset = (Walkers(chains, self._generator) for _ in range(2))
        features, likelihood = self._problem.features, self._problem.likelihood

        def mean_loss(points: Points, theta: Tensor) -> Tensor:
            values = (features(points.inputs) @ theta).flatten(0, 1)
            return likelihood.losses(values, points.targets.repeat(chains, 1)).sum() / chains

        def loss(points: Points) -> Float[Tensor, ""]:
            mine = self.posterior(Points(*(part.detach() for part in points)))
            under_data = mean_loss(points, of_data.walk(self.moments))
            under_coreset = mean_loss(points, of_coreset.walk(mine))
            return self._problem.weight(len(points.inputs)) * (under_data - under_coreset)

        return loss

    def distances(self, points: Points) -> dict[str, float]:
        """KL[data ‖ coreset] and KL[coreset ‖ data].

        Args:
            points: the coreset
        """
        found = self.posterior(points)
        forward, reverse = kl(self.moments, found), kl(found, self.moments)
        return {"forward": max(0.0, float(forward)), "reverse": max(0.0, float(reverse))}
