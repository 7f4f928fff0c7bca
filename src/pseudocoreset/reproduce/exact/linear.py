"""Linear models under the Gaussian likelihood: every posterior is known in closed form."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from pseudocoreset.methods import Points
from pseudocoreset.reproduce.exact.moments import Moments, kl, linear_posterior
from pseudocoreset.reproduce.exact.problems import NOISE, PRIOR, Problem

Loss = Callable[[Points], Float[Tensor, ""]]
"""Of a coreset: its gradient is what a method follows; its value may mean nothing."""


class LinearTruth:
    """The data's posterior, and losses and distances of coresets by it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
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
            method: `reverse-kl`, `forward-kl` or `fbpc-moments`
        """
        if method == "reverse-kl":
            return lambda points: kl(self.posterior(points), self.moments)
        if method == "forward-kl":
            return lambda points: kl(self.moments, self.posterior(points))
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

    def distances(self, points: Points) -> dict[str, float]:
        """KL[data ‖ coreset] and KL[coreset ‖ data].

        Args:
            points: the coreset
        """
        found = self.posterior(points)
        forward, reverse = kl(self.moments, found), kl(found, self.moments)
        return {"forward": max(0.0, float(forward)), "reverse": max(0.0, float(reverse))}
