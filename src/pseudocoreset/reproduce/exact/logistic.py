"""Logistic regression: posteriors by Hamiltonian Monte Carlo, around Laplace's approximation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import Points
from pseudocoreset.nets import make_net
from pseudocoreset.reproduce.exact.hmc import LogDensity, at, hmc_step, split_r_hat
from pseudocoreset.reproduce.exact.moments import Moments, kl, mmd, sample_moments
from pseudocoreset.reproduce.exact.parts import PaperMoments, of_coreset
from pseudocoreset.reproduce.exact.parts import of_data as of_all_experts
from pseudocoreset.reproduce.exact.problems import AS_IN_THE_PAPER, PRIOR, Loss, Problem

NEWTON_STEPS = 50
NODES = 20
"""Of the quadrature over a function's value."""
SOLUTIONS = 16
"""MAP solutions of the coreset an update where the noise of FBPC's moments is averaged out."""


@dataclass(frozen=True)
class Sampling:
    """How long chains are."""

    chains: int = 128
    warm_up: int = 60
    kept: int = 150


class Sampled(NamedTuple):
    """A posterior by samples."""

    samples: Float[Tensor, "s d"]
    moments: Moments
    acceptance: float
    r_hat: float


class Model:
    """−log of the posterior of θ: weight · Σ_j log(1 + exp(−s_j φ_jᵀθ)) + τ/2 ‖θ‖², s_j = ±1."""

    def __init__(
        self, phi: Float[Tensor, "m d"], signs: Float[Tensor, " m"], weight: float
    ) -> None:
        self.phi, self.signs, self.weight = phi, signs, weight

    def log_likelihoods(self, theta: Float[Tensor, "c d"]) -> Float[Tensor, "c m"]:
        """log p(y_j | θ) of each point, each counted once.

        Args:
            theta: weights, a row each
        """
        return F.logsigmoid(self.signs * (theta @ self.phi.T))

    def log_density(self, theta: Float[Tensor, "c d"]) -> Float[Tensor, " c"]:
        """The log of the posterior, up to a constant.

        Args:
            theta: weights, a row each
        """
        prior = PRIOR / 2 * theta.square().sum(1)
        return self.weight * self.log_likelihoods(theta).sum(1) - prior

    def laplace(
        self, start: Float[Tensor, " d"] | None = None
    ) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """The mode, by Newton's method with halved steps, and a root of the inverse Hessian there.

        Args:
            start: where to begin; default: 0
        """
        theta = self.phi.new_zeros(self.phi.shape[1]) if start is None else start
        one = torch.eye(len(theta), dtype=theta.dtype)
        for _ in range(NEWTON_STEPS):
            p = torch.sigmoid(self.phi @ theta)
            truth = (self.signs + 1) / 2
            gradient = self.weight * self.phi.T @ (p - truth) + PRIOR * theta
            hessian = self.weight * (self.phi.T * (p * (1 - p))) @ self.phi + PRIOR * one
            root = torch.linalg.cholesky(hessian)
            move = torch.cholesky_solve(gradient[:, None], root)[:, 0]
            decrease = float(gradient @ move)
            if decrease < 1e-10:
                break
            theta = self._shorter(theta, move, decrease)
        return theta, torch.linalg.solve_triangular(root.T, one, upper=True)

    def _shorter(self, theta: Tensor, move: Tensor, decrease: float) -> Tensor:
        before, size = float(self.log_density(theta[None])), 1.0
        while size > 1e-6 and float(self.log_density((theta - size * move)[None])) < (
            before + 0.1 * size * decrease
        ):
            size /= 2
        return theta - size * move


class Walkers:
    """Chains on a posterior that may change a little between their steps."""

    def __init__(self, model: Model, chains: int, generator: torch.Generator) -> None:
        self._generator = generator
        self._centre, root = model.laplace()
        drawn = torch.randn(chains, len(self._centre), generator=generator, dtype=root.dtype)
        self.theta = self._centre + drawn @ root.T

    def walk(self, model: Model, steps: int, leaps: int = 12) -> tuple[Tensor, float]:
        """Where chains are after each of some steps on this posterior; share accepted.

        Args:
            model: the posterior
            steps: how many
            leaps: leapfrog moves of each
        """
        self._centre, root = model.laplace(self._centre)
        centre = self._centre

        def whitened(z: Float[Tensor, "c d"]) -> Float[Tensor, " c"]:
            return model.log_density(centre + z @ root.T)

        density: LogDensity = whitened
        inverse = torch.linalg.inv(root)
        chains = at(density, (self.theta - centre) @ inverse.T)
        found, share = [], 0.0
        for _ in range(steps):
            chains, accepted = hmc_step(density, chains, self._generator, leaps=leaps, step=0.2)
            found.append(centre + chains.place @ root.T)
            share += float(accepted.double().mean()) / steps
        self.theta = found[-1]
        return torch.stack(found), share


def sampled(model: Model, sampling: Sampling, generator: torch.Generator) -> Sampled:
    """Samples of a posterior.

    Args:
        model: the posterior
        sampling: how long chains are
        generator: of random numbers
    """
    walkers = Walkers(model, sampling.chains, generator)
    walkers.walk(model, sampling.warm_up)
    found, share = walkers.walk(model, sampling.kept)
    samples = found.flatten(0, 1)
    return Sampled(samples, sample_moments(samples), share, split_r_hat(found))


def _difference(model: Model, of_data: Tensor, of_coreset: Tensor) -> Tensor:
    """The mean of −log p(ỹ | u, θ) over samples of the data's posterior, minus that over others."""
    under_data, under_coreset = (
        model.log_likelihoods(each).sum(1).mean() for each in (of_data, of_coreset)
    )
    return model.weight * (under_coreset - under_data)


def _paired(moments: Moments) -> tuple[Tensor, Tensor]:
    """Mean and covariance with a first dimension of 1."""
    return moments.mean.T, moments.covariance[None]


def _laplace(model: Model) -> tuple[Tensor, Tensor]:
    fixed = Model(model.phi.detach(), model.signs, model.weight)
    mode, root = fixed.laplace()
    return mode[None], (root @ root.T)[None]


def _expected(
    model: Model,
    means: Float[Tensor, "r d"],
    covariances: Float[Tensor, "r d d"],
    drawn: Float[Tensor, "s 1 m"] | None = None,
) -> Tensor:
    """E log p(ỹ | f_u) for Gaussian values f at u, summed over points, mean over the r Gaussians.

    Args:
        model: the coreset
        means: of θ
        covariances: of θ; no gradient flows through the variance of f
        drawn: standard Gaussian numbers; None: by quadrature
    """
    fixed = model.phi.detach()
    spread = torch.einsum("md,rde,me->rm", fixed, covariances, fixed).clamp_min(0).sqrt()
    nodes, shares = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(NODES))
    nodes, shares = nodes[:, None, None], shares / shares.sum()
    if drawn is not None:
        nodes, shares = drawn, drawn.new_full((len(drawn),), 1 / len(drawn))
    values = means @ model.phi.T + nodes * spread
    found: Tensor = shares @ F.logsigmoid(model.signs * values).sum(2).mean(1)
    return found


class LogisticTruth:
    """The data's posterior by a long run, and losses and distances of coresets by it."""

    def __init__(self, problem: Problem, sampling: Sampling, generator: torch.Generator) -> None:
        self._problem = problem
        self._sampling = sampling
        self._generator = generator
        self._data = self.model(problem.train)
        self.reference = sampled(self._data, sampling, generator)
        self.moments = self.reference.moments

    def model(self, points: Points) -> Model:
        """The posterior of a coreset in which each of m points counts n/m times.

        Args:
            points: the coreset
        """
        phi = self._problem.features(points.inputs)
        signs = 2.0 * points.targets.double() - 1
        return Model(phi, signs, self._problem.weight(len(points.inputs)))

    def loss(self, method: str, start: Points, experts: ExpertStore) -> Loss:
        """What a method follows the gradient of, with chains that follow the coreset.

        Args:
            method: one of those that `measure` names, but `random` and `fbpc`
            start: the coreset at first
            experts: of the data
        """
        by_samples = method == "fbpc-samples"
        chains = AS_IN_THE_PAPER.samples if by_samples else self._sampling.chains
        walkers = Walkers(self.model(start), chains, self._generator)
        walkers.walk(self.model(start), self._sampling.warm_up)
        losses: dict[str, Callable[[Model, Tensor], Tensor]] = {
            "reverse-kl": self._reverse,
            "forward-kl": self._forward,
            "fbpc-moments": self._by_moments,
            "fbpc-noise": self._by_drawn_values,
            "fbpc-laplace": self._by_laplace,
        }
        if by_samples:
            losses[method] = self._by_samples(chains)
        elif method not in losses:
            losses[method] = self._by_parts(method, experts)
        of_method = losses[method]

        def loss(points: Points) -> Float[Tensor, ""]:
            walkers.walk(self.model(Points(points.inputs.detach(), points.targets)), 1, leaps=5)
            return of_method(self.model(points), walkers.theta)

        return loss

    def _reverse(self, model: Model, theta: Tensor) -> Tensor:
        """Its gradient is Cov over π_u of ∇ log π_u and log π_u − log π_x."""
        mine = model.weight * model.log_likelihoods(theta).sum(1)
        away = mine.detach() - self._data.log_likelihoods(theta).sum(1)
        return ((away - away.mean()) * mine).mean()

    def _forward(self, model: Model, theta: Tensor) -> Tensor:
        """E over π_x of −log p(ỹ | u, θ), minus the same over π_u."""
        of_data = self.reference.samples[:: max(1, len(self.reference.samples) // 2000)]
        return _difference(model, of_data, theta)

    def _by_samples(self, chains: int) -> Callable[[Model, Tensor], Tensor]:
        """The same with as few samples as FBPC has: chains on the data walk, too."""
        of_data = Walkers(self._data, chains, self._generator)

        def loss(model: Model, theta: Tensor) -> Tensor:
            of_data.walk(self._data, 1, leaps=5)
            return _difference(model, of_data.theta, theta)

        return loss

    def _by_moments(self, model: Model, theta: Tensor) -> Tensor:
        """The same over Gaussian values of the function at u; their variance has no gradient."""
        mine, theirs = (_paired(each) for each in (sample_moments(theta), self.moments))
        return model.weight * (_expected(model, *mine) - _expected(model, *theirs))

    def _by_laplace(self, model: Model, theta: Tensor) -> Tensor:  # noqa: ARG002
        """The same with modes and inverse Hessians, which know weight and prior, for moments."""
        mine, theirs = (_laplace(each) for each in (model, self._data))
        return model.weight * (_expected(model, *mine) - _expected(model, *theirs))

    def _by_drawn_values(self, model: Model, theta: Tensor) -> Tensor:
        """The same, with values that are drawn, as many as FBPC draws."""
        shape = (AS_IN_THE_PAPER.samples, 1, len(model.phi))

        def drawn(moments: Moments) -> Tensor:
            nodes = torch.randn(shape, generator=self._generator, dtype=theta.dtype)
            return _expected(model, *_paired(moments), nodes)

        return model.weight * (drawn(sample_moments(theta)) - drawn(self.moments))

    def _by_parts(self, method: str, experts: ExpertStore) -> Callable[[Model, Tensor], Tensor]:
        """Moments as in the paper, with exact means or variances where the method says so."""
        net = make_net(self._problem.net, **self._problem.data.shape)
        of_data = of_all_experts(self._problem, experts, AS_IN_THE_PAPER, self._generator)

        def chosen(found: PaperMoments, exact: Moments) -> PaperMoments:
            mean, covariance = _paired(exact)
            if method == "fbpc-exact-means":
                return found._replace(means=mean.expand_as(found.means))
            if method == "fbpc-exact-variances":
                return found._replace(covariances=covariance.expand_as(found.covariances))
            assert method == "fbpc-average"
            return found

        def loss(model: Model, theta: Tensor) -> Tensor:
            fixed, truth = model.phi.detach(), (model.signs + 1) / 2
            mine = of_coreset(net, fixed, truth, AS_IN_THE_PAPER, SOLUTIONS, self._generator)
            under_coreset = _expected(model, *chosen(mine, sample_moments(theta)))
            return model.weight * (under_coreset - _expected(model, *chosen(of_data, self.moments)))

        return loss

    def distances(self, points: Points) -> dict[str, float]:
        """KL by Gaussian moments in both directions, and the MMD, by chains of its own.

        Args:
            points: the coreset
        """
        return self._distances(self.model(points))

    def floor(self) -> dict[str, float]:
        """The same for another run on the data: what the noise of the samples alone makes."""
        return self._distances(self._data)

    def _distances(self, model: Model) -> dict[str, float]:
        found = sampled(model, self._sampling, self._generator)
        return {
            "forward": float(kl(self.moments, found.moments)),
            "reverse": float(kl(found.moments, self.moments)),
            "mmd": float(mmd(found.samples, self.reference.samples, self.moments)),
            "acceptance": found.acceptance,
            "r_hat": found.r_hat,
        }
