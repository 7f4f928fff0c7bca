"""The last layer's posterior computed directly, in as many dimensions as it has weights.

No kernel and no m×m matrix: precision ρ·1 + β ΦᵀΦ, its inverse, and PyTorch's own KL of Gaussians.
"""

from math import pi
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence


class Direct(NamedTuple):
    """The Gaussian posterior of the weights of each output: one column of `mean` each."""

    mean: Tensor
    covariance: Tensor


def regressors(features: Tensor) -> Tensor:
    """Features over the root of their number, and a 1 for the bias."""
    rows = [torch.cat([row / len(row) ** 0.5, torch.ones(1).to(row)]) for row in features]
    return torch.stack(rows)


def direct_posterior(features: Tensor, targets: Tensor, prior: float, precision: float) -> Direct:
    phi = regressors(features.double())
    inverse = prior * torch.eye(phi.shape[1]).to(phi) + precision * phi.T @ phi
    covariance = torch.linalg.inv(inverse)
    return Direct(precision * covariance @ phi.T @ targets, covariance)


def values_at(posterior: Direct, features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of each output and variance at points."""
    phi = regressors(features.double())
    variance = torch.stack([row @ posterior.covariance @ row for row in phi])
    return phi @ posterior.mean, variance


def kl_to_prior(posterior: Direct, prior: float) -> Tensor:
    """Summed over the outputs."""
    size = len(posterior.covariance)
    zero, unit = torch.zeros(size).to(posterior.mean), torch.eye(size).to(posterior.mean)
    start = MultivariateNormal(zero, precision_matrix=prior * unit)
    return sum(
        kl_divergence(MultivariateNormal(mean, posterior.covariance), start)
        for mean in posterior.mean.T
    )


def soft_targets(targets: Tensor, classes: int) -> Tensor:
    """Centred log-probabilities, row by row; a class has 0.9 and its share of 0.1."""
    rows = []
    for target in targets:
        shares = target
        if not targets.is_floating_point():
            shares = torch.full((classes,), 0.1 / classes, dtype=torch.float64)
            shares[target] += 0.9
        rows.append(shares.log() - shares.log().mean())
    return torch.stack(rows)


def probit_nll(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    """The mean of −log softmax(μ / √(1 + π Σ / 8))_y."""
    found = []
    for outputs, spread, label in zip(mean, variance, labels.tolist(), strict=True):
        scaled = outputs / (1 + pi * spread / 8) ** 0.5
        found.append(scaled.logsumexp(0) - scaled[label])
    return torch.stack(found).mean()


def gaussian_nll(mean: Tensor, variance: Tensor, targets: Tensor, noise: float) -> Tensor:
    """The mean of −log N(y; μ, Σ + σ²), summed over the targets of a point."""
    spread = (variance + noise**2).sqrt()[:, None].expand_as(mean)
    return -torch.distributions.Normal(mean, spread).log_prob(targets).sum(1).mean()
