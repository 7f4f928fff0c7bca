"""A model whose function-space posteriors and their KL are known in closed form.

f(x) = φ(x)ᵀθ with three features that are not linear in x, prior θ ~ N(0, 1/τ · 1) and likelihood
y ~ N(f(x), σ²). The features are linearly independent as functions, so θ ↦ f is injective, ν is the
image of the weights' posterior under it, and KL[ν_x ‖ ν_u], the KL between the two processes, is
the KL between the two Gaussian posteriors of θ.
"""

from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

PRIOR_PRECISION = 1.0
NOISE_VARIANCE = 0.25
FEATURES = 3


class Gaussian(NamedTuple):
    """N(mean, covariance)."""

    mean: Tensor
    covariance: Tensor

    def detach(self) -> "Gaussian":
        return Gaussian(self.mean.detach(), self.covariance.detach())


def features(x: Tensor) -> Tensor:
    """φ of points on the line: n → n×3."""
    return torch.stack([torch.ones_like(x), torch.sin(2 * x), torch.exp(-x * x)], 1)


def posterior(x: Tensor, y: Tensor) -> Gaussian:
    """π(θ | x, y), differentiable in x and y."""
    return weighted_posterior(features(x), y, 1.0, PRIOR_PRECISION, NOISE_VARIANCE)


def weighted_posterior(
    phi: Tensor, y: Tensor, weight: float, prior: float, noise_variance: float
) -> Gaussian:
    """π(θ) ∝ N(θ; 0, 1/τ) Π_i N(y_i; φ_iᵀθ, σ²)^weight: each point counts `weight` times.

    Σ = (τ + weight · φᵀφ/σ²)⁻¹, mean Σ · weight · φᵀy/σ².
    """
    identity = torch.eye(phi.shape[1], dtype=phi.dtype)
    covariance = torch.linalg.inv(prior * identity + weight * phi.T @ phi / noise_variance)
    return Gaussian(weight * covariance @ phi.T @ y / noise_variance, covariance)


def kl(p: Gaussian, q: Gaussian) -> Tensor:
    """KL[p ‖ q] between Gaussians."""
    precision = torch.linalg.inv(q.covariance)
    away = q.mean - p.mean
    volume = torch.logdet(q.covariance) - torch.logdet(p.covariance)
    spread = torch.trace(precision @ p.covariance) + away @ precision @ away
    return (spread - FEATURES + volume) / 2


def function_values(weights: Gaussian, u: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at each point of u."""
    phi = features(u)
    return phi @ weights.mean, ((phi @ weights.covariance) * phi).sum(1)


def log_likelihood(y: Tensor, f: Tensor) -> Tensor:
    """log p(y | f), summed over the points (the last dimension)."""
    normaliser = log(2 * pi * NOISE_VARIANCE)
    return -((y - f).square() / NOISE_VARIANCE + normaliser).sum(-1) / 2


def expected_log_likelihood(weights: Gaussian, u: Tensor, y: Tensor) -> Tensor:
    """E log p(y | f_u) over θ ~ weights: E (y − f)² = (y − E f)² + Var f."""
    mean, variance = function_values(weights, u)
    return log_likelihood(y, mean) - variance.sum() / (2 * NOISE_VARIANCE)


def log_evidence(u: Tensor, y: Tensor) -> Tensor:
    """log p(y | u): y ~ N(0, φφᵀ/τ + σ²)."""
    phi = features(u)
    covariance = phi @ phi.T / PRIOR_PRECISION + NOISE_VARIANCE * torch.eye(len(u), dtype=u.dtype)
    quadratic = y @ torch.linalg.solve(covariance, y)
    return -(quadratic + torch.logdet(covariance) + len(u) * log(2 * pi)) / 2
